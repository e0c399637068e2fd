"""A terminal in a sandbox over the WebSocket."""

from __future__ import annotations

import json
import time
from typing import Any

from client import Sandbox
from websockets.sync.client import ClientConnection, connect


class Terminal:
    """One terminal: bytes both ways, and the exit code at its end."""

    def __init__(self, sandbox: Sandbox, **query: Any) -> None:
        base = sandbox.api.url.replace("http", "ws", 1)
        parts = "&".join(f"{name}={value}" for name, value in {"rows": 24, "cols": 80, **query}.items())
        self.socket: ClientConnection = connect(
            f"{base}/v1{sandbox.path}/exec/pty?{parts}",
            additional_headers={"Authorization": f"Bearer {sandbox.api.api_key}"},
            max_size=None,
        )
        self.output = b""
        self.exit: int | None = None
        self.error: str | None = None

    def send(self, data: bytes) -> None:
        """Keystrokes."""
        self.socket.send(data)

    def tell(self, **message: Any) -> None:
        """A JSON message, such as a resize."""
        self.socket.send(json.dumps(message))

    def until(self, text: bytes, patience: float = 10) -> bytes:
        """Reads until the output holds `text`."""
        deadline = time.monotonic() + patience
        while text not in self.output:
            self._take(deadline - time.monotonic())
        return self.output

    def end(self, patience: float = 30) -> int | None:
        """Reads to the end and returns the exit code."""
        deadline = time.monotonic() + patience
        while self.exit is None and self.error is None:
            self._take(deadline - time.monotonic())
        return self.exit

    def _take(self, patience: float) -> None:
        message = self.socket.recv(timeout=max(patience, 0.01))
        if isinstance(message, bytes):
            self.output += message
        else:
            told = json.loads(message)
            self.exit = told.get("exit", self.exit)
            self.error = told.get("error", self.error)

    def close(self) -> None:
        """Leaves."""
        self.socket.close()
