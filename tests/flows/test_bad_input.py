"""Wrong requests: a typed refusal with its reason, at once, and a server that goes on as before."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from client import Api, Refused, Sandbox
from conftest import Stack, Watch

MIB = 1 << 20


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"{} {}",
        b"{'cmd': 'x'}",
        b'{"cmd": "\\ud800"}',
        b"\xff\xfe{}",
        b'{"cmd": ["ls"]}',
        b'{"cmd": {}}',
        b'{"cmd": 7}',
        b'{"cmd": null}',
        b'{"cmd": "a", "cmd": 7}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
    ],
    ids=lambda body: repr(body[:24]),
)
def test_wrong_json_is_refused_with_what_is_wrong(shared: Sandbox, body: bytes):
    response = shared.api.call("POST", f"{shared.path}/exec", content=body)
    assert response.status_code == 400
    answer = response.json()
    assert isinstance(answer["error"], str) and answer["error"]
    assert answer["code"] in ("invalid_request", "unknown_field")


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/octet-stream", None])
def test_the_type_that_a_client_names_does_not_matter(shared: Sandbox, content_type: str | None):
    headers = {"Content-Type": content_type} if content_type else {}
    response = shared.api.call("POST", f"{shared.path}/exec", content=b'{"cmd": "echo hi"}', headers=headers)
    assert response.json()["stdout"] == "hi\n"


@pytest.mark.parametrize(
    "template", ["no-such-template", "../base", "a\nb", "n" * 300, "base/../base", "", ".", "\0", "code-interpreter "]
)
def test_a_template_that_is_not_there_is_refused_by_its_name(api: Api, template: str):
    with pytest.raises(Refused) as refused:
        api.create(template=template)
    assert refused.value.status == 400
    assert "template" in refused.value.error


@pytest.mark.parametrize("text", ["line\nbreak", "x" * 300, "\0", "\u202eevil", "' OR 1=1 --", "<script>", "日本"])
def test_odd_metadata_and_labels_come_back_as_they_went(api: Api, create: Callable[..., Sandbox], text: str):
    sandbox = create(metadata={"name": text}, labels={"label": text})
    assert sandbox.refresh().metadata["name"] == text
    assert text in [item.labels.get("label") for item in api.sandboxes()]


@pytest.mark.alone
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/sandboxes"),
        ("POST", "{}/exec"),
        ("POST", "{}/repl/sessions"),
        ("POST", "/me/tokens"),
        ("PATCH", "{}/lifecycle"),
    ],
)
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "chunked"])
def test_a_hundred_mebibytes_where_one_is_the_limit_are_refused_early(
    shared: Sandbox, method: str, path: str, announced: bool, memory_stays_flat: Watch
):
    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += MIB
            yield b" " * MIB

    headers = {"Content-Length": str(100 * MIB)} if announced else {}
    with memory_stays_flat():
        try:
            response = shared.api.call(method, path.format(shared.path), content=body(), headers=headers)
        except (httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError):
            # The server may close the connection before the client has sent everything, which some see as an error.
            pass
        else:
            assert response.status_code == 413
            assert response.json()["code"] == "too_large"
    assert sent < 100 * MIB
    assert shared.sh("echo fine").stdout == "fine\n"


def test_a_megabyte_of_code_is_taken_and_more_is_not(context):
    comment = "#" * (MIB - 200)
    assert context.value(f"{comment}\n6 * 7") == "42"
    with pytest.raises(Refused) as refused:
        context.rc("#" * MIB)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/sandboxes/11111111-2222-4333-8444-555555555555"),
        ("DELETE", "/sandboxes/11111111-2222-4333-8444-555555555555"),
        ("POST", "/sandboxes/11111111-2222-4333-8444-555555555555/repl/sessions"),
        ("GET", "/templates/none"),
        ("GET", "/templates/builds/0123456789abcdef"),
        ("GET", "/nothing/here"),
        ("POST", "/"),
    ],
)
def test_what_is_not_there_is_a_404_with_the_flat_envelope(api: Api, method: str, path: str):
    response = api.call(method, path, json={"language": "python"} if method == "POST" else None)
    assert response.status_code == 404
    assert isinstance(response.json()["error"], str)
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(("method", "path"), [("PATCH", "/sandboxes"), ("PUT", "/me"), ("DELETE", "/templates")])
def test_a_method_that_a_route_does_not_have_is_a_405(api: Api, method: str, path: str):
    response = api.call(method, path)
    assert response.status_code in (404, 405)
    assert isinstance(response.json()["error"], str)


def test_a_deleted_sandbox_is_gone_for_every_call(create: Callable[..., Sandbox]):
    sandbox = create()
    context = sandbox.context()
    sandbox.delete()
    for call in (
        sandbox.refresh,
        lambda: sandbox.sh("true"),
        lambda: sandbox.read("/etc/hostname"),
        lambda: sandbox.list("/"),
        sandbox.context,
        lambda: context.rc("1"),
    ):
        with pytest.raises(Refused) as gone:
            call()
        assert gone.value.status in (404, 410)
    assert sandbox.id not in {item.id for item in sandbox.api.sandboxes()}


def raw(stack: Stack, request: bytes, patience: float = 10) -> bytes:
    """Sends bytes as they are and reads until the server closes or falls silent."""
    host, port = stack.url.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=patience) as connection:
        connection.sendall(request)
        try:
            while part := connection.recv(65536):
                answer += part
        except TimeoutError:
            pass
    return answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: banana\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /v1/" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
    ],
    ids=["no-http", "version", "length", "two-lengths", "header", "path", "bytes-as-key"],
)
def test_what_is_hardly_http_is_refused_and_the_server_goes_on(stack: Stack, api: Api, request_bytes: bytes):
    answer = raw(stack, request_bytes, patience=3)
    assert not answer or answer.split(b" ", 2)[1][:1] == b"4", answer[:80]
    assert api.sandboxes() is not None


@pytest.mark.alone
def test_two_hundred_clients_that_send_nothing_hold_nobody_up(stack: Stack, shared: Sandbox, memory_stays_flat: Watch):
    host, port = stack.url.removeprefix("http://").split(":")
    with memory_stays_flat():
        idle = [socket.create_connection((host, int(port))) for _ in range(200)]
        for connection in idle:
            connection.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Le")
        started = time.monotonic()
        assert shared.sh("echo fine").stdout == "fine\n"
        assert time.monotonic() - started < 1
        for connection in idle:
            connection.close()


@pytest.mark.alone
def test_a_client_that_reads_nothing_does_not_fill_the_servers_memory(
    sandbox: Sandbox, stack: Stack, memory_stays_flat: Watch
):
    host, port = stack.url.removeprefix("http://").split(":")
    body = b'{"cmd": "yes", "timeout_seconds": 8}'
    request = (
        f"POST /v1{sandbox.path}/exec/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stack.api_key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with memory_stays_flat(), socket.create_connection((host, int(port))) as connection:
        connection.sendall(request)
        time.sleep(4)
        assert sandbox.sh("echo fine").stdout == "fine\n"


def test_a_request_id_of_the_caller_comes_back(api: Api):
    response = api.call("GET", "/me", headers={"X-Request-Id": "my-call-17"})
    assert response.headers["x-request-id"] == "my-call-17"
    assert len(api.call("GET", "/me").headers["x-request-id"]) == 16


def test_the_server_serves_others_while_one_call_runs(shared: Sandbox, api: Api):
    runner = threading.Thread(target=lambda: shared.sh("sleep 2"))
    runner.start()
    started = time.monotonic()
    for _ in range(20):
        api.sandboxes()
    assert time.monotonic() - started < 1.5
    runner.join()
