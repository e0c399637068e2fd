"""Files: every method of the filesystem, and contents of every kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pandastack import BadRequestError, NotFoundError, Sandbox


@pytest.mark.parametrize(
    "content",
    [b"", b"text\n", bytes(range(256)) * 40, "日本語 é".encode(), "x".encode("utf-16"), b"\0" * 4096],
    ids=["empty", "text", "every-byte", "utf-8", "utf-16", "zeros"],
)
def test_what_is_written_is_read_back_to_the_byte(sandbox: Sandbox, content: bytes):
    written = sandbox.filesystem.write("/work/deep/er/file.bin", content)
    assert written == {"path": "/work/deep/er/file.bin", "bytes": len(content)}
    assert sandbox.filesystem.read("/work/deep/er/file.bin") == content


def test_text_is_written_as_utf_8(sandbox: Sandbox):
    sandbox.filesystem.write("/work/é à.txt", "naïve €")
    assert sandbox.filesystem.read("/work/é à.txt") == "naïve €".encode()
    assert sandbox.exec("cat '/work/é à.txt'").stdout == "naïve €"


def test_a_write_replaces_what_was_there(sandbox: Sandbox):
    sandbox.filesystem.write("/work/twice", "a long first content")
    sandbox.filesystem.write("/work/twice", "short")
    assert sandbox.filesystem.read("/work/twice") == b"short"


def test_thirty_two_mebibytes_go_up_and_down(sandbox: Sandbox, tmp_path: Path):
    content = os.urandom(32 << 20)
    local, back = tmp_path / "up", tmp_path / "down"
    local.write_bytes(content)
    assert sandbox.filesystem.upload(local, "/work/large")["bytes"] == len(content)
    sandbox.filesystem.download("/work/large", back)
    assert back.read_bytes() == content


def test_entries_have_names_kinds_and_sizes(sandbox: Sandbox):
    sandbox.filesystem.write("/work/list/b.txt", b"12345")
    sandbox.filesystem.write("/work/list/a/inner.txt", b"")
    entries = {entry.name: entry for entry in sandbox.filesystem.listdir("/work/list")}
    assert list(entries) == ["a", "b.txt"]
    assert entries["a"].is_dir and not entries["b.txt"].is_dir
    file = entries["b.txt"]
    assert (file.path, file.size, file.mode) == ("/work/list/b.txt", 5, "f")
    assert file.mtime > 1_700_000_000
    assert sandbox.filesystem.listdir("/work/list/a")[0].path == "/work/list/a/inner.txt"
    assert {"bin", "etc"} <= {entry.name for entry in sandbox.filesystem.listdir()}


def test_a_large_directory_is_listed_completely(sandbox: Sandbox):
    sandbox.exec("mkdir -p /tmp/many && cd /tmp/many && seq 1 2500 | xargs touch")
    names = [entry.name for entry in sandbox.filesystem.listdir("/tmp/many")]
    assert len(names) == len(set(names)) == 2500


def test_stat_and_exists_tell_what_is_there(sandbox: Sandbox):
    sandbox.filesystem.write("/work/there", b"123")
    found = sandbox.filesystem.stat("/work/there")
    assert (found.name, found.path, found.size, found.is_dir) == ("there", "/work/there", 3, False)
    assert sandbox.filesystem.stat("/work").is_dir
    assert sandbox.filesystem.exists("/work/there")
    assert not sandbox.filesystem.exists("/work/not-there")
    with pytest.raises(NotFoundError):
        sandbox.filesystem.stat("/work/not-there")


def test_walk_goes_through_the_whole_tree(sandbox: Sandbox):
    for path in ("/tmp/tree/one/x", "/tmp/tree/two/y", "/tmp/tree/z"):
        sandbox.filesystem.write(path, b"")
    sandbox.exec("ln -sfn /tmp/tree /tmp/tree/loop")
    walked = {top: sorted(file.name for file in files) for top, _, files in sandbox.filesystem.walk("/tmp/tree")}
    assert walked == {"/tmp/tree": ["loop", "z"], "/tmp/tree/one": ["x"], "/tmp/tree/two": ["y"]}


def test_a_file_that_is_not_there_is_not_found(sandbox: Sandbox):
    with pytest.raises(NotFoundError):
        sandbox.filesystem.read("/work/nothing/here")
    with pytest.raises(NotFoundError):
        sandbox.filesystem.listdir("/work/nothing/here")


@pytest.mark.parametrize("path", ["relative", "", "./x", "a\0b"])
def test_a_path_that_is_none_is_a_bad_request(sandbox: Sandbox, path: str):
    with pytest.raises(BadRequestError):
        sandbox.filesystem.read(path)
    with pytest.raises(BadRequestError):
        sandbox.filesystem.write(path, b"x")


@pytest.mark.parametrize("path", ["/work", "/dev/zero", "/etc"])
def test_what_is_no_plain_file_is_refused_at_once(sandbox: Sandbox, path: str):
    with pytest.raises(BadRequestError):
        sandbox.filesystem.read(path)


def test_files_of_the_kernel_are_read_though_they_have_no_size(sandbox: Sandbox):
    assert b"processor" in sandbox.filesystem.read("/proc/cpuinfo")
