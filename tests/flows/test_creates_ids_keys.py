"""Creates, ids and keys: once, strictly read, and closed to strangers (faults, section J)."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import sqlite3
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import httpx
import pytest
from client import Api, Refused, Sandbox
from conftest import Create, Stack


@pytest.fixture(scope="session")
def stranger(stack: Stack) -> Api:
    """A client of another workspace. The API makes none, so its rows are written as the server would write them."""
    if stack.state is None:
        pytest.skip("the state folder is not known: set ATOLL_STATE_DIR")
    digits = secrets.token_hex(20)
    now = int(time.time() * 1000)
    workspace, key = str(uuid.uuid4()), str(uuid.uuid4())
    with contextlib.closing(sqlite3.connect(stack.state / "atoll.db", timeout=10)) as records, records:
        records.execute("INSERT INTO workspaces VALUES (?, ?, ?)", (workspace, f"strangers-{digits[:8]}", now))
        records.execute(
            "INSERT INTO keys (id, workspace_id, hash, prefix, name, scope, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (key, workspace, sha256(digits.encode()).digest(), f"atl_{digits[:8]}", "stranger", "full", now),
        )
    return Api(stack.url, f"atl_{digits}")


@pytest.fixture
def key(api: Api) -> Iterator[dict]:
    """A second key of the first workspace, which ends with the test."""
    made = api.json("POST", "/me/tokens", json={"label": "for a test"})
    yield made
    api.call("DELETE", f"/me/tokens/{made['prefix']}")


@pytest.mark.fault(131)
@pytest.mark.parametrize("what", ["cell", "command", "stream"])
def test_a_sandbox_deleted_in_the_middle_of_a_call_is_told_as_gone_with_the_reason(create: Create, what: str):
    sandbox = create()
    context = sandbox.context()
    deleter = threading.Timer(1.5, sandbox.delete)
    deleter.start()
    started = time.monotonic()
    if what == "stream":
        seen = sandbox.stream("echo up; sleep 60")
        assert seen.exit_code is None
        assert "deleted" in seen.error
    else:
        with pytest.raises(Refused) as gone:
            sandbox.sh("sleep 60") if what == "command" else context.rc("import time; time.sleep(60)", t=60)
        assert gone.value.code == "sandbox_gone"
        assert "deleted" in gone.value.error
    assert time.monotonic() - started < 10
    deleter.join()


@pytest.mark.fault(134)
def test_a_create_whose_client_leaves_is_a_sandbox_in_the_list_or_none(stranger: Api):
    # In a workspace of its own: the other flows make sandboxes meanwhile.
    with pytest.raises(httpx.TimeoutException):
        stranger.http.post("/sandboxes", json={"template": "code-interpreter"}, timeout=0.05)
    time.sleep(3)
    until = time.monotonic() + 30
    while any(item.status == "creating" for item in stranger.sandboxes()):
        assert time.monotonic() < until, "the create does not end"
        time.sleep(0.2)
    made = stranger.sandboxes()
    assert len(made) <= 1
    for item in made:
        assert item.status == "running"
        Sandbox(stranger, item).delete()
    assert stranger.sandboxes() == []


@pytest.mark.fault(134)
@pytest.mark.parametrize(
    "fields",
    [{"template": "no-such"}, {"env": {"A=B": "x"}}, {"memory_mb": 1}, {"isolation": "vm"}, {"ttl_seconds": -1}],
)
def test_a_refused_create_leaves_nothing(stranger: Api, fields: dict):
    with pytest.raises(Refused) as refused:
        stranger.create(**fields)
    assert refused.value.status == 400
    assert stranger.sandboxes() == []


@pytest.mark.fault(134)
def test_one_idempotency_key_is_one_sandbox_however_often_it_is_sent(api: Api, create: Create):
    key = f"once-{time.time_ns()}"
    with ThreadPoolExecutor(6) as callers:
        made = list(callers.map(lambda _: create(idempotency_key=key, labels={"k": key}), range(6)))
    assert len({sandbox.id for sandbox in made}) == 1
    assert len([item for item in api.sandboxes() if item.labels == {"k": key}]) == 1
    with pytest.raises(Refused) as other:
        create(idempotency_key=key, labels={"k": "another"})
    assert other.value.status == 409
    again = api.ok(
        "POST",
        "/sandboxes",
        json={"template": "code-interpreter", "labels": {"k": key}},
        headers={"Idempotency-Key": key},
    ).json()
    assert again["id"] == made[0].id


@pytest.mark.fault(143)
@pytest.mark.parametrize(
    ("field", "value"),
    [("netwrok", {}), ("timeout", 5), ("cpus", 2), ("metdata", {}), ("TTL_seconds", 5), ("isolation ", "kernel")],
)
def test_a_misspelled_field_is_refused_by_its_name(api: Api, field: str, value: object):
    with pytest.raises(Refused) as refused:
        api.create(**{field: value})
    assert (refused.value.status, refused.value.code) == (400, "unknown_field")
    assert field in refused.value.error


@pytest.mark.fault(143)
def test_a_field_of_a_known_client_is_ignored_as_that_client_expects(api: Api, create: Create):
    response = api.call(
        "POST",
        "/sandboxes",
        json={"template": "code-interpreter", "kernel": "x"},
        headers={"User-Agent": "pandastack-py/0.10.0"},
    )
    assert response.status_code == 201
    Sandbox(api, response.json()).delete()


@pytest.mark.fault(143)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpu", 0),
        ("cpu", 1000),
        ("cpu", 1.5),
        ("memory_mb", 10),
        ("memory_mb", "512"),
        ("disk_mb", -5),
        ("ttl_seconds", -1),
        ("ttl_seconds", 1e30),
        ("metadata", {"a": 1}),
        ("metadata", []),
        ("labels", {"a": None}),
        ("env", "A=B"),
        ("persistent", "yes"),
        ("isolation", "none"),
        ("isolation", "armoured"),
        ("template", 7),
        ("template", ""),
        ("idempotency_key", ""),
    ],
)
def test_a_value_outside_its_range_or_type_is_refused_by_its_name(api: Api, field: str, value: object):
    with pytest.raises(Refused) as refused:
        api.create(**{field: value})
    assert refused.value.status == 400
    assert field in (refused.value.field or "") or field in refused.value.error


@pytest.mark.fault(143)
def test_asked_limits_are_what_the_sandbox_gets(create: Create):
    sandbox = create(cpu=1, memory_mb=512, disk_mb=256)
    assert (sandbox.info.cpu, sandbox.info.memory_mb, sandbox.info.disk_mb) == (1, 512, 256)


BAD_IDS = [
    "..%2f..%2fkeys",
    "..%2F..%2F..%2Fetc%2Fpasswd",
    "%2e%2e",
    "..",
    ".",
    "%00",
    "a%0ab",
    "x" * 300,
    "0" * 36,
    "00000000-0000-4000-8000-00000000000g",
    "'; drop table sandboxes; --",
    "%F0%9F%98%80",
    "\\..\\..",
]


@pytest.mark.fault(145)
@pytest.mark.parametrize("bad", BAD_IDS)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/sandboxes/{}"),
        ("DELETE", "/sandboxes/{}"),
        ("POST", "/sandboxes/{}/exec"),
        ("GET", "/sandboxes/{}/fs?path=/etc/passwd"),
        ("GET", "/templates/{}"),
        ("DELETE", "/me/tokens/{}"),
        ("GET", "/templates/builds/{}"),
    ],
)
def test_an_id_that_is_none_is_refused_and_never_becomes_a_path(stack: Stack, bad: str, method: str, path: str):
    # A client that tidies paths would hide what is tested, so the line is sent as it is.
    connection = http.client.HTTPConnection(stack.url.removeprefix("http://"), timeout=10)
    target = f"/v1{path.format(bad)}".replace(" ", "%20")
    connection.request(method, target, b'{"cmd": "true"}', {"Authorization": f"Bearer {stack.api_key}"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert 400 <= response.status < 500
    assert b"root:" not in body


@pytest.mark.fault(145)
@pytest.mark.parametrize("bad", BAD_IDS)
def test_a_context_id_that_is_none_is_refused(shared: Sandbox, bad: str):
    url = f"{shared.api.url}/v1{shared.path}/repl/sessions/{bad.replace(' ', '%20')}"
    response = httpx.delete(url, headers={"Authorization": f"Bearer {shared.api.api_key}"})
    assert 400 <= response.status_code < 500


@pytest.mark.fault(146)
def test_another_workspaces_ids_are_not_found_in_every_call(stranger: Api, sandbox: Sandbox):
    context = sandbox.context()
    sandbox.write("/tmp/secret", b"mine")
    calls = [
        ("GET", sandbox.path, {}),
        ("DELETE", sandbox.path, {}),
        ("GET", f"{sandbox.path}/lifecycle", {}),
        ("PATCH", f"{sandbox.path}/lifecycle", {"json": {"ttl_seconds": 1}}),
        ("POST", f"{sandbox.path}/wake", {}),
        ("POST", f"{sandbox.path}/exec", {"json": {"cmd": "id"}}),
        ("POST", f"{sandbox.path}/exec/stream", {"json": {"cmd": "id"}}),
        ("GET", f"{sandbox.path}/exec", {}),
        ("GET", f"{sandbox.path}/fs", {"params": {"path": "/tmp/secret"}}),
        ("PUT", f"{sandbox.path}/fs", {"params": {"path": "/tmp/secret"}, "content": b"x"}),
        ("DELETE", f"{sandbox.path}/fs", {"params": {"path": "/tmp/secret"}}),
        ("GET", f"{sandbox.path}/fs/dir", {"params": {"path": "/"}}),
        ("GET", f"{sandbox.path}/fs/stat", {"params": {"path": "/"}}),
        ("POST", f"{sandbox.path}/repl/sessions", {"json": {"language": "python"}}),
        ("GET", f"{sandbox.path}/repl/sessions", {}),
        ("POST", f"{context.path}/run", {"json": {"code": "1"}}),
        ("POST", f"{context.path}/interrupt", {}),
        ("DELETE", context.path, {}),
        ("GET", f"{sandbox.path}/logs", {}),
        ("GET", f"{sandbox.path}/events", {}),
        ("GET", f"{sandbox.path}/metrics", {}),
        ("GET", f"{sandbox.path}/ports", {}),
    ]
    unknown = "/sandboxes/11111111-2222-4333-8444-555555555555"
    assert stranger.sandboxes() == []
    for method, path, more in calls:
        theirs = stranger.call(method, path, **more)
        assert theirs.status_code == 404, (method, path, theirs.text)
        nobodys = stranger.call(method, path.replace(sandbox.path, unknown), **more)
        assert (nobodys.status_code, nobodys.json().get("error")) == (404, theirs.json().get("error")), (method, path)
    assert sandbox.id not in {item.id for item in stranger.sandboxes()}
    assert sandbox.read("/tmp/secret") == b"mine"
    assert context.value("1 + 1") == "2"


@pytest.mark.fault(146)
def test_one_workspaces_context_ids_are_unknown_in_its_other_sandboxes(create: Create):
    one, two = create(), create()
    context = one.context()
    assert two.api.call("POST", f"{two.path}/repl/sessions/{context.id}/run", json={"code": "1"}).status_code == 404


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer atl_" + "0" * 40, "Bearer nonsense", "Basic YTpi", "Bearer " + "x" * 9000],
    ids=["none", "empty", "no-key", "blank-key", "unknown", "no-such-form", "another-scheme", "endless"],
)
def test_without_a_key_there_is_nothing(stack: Stack, header: str | None):
    # httpx refuses to send some of these.
    connection = http.client.HTTPConnection(stack.url.removeprefix("http://"), timeout=10)
    for path in ("/v1/sandboxes", "/v1/me", "/v1/templates"):
        connection.request("GET", path, headers={} if header is None else {"Authorization": header})
        response = connection.getresponse()
        body = json.loads(response.read())
        assert response.status == 401
        assert isinstance(body["error"], str)
    connection.close()


def test_both_forms_of_a_key_are_the_same_key(stack: Stack, api: Api):
    same = Api(stack.url, stack.api_key.replace("atl_", "e2b_"))
    assert same.json("GET", "/me") == api.json("GET", "/me")


def test_a_revoked_key_stops_at_once_and_no_list_shows_a_whole_key(stack: Stack, api: Api, key: dict):
    client = Api(stack.url, key["token"])
    assert client.sandboxes() is not None
    listed = api.ok("GET", "/me/tokens")
    assert key["token"] not in listed.text
    assert key["prefix"] in listed.text
    api.ok("DELETE", f"/me/tokens/{key['prefix']}")
    with pytest.raises(Refused) as refused:
        client.sandboxes()
    assert refused.value.status == 401


def test_a_read_only_key_reads_and_changes_nothing(stack: Stack, atoll: list[str], sandbox: Sandbox):
    made = subprocess.run(
        [*atoll, "key", "create", "reader", "--scope", "read-only", "--quiet"],
        capture_output=True,
        text=True,
        check=True,
    )
    reader = Api(stack.url, made.stdout.strip())
    assert sandbox.id in {item.id for item in reader.sandboxes()}
    for method, path, body in [
        ("POST", "/sandboxes", {"template": "base"}),
        ("DELETE", sandbox.path, None),
        ("POST", f"{sandbox.path}/exec", {"cmd": "true"}),
        ("POST", f"{sandbox.path}/repl/sessions", {"language": "python"}),
        ("PUT", f"{sandbox.path}/fs?path=/tmp/x", {}),
        ("POST", "/me/tokens", {"label": "more"}),
    ]:
        response = reader.call(method, path, json=body)
        assert response.status_code == 403, (method, path)
        assert response.json()["code"] == "forbidden"
    assert sandbox.refresh().status == "running"


def test_keys_and_their_hashes_are_in_no_answer_and_no_log(stack: Stack, api: Api, key: dict):
    if stack.state is None:
        pytest.skip("the state folder is not known")
    digits = key["token"].removeprefix("atl_")
    kept = [*stack.state.glob("atoll.db*"), *stack.state.glob("*.log")]
    assert kept
    for file in kept:
        assert digits.encode() not in file.read_bytes(), file
