"""Files: inside the sandbox's root only, exact to the byte, whole or not at all (faults, section G)."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from client import Refused, Sandbox, took
from conftest import Create, Watch


@pytest.mark.fault(85)
@pytest.mark.isolation
@pytest.mark.parametrize(
    "path",
    ["/tmp/x", "/tmp/r/etc/shadow", "/tmp/r/proc/1/root/etc/shadow", "/proc/1/root/etc/shadow", "/../../etc/shadow"],
)
def test_links_and_dots_lead_to_the_sandboxs_own_root_only(sandbox: Sandbox, path: str):
    sandbox.sh("ln -s /etc/shadow /tmp/x; ln -s / /tmp/r; echo theirs > /etc/shadow")
    assert sandbox.read(path) == b"theirs\n"
    sandbox.write(path, b"changed\n")
    with open("/etc/shadow", "rb") as mine:
        assert b"changed" not in mine.read()


@pytest.mark.fault(85)
@pytest.mark.parametrize("path", ["relative", "", "./x", "../x", "~/x"])
def test_a_path_that_is_not_absolute_is_refused(shared: Sandbox, path: str):
    for method, route in [("GET", "fs"), ("PUT", "fs"), ("DELETE", "fs"), ("GET", "fs/dir"), ("GET", "fs/stat")]:
        response = shared.api.call(method, f"{shared.path}/{route}", params={"path": path})
        assert response.status_code == 400, (method, route)
        assert "absolute" in response.json()["error"]


@pytest.mark.fault(85)
@pytest.mark.parametrize("path", ["/tmp/%00", "/tmp/a%00b", "/tmp/%ff%fe"])
def test_a_path_with_nul_or_broken_text_is_refused(shared: Sandbox, path: str):
    assert shared.api.call("GET", f"{shared.path}/fs?path={path}").status_code == 400
    assert shared.api.call("PUT", f"{shared.path}/fs?path={path}", content=b"x").status_code == 400


@pytest.mark.fault(85)
def test_the_root_itself_cannot_be_removed(sandbox: Sandbox):
    for path in ("/", "//", "/..", "/tmp/../.."):
        response = sandbox.api.call("DELETE", f"{sandbox.path}/fs", params={"path": path})
        assert response.status_code in (400, 403, 409), path
    assert sandbox.sh("echo fine").stdout == "fine\n"


@pytest.mark.fault(86)
def test_two_hundred_files_written_at_once_are_there_and_exact(sandbox: Sandbox):
    contents = {f"/w/a/b/c/{n}": os.urandom(64 * 1024) for n in range(200)}

    def write_and_read(path: str) -> bool:
        assert sandbox.write(path, contents[path]) == {"path": path, "bytes": 65536}
        return sandbox.read(path) == contents[path]

    with ThreadPoolExecutor(32) as callers:
        assert all(callers.map(write_and_read, contents))
    assert len(sandbox.list("/w/a/b/c")) == 200


@pytest.mark.fault(86)
def test_writers_of_one_file_leave_one_whole_version(sandbox: Sandbox):
    versions = [bytes([letter]) * 300_000 for letter in b"abcdefgh"]
    with ThreadPoolExecutor(8) as callers:
        list(callers.map(lambda version: sandbox.write("/w/one", version), versions * 3))
    assert sandbox.read("/w/one") in versions
    assert [entry["name"] for entry in sandbox.list("/w")] == ["one"]


@pytest.mark.fault(86)
def test_a_write_that_breaks_off_leaves_the_old_file(sandbox: Sandbox):
    sandbox.write("/w/kept", b"old")

    def broken():
        yield b"new" * 100_000
        raise ConnectionError("the client dies")

    with pytest.raises(ConnectionError):
        sandbox.api.http.put(f"{sandbox.path}/fs", params={"path": "/w/kept"}, content=broken())
    assert sandbox.read("/w/kept") == b"old"
    deadline = time.monotonic() + 5
    while len(sandbox.list("/w")) != 1:
        assert time.monotonic() < deadline, sandbox.list("/w")


@pytest.mark.fault(88)
def test_an_empty_file_is_empty_and_not_absent(shared: Sandbox):
    assert shared.write("/tmp/e", b"")["bytes"] == 0
    assert shared.read("/tmp/e") == b""
    assert shared.stat("/tmp/e")["size"] == 0


@pytest.mark.fault(89)
@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)),
        "ü€😀".encode("utf-16"),
        b"PK\x03\x04\xff\xfe",
        b"\x89PNG\r\n\x1a\n\0",
        b"\xef\xbb\xbfbom",
        b"\r\n\r\n",
        b" ",
    ],
)
def test_bytes_come_back_as_they_went(shared: Sandbox, data: bytes):
    shared.write("/tmp/bytes", data)
    assert shared.read("/tmp/bytes") == data
    response = shared.api.ok("GET", f"{shared.path}/fs", params={"path": "/tmp/bytes"})
    assert response.headers["content-type"] == "application/octet-stream"


@pytest.mark.fault(91)
@pytest.mark.alone
@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_huge_folder_lists_complete_without_doubles_in_bounded_memory(
    sandbox: Sandbox, count: int, memory_stays_flat: Watch
):
    sandbox.sh(f"mkdir /d; cd /d; seq 1 {count} | xargs touch", t=120)
    names: list[str] = []
    after: dict[str, str] = {}
    with memory_stays_flat():
        while True:
            page = sandbox.api.json("GET", f"{sandbox.path}/fs/dir", params={"path": "/d", "limit": 1000, **after})
            names += [entry["name"] for entry in page["entries"]]
            if not page.next:
                break
            after = {"after": page.next}
    assert len(names) == count and len(set(names)) == count


@pytest.mark.fault(92)
@pytest.mark.parametrize("path", ["/tmp/fifo", "/dev/zero", "/dev/null", "/proc/kmsg", "/tmp", "/tmp/socket"])
def test_reading_what_is_no_plain_file_is_refused_at_once(shared: Sandbox, path: str):
    shared.sh("test -p /tmp/fifo || mkfifo /tmp/fifo")
    shared.sh("python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/tmp/socket')\"")
    started = time.monotonic()
    with pytest.raises(Refused) as refused:
        shared.read(path)
    assert time.monotonic() - started < 5
    assert refused.value.status in (400, 403, 404, 409)


@pytest.mark.fault(92)
def test_a_file_of_the_kernel_that_claims_no_size_is_read(shared: Sandbox):
    assert b"processor" in shared.read("/proc/cpuinfo")


@pytest.mark.fault(92)
@pytest.mark.parametrize("path", ["/tmp/fifo-to-write", "/tmp", "/proc/version"])
def test_writing_to_what_is_no_plain_file_does_not_hang(shared: Sandbox, path: str):
    shared.sh("test -p /tmp/fifo-to-write || mkfifo /tmp/fifo-to-write")
    started = time.monotonic()
    response = shared.api.call("PUT", f"{shared.path}/fs", params={"path": path}, content=b"x")
    assert time.monotonic() - started < 5
    assert 400 <= response.status_code < 500


@pytest.mark.fault(98)
@pytest.mark.alone
def test_a_sparse_file_of_a_terabyte_costs_only_what_it_holds(sandbox: Sandbox, memory_stays_flat: Watch):
    sandbox.sh("truncate -s 1T /w-sparse")
    assert sandbox.stat("/w-sparse")["size"] == 1 << 40
    with memory_stays_flat():
        assert sandbox.read("/w-sparse", offset=5 << 30, length=4096) == b"\0" * 4096
    assert took(lambda: sandbox.remove("/w-sparse")) < 2


@pytest.mark.fault(97)
def test_what_a_cell_wrote_without_a_flush_is_there_for_the_next_call(sandbox: Sandbox):
    context = sandbox.context()
    context.rc("open('/tmp/now', 'w').write('there'); f = open('/tmp/later', 'w'); f.write('x'); f.flush()")
    assert sandbox.read("/tmp/now") == b"there"
    assert sandbox.sh("cat /tmp/later").stdout == "x"


@pytest.mark.parametrize("size", [33_554_432, 64 << 20])
@pytest.mark.alone
def test_a_large_file_goes_up_and_down_exact_in_bounded_memory(sandbox: Sandbox, size: int, memory_stays_flat: Watch):
    data = os.urandom(1 << 20) * (size >> 20)
    before = sandbox.agent_memory()
    with memory_stays_flat():
        assert sandbox.write("/work/large", data)["bytes"] == size
        assert hashlib.sha256(sandbox.read("/work/large")).digest() == hashlib.sha256(data).digest()
    assert sandbox.agent_memory() - before < 16 << 20


def test_a_missing_file_is_a_404_and_a_removed_one_too(shared: Sandbox):
    shared.write("/tmp/once/more", b"x")
    shared.remove("/tmp/once")
    for method, route in [("GET", "fs"), ("GET", "fs/stat"), ("GET", "fs/dir")]:
        response = shared.api.call(method, f"{shared.path}/{route}", params={"path": "/tmp/once/more"})
        assert response.status_code == 404
        assert response.json()["code"] == "not_found"


def test_a_folder_lists_kinds_sizes_and_times(shared: Sandbox):
    shared.sh("mkdir -p /tmp/kinds/folder; printf abc > /tmp/kinds/file; ln -sf file /tmp/kinds/link")
    entries = {entry["name"]: entry for entry in shared.list("/tmp/kinds")}
    assert {name: entry["mode"][0] for name, entry in entries.items()} == {"folder": "d", "file": "f", "link": "l"}
    assert entries["file"]["size"] == 3 and entries["file"]["is_dir"] is False
    assert entries["folder"]["is_dir"] is True
    assert abs(entries["file"]["mtime"] - time.time()) < 120


@pytest.mark.isolation
@pytest.mark.alone
def test_a_full_disk_is_a_typed_refusal_and_ends_when_there_is_room(create: Create, memory_stays_flat: Watch):
    sandbox = create(disk_mb=128)
    with memory_stays_flat():
        filled = sandbox.sh("head -c 400M /dev/urandom > /work/full; echo $?", t=60)
    assert filled.exit_code == 0 and filled.stdout.strip() != "0"
    with pytest.raises(Refused) as full:
        sandbox.write("/work/more", b"x" * (8 << 20))
    assert full.value.status == 507
    assert full.value.code == "disk_full"
    assert sandbox.context().value("1 + 1") == "2"
    sandbox.remove("/work/full")
    assert sandbox.write("/work/more", b"x" * (8 << 20))["bytes"] == 8 << 20


def test_a_slow_writer_holds_nobody_up(sandbox: Sandbox):
    gate = threading.Event()

    def slowly():
        yield b"first"
        gate.wait(10)
        yield b"second"

    with ThreadPoolExecutor(1) as caller:
        writing = caller.submit(
            sandbox.api.http.put, f"{sandbox.path}/fs", params={"path": "/tmp/slow"}, content=slowly()
        )
        assert took(lambda: sandbox.sh("true")) < 1
        assert sandbox.api.call("GET", f"{sandbox.path}/fs/stat", params={"path": "/tmp/slow"}).status_code == 404
        gate.set()
        assert json.loads(writing.result().text)["bytes"] == 11
    assert sandbox.read("/tmp/slow") == b"firstsecond"
