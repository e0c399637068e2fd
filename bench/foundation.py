"""The measures of the foundation: create, cell, context, command, files, memory."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from baselines import Jupyter, fresh_kernel, timed, true_here
from http_client import Api, Sandbox
from measure import Goal, Measure
from raw_restore import RawRestore
from stack import Server, memory_of

MIB = 1 << 20
FILE = 64 * MIB
# How much the memory of server and agent may grow during a transfer and still count as flat, in MiB.
FLAT = 16


class Foundation:
    """Takes every measure against one server, `n` samples each."""

    def __init__(self, server: Server, n: int) -> None:
        self.server = server
        self.n = n
        self.api = Api(server.url, server.api_key)

    def measures(self) -> Iterator[Measure]:
        """One after the other, each as soon as it is taken."""
        yield self.create()
        with self.sandbox() as sandbox:
            yield self.cell_warm(sandbox)
            yield self.context_new(sandbox)
            yield self.exec_true(sandbox)
            yield from self.files(sandbox)
        yield self.agent_memory()
        yield self.server_memory()

    @contextmanager
    def sandbox(self) -> Iterator[Sandbox]:
        """A sandbox that ends with the block."""
        sandbox = Sandbox.create(self.api)
        try:
            yield sandbox
        finally:
            sandbox.delete()

    def create(self) -> Measure:
        """A create until it is answered, against the restore of the same image by hand."""
        measure = Measure("foundation.create", "ms", Goal(ratio_at_most=1.3), baseline_name="runsc restore")
        with self.sandbox() as model, RawRestore(self.server.state, model.id) as restore:
            for _ in range(self.n):
                took, made = timed(lambda: Sandbox.create(self.api))
                measure.samples.append(took)
                made.delete()
                measure.baseline.append(restore.sample())
        return measure

    def cell_warm(self, sandbox: Sandbox) -> Measure:
        """A cell `1+1` in a context that has run some."""
        measure = Measure("foundation.cell_warm", "ms", Goal(at_most=4, ratio_at_most=0.4), baseline_name="ipykernel")
        context = sandbox.context()
        kernel = Jupyter()
        try:
            for _ in range(5):
                sandbox.cell(context, "1+1")
                kernel.run("1+1")
            # These are short, so more of them cost little and tame the noise.
            for _ in range(self.n * 4):
                measure.samples.append(timed(lambda: sandbox.cell(context, "1+1"))[0])
                measure.baseline.append(timed(lambda: kernel.run("1+1"))[0])
        finally:
            kernel.close()
            self.api.send("DELETE", context).read()
        return measure

    def context_new(self, sandbox: Sandbox) -> Measure:
        """A new context whose first cell finds pandas imported."""
        measure = Measure("foundation.context_new", "ms", Goal(at_most=120), baseline_name="new ipykernel")
        for number in range(self.n):
            took, made = timed(sandbox.context)
            measure.samples.append(took)
            if number == 0:
                loaded = sandbox.cell(made, "import sys; 'pandas' in sys.modules")["results"][0]["text/plain"]
                if loaded != "True":
                    raise RuntimeError("a new context has no pandas imported")
            self.api.send("DELETE", made).read()
            # Seconds each, and far from the goal: a few tell enough.
            if number % max(1, self.n // 5) == 0:
                measure.baseline.append(fresh_kernel())
        return measure

    def exec_true(self, sandbox: Sandbox) -> Measure:
        """The command `true`, no shell."""
        measure = Measure("foundation.exec_true", "ms", Goal(at_most=10), baseline_name="subprocess")
        run = lambda: self.api.json("POST", f"{sandbox.path}/exec", {"argv": ["true"]})  # noqa: E731
        for _ in range(5):
            run()
        for _ in range(self.n * 2):
            measure.samples.append(timed(run)[0])
            measure.baseline.append(true_here())
        return measure

    def files(self, sandbox: Sandbox) -> Iterator[Measure]:
        """64 MiB up and down, in MB/s, while the memory of server and agent is watched."""
        data = os.urandom(MIB) * (FILE // MIB)
        address = sandbox.file("/work/bench.bin")
        up = Measure("foundation.file_up", "MB/s", Goal(at_least=200))
        down = Measure("foundation.file_down", "MB/s", Goal(at_least=200))
        for measure, transfer in (
            (up, lambda: self.api.send("PUT", address, data).read()),
            (down, lambda: drain(self.api.send("GET", address))),
        ):
            transfer()
            with self.memory_watched(sandbox, measure):
                for _ in range(self.n):
                    measure.samples.append(FILE / 1e6 / (timed(transfer)[0] / 1000))
            yield measure

    @contextmanager
    def memory_watched(self, sandbox: Sandbox, measure: Measure) -> Iterator[None]:
        """Notes how far the memory of server and agent grew; more than `FLAT` fails the measure's goal."""
        watcher = Api(self.server.url, self.server.api_key)
        inside = Sandbox(watcher, sandbox.id)
        readers: dict[str, Callable[[], int]] = {
            "server": lambda: memory_of(self.server.pid),
            "agent": inside.agent_memory,
        }
        before = {name: read() for name, read in readers.items()}
        peak = dict(before)
        done = threading.Event()

        def sample() -> None:
            while not done.wait(0.1):
                for name, read in readers.items():
                    peak[name] = max(peak[name], read())

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            yield
        finally:
            done.set()
            sampler.join()
            watcher.close()
        grown = {name: (peak[name] - before[name]) / MIB for name in readers}
        measure.remark = ", ".join(f"{name} memory grew by {mebibytes:.1f} MiB" for name, mebibytes in grown.items())
        if max(grown.values()) > FLAT:
            measure.fault = f"memory is not flat: more than {FLAT} MiB"

    def agent_memory(self) -> Measure:
        """Resident memory of the agent in a sandbox that has just been made."""
        measure = Measure("foundation.agent_rss", "MB", Goal(at_most=12))
        for _ in range(max(3, self.n // 10)):
            with self.sandbox() as sandbox:
                measure.samples += [sandbox.agent_memory() / 1e6 for _ in range(10)]
        return measure

    def server_memory(self) -> Measure:
        """Resident memory of the server after all of this, with no sandbox left."""
        measure = Measure("foundation.server_rss", "MB", Goal(at_most=50))
        for _ in range(self.n):
            measure.samples.append(memory_of(self.server.pid) / 1e6)
            time.sleep(0.02)
        return measure


def drain(response: http.client.HTTPResponse) -> None:
    """Reads an answer to its end without keeping it."""
    buffer = bytearray(MIB)
    total = 0
    while count := response.readinto(buffer):
        total += count
    if total != FILE:
        raise RuntimeError(f"{total} bytes came of {FILE}")
