"""The client that measures: Python's `http.client`, one kept-alive connection, no delay for small packets."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any
from urllib.parse import quote, urlsplit


class Api:
    """One connection with one key."""

    def __init__(self, url: str, api_key: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port, timeout=120)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._headers = {"Authorization": f"Bearer {api_key}"}

    def send(self, method: str, path: str, body: bytes | None = None) -> http.client.HTTPResponse:
        """Sends a request; the caller reads the answer."""
        self._connection.request(method, f"/v1{path}", body, self._headers)
        response = self._connection.getresponse()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {response.read().decode(errors='replace')}")
        return response

    def json(self, method: str, path: str, value: Any = None) -> Any:
        """Sends JSON and reads JSON."""
        body = None if value is None else json.dumps(value).encode()
        text = self.send(method, path, body).read()
        return json.loads(text) if text else None

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


class Sandbox:
    """A sandbox to measure on."""

    def __init__(self, api: Api, identity: str) -> None:
        self.api = api
        self.id = identity
        self.path = f"/sandboxes/{identity}"

    @classmethod
    def create(cls, api: Api) -> Sandbox:
        """A new one."""
        return cls(api, api.json("POST", "/sandboxes", {"template": "code-interpreter", "ttl_seconds": 3600})["id"])

    def context(self) -> str:
        """The path of a new Python context."""
        made = self.api.json("POST", f"{self.path}/repl/sessions", {"language": "python"})
        return f"{self.path}/repl/sessions/{made['id']}"

    def cell(self, context: str, code: str) -> Any:
        """Runs a cell."""
        answer = self.api.json("POST", f"{context}/run", {"code": code})
        if answer["exit"] != 0:
            raise RuntimeError(f"{code!r} failed: {answer['error']}")
        return answer

    def file(self, path: str) -> str:
        """The address of a file."""
        return f"{self.path}/fs?path={quote(path, safe='')}"

    def agent_memory(self) -> int:
        """Resident memory of the agent, which is process 1 inside, in bytes."""
        body = {"argv": ["awk", "/^VmRSS/ {print $2}", "/proc/1/status"]}
        return int(self.api.json("POST", f"{self.path}/exec", body)["stdout"]) * 1024

    def delete(self) -> None:
        """Ends it."""
        self.api.send("DELETE", self.path).read()
