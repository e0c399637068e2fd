"""The stack under test: a server that is already there, or one that is started for this run.

    pytest tests/flows                      starts ATOLL_BINARY (target/release/atoll) on ATOLL_STATE_DIR (.state)
    ATOLL_URL=... ATOLL_API_KEY=... pytest  uses that server; ATOLL_SERVER_PID and ATOLL_STATE_DIR, when given, let the
                                            flows look at its memory and at what it leaves on the host
    pytest --engine fake                    starts the test server, whose sandboxes are plain processes

`scripts/flows` runs all of it as `make test` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "scripts"), str(Path(__file__).parent)]
from client import Api, Context, Sandbox  # noqa: E402
from stack import Server, default_state, memory_of  # noqa: E402

# How much the server's memory may grow while a client does its worst, in bytes.
FLAT = 64 << 20


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=["gvisor", "fake"], default="gvisor", help="what isolates the sandboxes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fault(*rows): the rows of the list of faults that this test stands for")
    config.addinivalue_line("markers", "isolation: attacks the machine it runs on; only behind a real engine")
    config.addinivalue_line("markers", "full_template: needs what only the built template holds")
    config.addinivalue_line("markers", "slow: takes more than half a minute; run by `make test-all`")
    config.addinivalue_line("markers", "alone: measures time or memory, or is a heavy load; never beside other tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--engine") == "gvisor":
        return
    for item in items:
        for marker in ("isolation", "full_template"):
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"{marker}: the fake engine runs plain processes of this host"))


@dataclasses.dataclass
class Stack:
    """A server and what is known of it."""

    url: str
    api_key: str
    engine: str
    pid: int | None
    state: Path | None
    server: Server | None

    def memory(self) -> int:
        """The server's resident memory, in bytes."""
        if self.pid is None:
            pytest.skip("the server's process is not known: set ATOLL_SERVER_PID")
        return memory_of(self.pid)


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The server."""
    engine = request.config.getoption("--engine")
    if os.environ.get("ATOLL_URL"):
        pid, state = os.environ.get("ATOLL_SERVER_PID"), os.environ.get("ATOLL_STATE_DIR")
        yield Stack(
            os.environ["ATOLL_URL"].rstrip("/"),
            os.environ["ATOLL_API_KEY"],
            engine,
            int(pid) if pid else None,
            Path(state) if state else None,
            None,
        )
        return
    if os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.exit("several workers share one server: run scripts/flows, or set ATOLL_URL")
    with contextlib.ExitStack() as exits:
        if engine == "fake":
            program = os.environ.get("ATOLL_TESTSERVER") or str(TOP / "target/debug/atoll-testserver")
            folder = exits.enter_context(tempfile.TemporaryDirectory(prefix="atoll-flows-"))
            server = Server(Path(folder), [program])
        else:
            server = Server(default_state())
        server.start()
        exits.callback(server.stop)
        yield Stack(server.url, server.api_key, engine, server.pid, server.state, server)


@pytest.fixture(scope="session")
def api(stack: Stack) -> Api:
    """A client with the first key of the server."""
    return Api(stack.url, stack.api_key)


Create = Callable[..., Sandbox]


@pytest.fixture
def create(api: Api) -> Iterator[Create]:
    """Makes sandboxes that end with the test."""
    made: list[Sandbox] = []

    def make(**fields: object) -> Sandbox:
        made.append(api.create(**fields))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.delete()


@pytest.fixture
def sandbox(create: Create) -> Sandbox:
    """A sandbox for this test alone."""
    return create()


@pytest.fixture(scope="session")
def shared(api: Api) -> Iterator[Sandbox]:
    """A sandbox for tests that harm nobody else in it."""
    sandbox = api.create(ttl_seconds=0)
    yield sandbox
    sandbox.delete()


@pytest.fixture(scope="session")
def bystander(api: Api) -> Iterator[Sandbox]:
    """Another sandbox, which must go on answering whatever happens in the one under test."""
    sandbox = api.create(ttl_seconds=0)
    sandbox.sh("true")
    yield sandbox
    sandbox.delete()


@pytest.fixture
def context(shared: Sandbox) -> Iterator[Context]:
    """A fresh context in the shared sandbox."""
    context = shared.context()
    yield context
    context.close()


Watch = Callable[[], contextlib.AbstractContextManager[None]]


@pytest.fixture
def memory_stays_flat(stack: Stack) -> Watch:
    """A `with` during which the server's memory may not grow by more than `FLAT`."""

    @contextlib.contextmanager
    def watch() -> Iterator[None]:
        before = stack.memory()
        peak = before
        done = threading.Event()

        def sample() -> None:
            nonlocal peak
            while not done.wait(0.02):
                peak = max(peak, stack.memory())

        sampler = threading.Thread(target=sample, daemon=True)
        sampler.start()
        try:
            yield
        finally:
            done.set()
            sampler.join()
        grown = max(peak, stack.memory()) - before
        assert grown < FLAT, f"the server grew by {grown >> 20} MiB"

    return watch


@pytest.fixture
def answers_at_once(bystander: Sandbox) -> Callable[[], None]:
    """Checks that a sandbox beside the one under test runs a command within a second."""

    def check() -> None:
        from client import took

        assert took(lambda: bystander.sh("true")) < 1.0

    return check


@pytest.fixture(scope="session")
def atoll(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command line, told where the server is by its environment only."""
    binary = os.environ.get("ATOLL_BINARY") or str(TOP / "target/release/atoll")
    if not Path(binary).exists():
        pytest.skip(f"there is no {binary}")
    home = tmp_path_factory.mktemp("no-config")
    own = {
        "ATOLL_URL": stack.url,
        "ATOLL_API_KEY": stack.api_key,
        "XDG_CONFIG_HOME": str(home),
        "PATH": os.environ["PATH"],
    }
    return ["env", "-i", *(f"{name}={value}" for name, value in own.items()), binary]
