"""Starting, finding, killing and stopping one server."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from .client_config import ClientConfig

# How long a server may take until it answers, in seconds. The first start builds and bakes the templates.
FIRST_START = 1500
# The longest name of a state folder, in bytes; the server refuses longer ones.
LONGEST_STATE = 46
# How long a server may take to end after SIGTERM, in seconds.
LAST_STOP = 60
# A line of the log, as text or as JSON, that says that something is wrong.
COMPLAINT = re.compile(r'^\S+ +(WARN|ERROR) |"level":"(WARN|ERROR)"|panicked at')


def repository() -> Path:
    """The top of this repository."""
    return Path(__file__).resolve().parents[2]


def default_state() -> Path:
    """The state folder that the demo, the tests and the measures share, so that templates are built once.

    ATOLL_STATE_DIR, or `.state` in this repository, or a short path when the repository lies deep: the sockets below a
    state folder bound the length of its name.
    """
    if given := os.environ.get("ATOLL_STATE_DIR"):
        return Path(given)
    inside = repository() / ".state"
    if len(os.fsencode(inside)) <= LONGEST_STATE:
        return inside
    return Path("/var/tmp") / f"atoll-{sha256(os.fsencode(inside)).hexdigest()[:12]}"


class ServerFailed(Exception):
    """The server ended, or did not answer in time. Holds the end of its log."""


def answering(url: str) -> bool:
    """Whether a server at `url` says that sandboxes can be created."""
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=2) as response:
            return response.status == 200
    except (OSError, urllib.error.URLError):
        return False


class Server:
    """One `atoll serve` with a state folder of its own, and the key that it made at its first start.

    The user's own configuration is never touched: the command line's folder lies inside the state folder.
    """

    def __init__(self, state: Path, program: list[str] | None = None) -> None:
        self.state = state.resolve()
        self.config_home = self.state / "client"
        self.log = self.state / "server.log"
        self._program = program or [
            os.environ.get("ATOLL_BINARY") or str(repository() / "target/release/atoll"),
            "serve",
        ]
        self._child: subprocess.Popen[bytes] | None = None
        # Where in the log this run begins: the file is kept from run to run.
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api_key(self) -> str:
        """The key that the server made at its first start and kept for the command line."""
        kept = ClientConfig.below(self.config_home)
        if kept.api_key:
            return kept.api_key
        raise ServerFailed(
            f"there is no key in {kept.path}: the state folder {self.state} was first used by another command, which "
            "has its key; name a folder of its own with ATOLL_STATE_DIR"
        )

    @property
    def pid(self) -> int:
        """Its process."""
        if self._child is None:
            raise ServerFailed("the server was not started")
        return self._child.pid

    def environment(self) -> dict[str, str]:
        """What a command-line client needs around it to talk to this server."""
        own = {key: value for key, value in os.environ.items() if not key.startswith("ATOLL_")}
        return own | {"XDG_CONFIG_HOME": str(self.config_home)}

    def start(self, patience: float = FIRST_START) -> Server:
        """Starts it, on the same port as before if there was one, and waits until it answers."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.config_home.mkdir(mode=0o700, exist_ok=True)
        self.port = self.port or free_port()
        arguments = ["--state-dir", str(self.state), "--listen", f"127.0.0.1:{self.port}"]
        with self.open_log() as log:
            self._child = subprocess.Popen(
                [*self._program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
            )
        self._wait(patience)
        return self

    def open_log(self) -> BinaryIO:
        """The log, for appending; readable by its owner alone, since the first start prints a key into it."""
        log = os.fdopen(os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
        os.fchmod(log.fileno(), 0o600)
        return log

    def _wait(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        assert self._child is not None
        while not answering(self.url):
            if self._child.poll() is not None:
                raise ServerFailed(f"the server ended with {self._child.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.stop()
                raise ServerFailed(f"no answer from {self.url} within {patience:.0f} s:\n{self.log_tail()}")
            # There is no event to wait for: an HTTP server shows that it is ready by answering.
            time.sleep(0.05)

    def log_tail(self, lines: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def complaints(self, most: int = 40) -> list[str]:
        """The last lines that this run logged as a warning or an error."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(self._log_from)
            lines = log.read().decode(errors="replace").splitlines()
        return [line for line in lines if COMPLAINT.search(line)][-most:]

    def stop(self) -> int:
        """Asks it to end and waits until it has. Returns its exit code."""
        if self._child is None:
            return 0
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(LAST_STOP)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
                raise ServerFailed(f"the server did not end within {LAST_STOP} s:\n{self.log_tail()}") from None
        code = self._child.returncode
        self._child = None
        return code

    def kill(self) -> None:
        """Kills it as a crash would, and nothing else."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()
        self._child = None


def free_port() -> int:
    """A port on the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
