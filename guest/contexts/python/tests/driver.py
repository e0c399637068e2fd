"""Plays the agent: drives a zygote over a socket pair."""

import array
import json
import os
import secrets
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

ENTRY = Path(__file__).resolve().parent.parent / "zygote.py"
PATIENCE = 60
"""Seconds after which a test that waits for the driver fails."""


class Peer:
    """The agent's end of a control socket."""

    def __init__(self, sock):
        self.socket = sock
        sock.settimeout(PATIENCE)

    def send(self, message, descriptors=()):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        data = struct.pack(">I", len(body)) + body
        self.socket.sendall(data[self.socket.sendmsg([data], ancillary) :])

    def receive(self):
        """The next message; None at the end of the stream. JSON constants beyond the standard are refused."""
        header = self._exactly(4)
        if header is None:
            return None
        body = self._exactly(struct.unpack(">I", header)[0])
        return json.loads(body.decode("utf-8", "strict"), parse_constant=_refuse)

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                return None
            data += chunk
        return data


def _refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


class Zygote:
    """A zygote process."""

    def __init__(self, home, warm=""):
        ours, theirs = socket.socketpair()
        self.peer = Peer(ours)
        # Descriptor 3 is the socket in the child, whatever it is here.
        close = f" {theirs.fileno()}<&-" if theirs.fileno() != 3 else ""
        command = f'exec 3<&{theirs.fileno()}{close}; exec "$@"'
        # Temporary files go with the home, and leave nothing on the machine of the tests.
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", command, "zygote", sys.executable, str(ENTRY)],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        assert self.peer.receive() == {"event": "ready"}
        if warm:
            self.peer.send({"op": "warm", "code": warm})
            answer = self.peer.receive()
            assert answer == {"event": "warmed"}, answer
        self.exited = {}

    def call(self, message, descriptors=()):
        self.peer.send(message, descriptors)
        return self.event()

    def event(self):
        """The next event that is not of an ended context."""
        while True:
            event = self.peer.receive()
            if event is None or event["event"] != "exited":
                return event
            self.exited[event["pid"]] = event["status"]

    def context(self, cwd="/tmp", env=None, entropy=None):
        return Context(self, cwd, env or {}, entropy or secrets.token_hex(32))

    def status_of(self, pid):
        """The raw wait status of a context, once it ended."""
        while pid not in self.exited:
            event = self.peer.receive()
            assert event["event"] == "exited", event
            self.exited[event["pid"]] = event["status"]
        return self.exited[pid]

    def close(self):
        self.peer.socket.close()
        return self.process.wait(PATIENCE)


class Cell:
    """What came of one cell."""

    def __init__(self):
        self.out = b""
        self.err = b""
        self.results = []
        self.done = None

    @property
    def stdout(self):
        return self.out.decode()

    @property
    def stderr(self):
        return self.err.decode()

    @property
    def bundles(self):
        """The bundles as a client sees them: an update replaces the result of its display_id."""
        shown, places = [], {}
        for result in self.results:
            display_id = result.get("display_id")
            if result.get("update"):
                if display_id in places:
                    shown[places[display_id]] = result["bundle"]
                continue
            if display_id is not None:
                places[display_id] = len(shown)
            shown.append(result["bundle"])
        return shown


class Context:
    """A context of a zygote."""

    def __init__(self, zygote, cwd, env, entropy):
        ours, theirs = socket.socketpair()
        out, out_write = os.pipe()
        err, err_write = os.pipe()
        self.peer = Peer(ours)
        self.pipes = {out: "out", err: "err"}
        self.zygote = zygote
        request = {"op": "fork", "context": "c", "cwd": str(cwd), "env": env, "entropy": entropy}
        self.forked = zygote.call(request, [theirs.fileno(), out_write, err_write])
        theirs.close()
        os.close(out_write)
        os.close(err_write)
        assert self.forked["event"] == "forked", self.forked
        self.pid = self.forked["pid"]
        self.count = 0

    def start(self, code, env=None):
        self.count += 1
        self.peer.send({"op": "run", "cell": self.count, "code": code, "env": env or {}})

    def run(self, code, env=None, interrupt_when=None):
        """Runs a cell. With `interrupt_when`, sends SIGINT once that text was printed."""
        self.start(code, env)
        cell = Cell()
        deadline = time.monotonic() + PATIENCE
        while cell.done is None:
            assert time.monotonic() < deadline, f"no end of {code!r}; so far {cell.__dict__}"
            ready, _, _ = select.select([self.peer.socket, *self.pipes], [], [], 1)
            self.drain(cell, ready)
            if interrupt_when and interrupt_when in cell.out:
                os.kill(self.pid, 2)
                interrupt_when = None
            if self.peer.socket in ready:
                event = self.peer.receive()
                assert event is not None, f"the context ended in {code!r}: {cell.__dict__}"
                assert event["cell"] == self.count, event
                if event["event"] == "done":
                    cell.done = event
                else:
                    cell.results.append(event)
        while ready := [pipe for pipe in select.select([*self.pipes], [], [], 0)[0]]:
            if not self.drain(cell, ready):
                break
        return cell

    def drain(self, cell, ready):
        """Reads what the pipes hold; whether there was any."""
        any_read = False
        for pipe in ready:
            if pipe in self.pipes:
                data = os.read(pipe, 65536)
                any_read = any_read or bool(data)
                name = self.pipes[pipe]
                setattr(cell, name, getattr(cell, name) + data)
        return any_read

    def close(self):
        self.peer.socket.close()
        for pipe in self.pipes:
            os.close(pipe)
