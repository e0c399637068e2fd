"""A server that is killed at the worst moment: what was answered for lives on, what was not is gone, nothing is left."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from client import Api, Refused, Sandbox
from conftest import Stack
from stack import Leftovers, Server, default_state

pytestmark = [pytest.mark.isolation, pytest.mark.alone]


@pytest.fixture
def server(stack: Stack) -> Iterator[Server]:
    """A server of this test's own, which has the templates of the shared one and nothing else of it."""
    state = Path(tempfile.mkdtemp(prefix="atoll-", dir="/var/tmp"))
    shared = stack.state or default_state()
    (state / "templates").symlink_to((shared / "templates").resolve())
    server = Server(state)
    server.start(patience=120)
    try:
        yield server
    finally:
        api = Api(server.url, server.api_key)
        for item in api.sandboxes():
            Sandbox(api, item).delete()
        api.http.close()
        server.stop()
        (state / "templates").unlink()
        left = Leftovers.of(state)
        assert not any((left.processes, left.mounts, left.cgroups, left.folders)), left
        shutil.rmtree(state)


@pytest.mark.fault(134)
@pytest.mark.parametrize("moment", [0.15, 0.6, 1.5], ids=["early", "middle", "late"])
def test_a_kill_in_the_middle_of_twenty_creates_loses_none_that_was_answered_for(server: Server, moment: float):
    api = Api(server.url, server.api_key)

    def create(number: int) -> str | None:
        try:
            return api.create(labels={"number": str(number)}, ttl_seconds=0).id
        except (httpx.HTTPError, Refused):
            return None

    with ThreadPoolExecutor(20) as callers:
        waits = [callers.submit(create, number) for number in range(20)]
        time.sleep(moment)
        server.kill()
        answered = {wait.result() for wait in waits} - {None}
    server.start(patience=120)
    api = Api(server.url, server.api_key)
    alive = {item.id for item in api.sandboxes()}
    assert answered <= alive
    for identity in alive:
        sandbox = Sandbox(api, api.json("GET", f"/sandboxes/{identity}"))
        assert sandbox.info.status == "running"
        assert sandbox.sh("echo alive").stdout == "alive\n"
    # What is on the host is what is in the list, and no more.
    machines = {folder.name for folder in (server.state / "machines").iterdir()}
    assert machines == alive


@pytest.mark.fault(134)
def test_state_contexts_and_running_commands_survive_a_killed_server(server: Server):
    api = Api(server.url, server.api_key)
    sandbox = api.create(ttl_seconds=0, metadata={"kept": "yes"})
    context = sandbox.context()
    context.rc("x = 41; import threading, time; started = time.time()")
    sandbox.write("/work/file", b"kept")
    sandbox.sh("nohup sleep 300 > /dev/null 2>&1 &")
    for _ in range(2):
        server.kill()
        server.start(patience=120)
    again = Api(server.url, server.api_key)
    sandbox = Sandbox(again, again.json("GET", sandbox.path))
    assert sandbox.info.metadata["kept"] == "yes"
    assert sandbox.read("/work/file") == b"kept"
    (listed,) = sandbox.contexts()
    assert listed["id"] == context.id
    context.sandbox = sandbox
    assert context.value("x + 1") == "42"
    assert "sleep 300" in sandbox.running()


def test_a_kill_in_the_middle_of_a_cell_leaves_a_context_that_answers(server: Server):
    api = Api(server.url, server.api_key)
    sandbox = api.create(ttl_seconds=0)
    context = sandbox.context()
    context.rc("x = 1")
    with ThreadPoolExecutor(1) as caller:
        running = caller.submit(context.rc, "import time; time.sleep(20); x = 2", 30)
        time.sleep(1)
        server.kill()
        with pytest.raises(httpx.HTTPError):
            running.result()
    server.start(patience=120)
    again = Api(server.url, server.api_key)
    context.sandbox = Sandbox(again, again.json("GET", sandbox.path))
    assert context.value("x", t=25) in ("1", "2")


def test_a_kill_in_the_middle_of_a_delete_ends_in_a_delete(server: Server):
    api = Api(server.url, server.api_key)
    sandboxes = [api.create(ttl_seconds=0) for _ in range(4)]
    with ThreadPoolExecutor(4) as callers:
        for sandbox in sandboxes:
            callers.submit(api.call, "DELETE", sandbox.path)
        time.sleep(0.05)
        server.kill()
    server.start(patience=120)
    again = Api(server.url, server.api_key)
    deadline = time.monotonic() + 20
    while True:
        left = {folder.name for folder in (server.state / "machines").iterdir()}
        alive = {item.id for item in again.sandboxes()}
        # One whose delete had not reached the server is alive as before; nothing is in between.
        if left == alive and all(item.status == "running" for item in again.sandboxes()):
            break
        assert time.monotonic() < deadline, (left, alive)
        time.sleep(0.2)


def test_an_orderly_stop_keeps_the_sandboxes_and_ends_with_zero(server: Server):
    api = Api(server.url, server.api_key)
    sandbox = api.create(ttl_seconds=0)
    context = sandbox.context()
    context.rc("x = 5")
    assert server.stop() == 0
    server.start(patience=120)
    again = Api(server.url, server.api_key)
    context.sandbox = Sandbox(again, again.json("GET", sandbox.path))
    assert context.value("x") == "5"


def test_a_second_server_on_one_state_folder_is_refused(server: Server):
    from stack import ServerFailed

    second = Server(server.state)
    with pytest.raises(ServerFailed) as refused:
        second.start(patience=20)
    assert "another server uses the state folder" in str(refused.value)
    assert Api(server.url, server.api_key).sandboxes() == []


def test_a_sandbox_that_died_while_the_server_was_down_is_failed_with_a_reason(server: Server):
    import signal

    from stack.host import command_line, processes

    api = Api(server.url, server.api_key)
    sandbox = api.create(ttl_seconds=0)
    server.kill()
    for pid in processes():
        if sandbox.id in " ".join(command_line(pid)):
            os.kill(pid, signal.SIGKILL)
    server.start(patience=120)
    again = Api(server.url, server.api_key)
    info = again.json("GET", sandbox.path)
    assert (info.status, info.gone) == ("failed", "machine_died")
    assert sandbox.id not in {item.id for item in again.sandboxes()}
    assert sandbox.id not in {folder.name for folder in (server.state / "machines").iterdir()}
