"""The HTTP API in the terms of the flows. It hides addresses and field names, never an answer."""

from __future__ import annotations

import base64
import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx

# Longest wait for an answer, in seconds. Above every deadline that a flow sets, below pytest's own.
PATIENCE = 90


class Refused(Exception):
    """An answer of "no", with what the envelope says."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        try:
            self.body: dict[str, Any] = response.json()
        except ValueError:
            self.body = {"error": response.text}
        self.error = self.body.get("error")
        self.code = self.body.get("code")
        self.field = self.body.get("field")
        super().__init__(f"{self.status} {self.code}: {self.error}")


class Answer(dict[str, Any]):
    """A JSON object whose fields can be read as attributes; an absent one is None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


class Api:
    """A client with one key. Safe to use from several threads."""

    def __init__(self, url: str, api_key: str) -> None:
        self.url = url
        self.api_key = api_key
        limits = httpx.Limits(max_connections=300, max_keepalive_connections=50)
        self.http = httpx.Client(
            base_url=f"{url}/v1",
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=PATIENCE,
            limits=limits,
        )

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Any call, any answer."""
        return self.http.request(method, path, **more)

    def ok(self, method: str, path: str, **more: Any) -> httpx.Response:
        """A call that is to succeed; `Refused` otherwise."""
        response = self.call(method, path, **more)
        if not response.is_success:
            raise Refused(response)
        return response

    def json(self, method: str, path: str, **more: Any) -> Answer:
        """The JSON object of a call that is to succeed."""
        return Answer(self.ok(method, path, **more).json())

    def create(self, template: str = "code-interpreter", **fields: Any) -> Sandbox:
        """A new sandbox."""
        return Sandbox(self, self.json("POST", "/sandboxes", json={"template": template, **fields}))

    def sandboxes(self) -> list[Answer]:
        """Every live sandbox of the workspace."""
        return [Answer(item) for item in self.ok("GET", "/sandboxes").json()]


@dataclasses.dataclass
class Streamed:
    """What a stream of a command told: whole text of each stream, and its last event."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    error: str | None = None
    events: int = 0


class Sandbox:
    """One sandbox."""

    def __init__(self, api: Api, info: Answer) -> None:
        self.api = api
        self.info = info
        self.id: str = info["id"]
        self.path = f"/sandboxes/{self.id}"

    def refresh(self) -> Answer:
        """What the server says of it now."""
        return self.api.json("GET", self.path)

    def delete(self) -> None:
        """Ends it; fine when it is gone already."""
        response = self.api.call("DELETE", self.path)
        assert response.status_code in (204, 404), response.text

    def usage(self) -> Answer:
        """What the host holds for it."""
        return self.api.json("GET", f"{self.path}/metrics")

    def agent_memory(self) -> int:
        """Resident memory of its agent, which is process 1 inside, in bytes."""
        return int(self.sh("awk '/^VmRSS/ {print $2}' /proc/1/status").stdout) * 1024

    def zombies(self) -> int:
        """Processes inside that ended and were not reaped."""
        return int(self.sh("cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.*Z' || true").stdout)

    def running(self) -> str:
        """The command lines of everything that runs inside."""
        return self.sh("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").stdout

    # commands

    def sh(self, command: str, t: float | None = None, **fields: Any) -> Answer:
        """Runs a shell command to its end."""
        return self._exec({"cmd": command}, t, fields)

    def ex(self, argv: list[str], t: float | None = None, **fields: Any) -> Answer:
        """Runs a program, no shell."""
        return self._exec({"argv": argv}, t, fields)

    def _exec(self, program: dict[str, Any], t: float | None, fields: dict[str, Any]) -> Answer:
        body = program | fields | ({} if t is None else {"timeout_seconds": t})
        return self.api.json("POST", f"{self.path}/exec", json=body)

    def events(self, command: str, **fields: Any) -> Iterator[tuple[str, Answer]]:
        """The events of a streamed command as they come."""
        body = {"cmd": command, **fields}
        with self.api.http.stream("POST", f"{self.path}/exec/stream", json=body) as response:
            if not response.is_success:
                response.read()
                raise Refused(response)
            assert response.headers["content-type"].startswith("text/event-stream")
            yield from server_sent(response)

    def stream(self, command: str, **fields: Any) -> Streamed:
        """A streamed command, followed to its end."""
        seen = Streamed()
        for event, data in self.events(command, **fields):
            seen.events += 1
            if event == "stdout":
                seen.stdout += data["chunk"]
            elif event == "stderr":
                seen.stderr += data["chunk"]
            elif event == "exit":
                seen.exit_code = data["exit_code"]
            elif event == "error":
                seen.error = data["error"]
        return seen

    # files

    def write(self, path: str, data: bytes) -> Answer:
        """Writes a file, its folders included."""
        return self.api.json("PUT", f"{self.path}/fs", params={"path": path}, content=data)

    def read(self, path: str, **more: Any) -> bytes:
        """A file's bytes."""
        return self.api.ok("GET", f"{self.path}/fs", params={"path": path, **more}).content

    def stat(self, path: str) -> Answer:
        """One entry."""
        return self.api.json("GET", f"{self.path}/fs/stat", params={"path": path})

    def list(self, path: str) -> list[Answer]:
        """A directory's entries."""
        entries = self.api.json("GET", f"{self.path}/fs/dir", params={"path": path})["entries"]
        return [Answer(entry) for entry in entries or []]

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with all it holds."""
        self.api.ok("DELETE", f"{self.path}/fs", params={"path": path})

    # contexts

    def context(self, **fields: Any) -> Context:
        """A new Python context."""
        body = {"language": "python", **fields}
        return Context(self, self.api.json("POST", f"{self.path}/repl/sessions", json=body))

    def contexts(self) -> list[Answer]:
        """Its contexts."""
        return [Answer(item) for item in self.api.ok("GET", f"{self.path}/repl/sessions").json()]


class Context:
    """A code context of a sandbox."""

    def __init__(self, sandbox: Sandbox, info: Answer) -> None:
        self.sandbox = sandbox
        self.info = info
        self.id: str = info["id"]
        self.path = f"{sandbox.path}/repl/sessions/{self.id}"

    def rc(self, code: str, t: float | None = None, **fields: Any) -> Answer:
        """Runs a cell to its end, whatever that is: a deadline's 504 comes back as an answer, too."""
        body = {"code": code, **fields} | ({} if t is None else {"timeout_ms": int(t * 1000)})
        response = self.sandbox.api.call("POST", f"{self.path}/run", json=body)
        if response.status_code == 504:
            return Answer(response.json()["result"])
        if not response.is_success:
            raise Refused(response)
        return Answer(response.json())

    def value(self, code: str, t: float | None = None) -> str:
        """The text of the last result of a cell that is to succeed."""
        answer = self.rc(code, t)
        assert answer.exit == 0, answer.error
        return answer["results"][-1]["text/plain"]

    def close(self) -> None:
        """Ends it."""
        self.sandbox.api.ok("DELETE", self.path)


def server_sent(response: httpx.Response) -> Iterator[tuple[str, Answer]]:
    """The events of a server-sent stream: name and JSON object of each."""
    name = "message"
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, Answer(json.loads(line.removeprefix("data: ")))
        elif not line:
            name = "message"


def quoted(segment: str) -> str:
    """One path segment, everything escaped."""
    return quote(segment, safe="")


def decoded(text: str) -> bytes:
    """The bytes of a base64 text."""
    return base64.b64decode(text, validate=True)


def took(call: Any) -> float:
    """How long a call takes, in seconds."""
    started = time.monotonic()
    call()
    return time.monotonic() - started
