"""The endpoint: `POST /v1/chat/completions` and `GET /v1/models`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .conversation import Answer, Conversation, ScriptError
from .wire import Reply

MODEL = "scripted"
# The largest request that is read, in bytes. A conversation with tool results is far below it.
MAX_BODY = 16 << 20

Script = Callable[[Conversation], Answer]


class ScriptedModel:
    """The endpoint as an object: serves between `start` and `stop`, or inside a `with`.

    `requests` keeps the body of every chat request, for tests that want to see what a client sent.
    """

    def __init__(self, decide: Script, port: int = 0) -> None:
        self.decide = decide
        self.requests: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="scripted-model", daemon=True)

    @property
    def base_url(self) -> str:
        """What clients take as their base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def start(self) -> ScriptedModel:
        """Serves from a thread of its own."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends serving and frees the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve_forever(self) -> None:
        """Serves on the calling thread until it is interrupted."""
        try:
            self._server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            self._server.server_close()

    def __enter__(self) -> ScriptedModel:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reply(self, body: dict[str, Any]) -> Reply:
        """Asks the script for the answer to one request."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise ScriptError("messages must be a list that is not empty")
        self.requests.append(body)
        conversation = Conversation(messages, body.get("tools") or [])
        return Reply(self.decide(conversation), conversation, str(body.get("model") or MODEL))


def _handler_of(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """The conversation is what matters, not the access log."""

        def do_GET(self) -> None:
            if self.path.rstrip("/") == "/v1/models":
                self._json(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "script"}]})
            else:
                self._refuse(404, f"there is no {self.path} here")

        def do_POST(self) -> None:
            body = self._body()
            if self.path.rstrip("/") != "/v1/chat/completions":
                return self._refuse(404, f"there is no {self.path} here")
            try:
                request = json.loads(body)
                reply = model.reply(request)
            except (ValueError, ScriptError) as error:
                return self._refuse(400, str(error))
            if request.get("stream"):
                self._stream(reply, bool((request.get("stream_options") or {}).get("include_usage")))
            else:
                self._json(200, reply.whole())

        def _body(self) -> bytes:
            length = int(self.headers.get("Content-Length") or 0)
            if length > MAX_BODY:
                self.close_connection = True
                return b""
            return self.rfile.read(length)

        def _json(self, status: int, value: dict[str, Any]) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _refuse(self, status: int, message: str) -> None:
            self._json(status, {"error": {"message": message, "type": "invalid_request_error"}})

        def _stream(self, reply: Reply, include_usage: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in reply.pieces(include_usage):
                self._chunk(b"data: " + json.dumps(piece).encode() + b"\n\n")
            self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    return Handler
