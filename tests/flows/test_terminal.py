"""Terminals: order, last words, interrupt and size (faults, sections B and F)."""

from __future__ import annotations

import time

import pytest
from client import Sandbox
from pty_client import Terminal


@pytest.mark.fault(35)
def test_control_c_ends_what_runs_in_the_terminal(sandbox: Sandbox):
    terminal = Terminal(sandbox)
    terminal.send(b"sleep 543 || echo interrupted\n")
    time.sleep(1)
    terminal.send(b"\x03")
    terminal.send(b"echo after-$((40+2))\n")
    terminal.until(b"after-42")
    assert "sleep 543" not in sandbox.running()
    terminal.close()


@pytest.mark.fault(80)
def test_five_thousand_keystrokes_arrive_in_order(sandbox: Sandbox):
    terminal = Terminal(sandbox)
    # In two halves: the terminal shows the command itself, too.
    terminal.send(b"stty -echo; echo rea''dy; cat > /tmp/keys; echo writ''ten\n")
    terminal.until(b"ready\r\n", patience=10)
    keys = ("0123456789" * 5 + "\n") * 100
    for key in keys:
        terminal.send(key.encode())
    terminal.send(b"\x04")
    terminal.until(b"written\r\n", patience=30)
    assert sandbox.read("/tmp/keys").decode() == keys
    terminal.close()


@pytest.mark.fault(82)
def test_the_last_line_comes_before_the_exit_code(sandbox: Sandbox):
    terminal = Terminal(sandbox)
    terminal.send(b"stty -echo; seq 1 50000; exit 5\n")
    assert terminal.end() == 5
    assert terminal.error is None
    assert b"\r\n50000\r\n" in terminal.output
    terminal.close()


@pytest.mark.fault(83)
@pytest.mark.parametrize(("rows", "cols"), [(0, 0), (65535, 65535), (-1, 80), ("x", 80)])
def test_a_size_that_no_terminal_has_is_refused(sandbox: Sandbox, rows: object, cols: object):
    response = sandbox.api.call(
        "GET",
        f"{sandbox.path}/exec/pty",
        params={"rows": rows, "cols": cols},
        headers={
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        },
    )
    assert response.status_code == 400


@pytest.mark.fault(83)
def test_a_resize_is_seen_inside_and_a_wrong_one_harms_nothing(sandbox: Sandbox):
    terminal = Terminal(sandbox)
    terminal.tell(resize={"rows": 41, "cols": 123})
    terminal.send(b"stty size\n")
    terminal.until(b"41 123")
    terminal.tell(resize={"rows": 0, "cols": 0})
    terminal.send(b"echo still-$((40+2))\n")
    terminal.until(b"still-42")
    terminal.send(b"exit\n")
    terminal.end()
    terminal.close()


def test_a_client_that_leaves_ends_its_shell(sandbox: Sandbox):
    terminal = Terminal(sandbox)
    terminal.send(b"sleep 765\n")
    time.sleep(1)
    terminal.close()
    deadline = time.monotonic() + 10
    while "sleep 765" in sandbox.running():
        assert time.monotonic() < deadline
        time.sleep(0.2)
