"""Commands: collected, streamed, one-shot code, logs."""

from __future__ import annotations

import threading
import time

import pytest
from pandastack import BadRequestError, CommandFailed, Sandbox, SandboxTimeout

ODD = "é 日本語 😀 \u2028 \u2029 \u0085 \x0b \x0c \x1c \x1e end"


def test_a_command_gives_output_and_exit_code(sandbox: Sandbox):
    result = sandbox.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert sandbox.commands.run("printf hi").stdout == "hi"
    assert sandbox.exec("true").stdout == ""


def test_check_turns_a_failure_into_an_exception(sandbox: Sandbox):
    with pytest.raises(CommandFailed) as failed:
        sandbox.exec("echo no >&2; exit 4", check=True)
    assert (failed.value.exit_code, failed.value.stderr) == (4, "no\n")


def test_commands_run_as_root_in_its_home(sandbox: Sandbox):
    assert sandbox.exec("id -un; echo $HOME; pwd").stdout.split() == ["root", "/root", "/root"]


def test_a_command_past_its_deadline_is_a_timeout(sandbox: Sandbox):
    started = time.monotonic()
    with pytest.raises(SandboxTimeout):
        sandbox.exec("sleep 30", timeout_seconds=1)
    assert time.monotonic() - started < 5
    with pytest.raises(SandboxTimeout):
        sandbox.commands.run("sleep 30", timeout=1)


@pytest.mark.parametrize("timeout", [0, -1, 10**18])
def test_a_deadline_that_makes_no_sense_is_a_bad_request(sandbox: Sandbox, timeout: int):
    with pytest.raises(BadRequestError, match="timeout_seconds"):
        sandbox.exec("true", timeout_seconds=timeout)


def test_text_of_any_kind_arrives_whole(sandbox: Sandbox):
    command = f"cat <<'END'\n{ODD}\nEND"
    assert sandbox.exec(command).stdout == ODD + "\n"
    chunks: list[str] = []
    assert sandbox.exec_stream(command, on_stdout=chunks.append) == 0
    assert "".join(chunks) == ODD + "\n"


def test_a_stream_calls_back_for_each_stream_and_returns_the_code(sandbox: Sandbox):
    out: list[str] = []
    err: list[str] = []
    code = sandbox.exec_stream("echo a; echo b >&2; exit 5", on_stdout=out.append, on_stderr=err.append)
    assert (code, "".join(out), "".join(err)) == (5, "a\n", "b\n")
    assert sandbox.exec_stream("true") == 0


def test_a_stream_arrives_while_the_command_runs(sandbox: Sandbox):
    arrivals: list[float] = []
    sandbox.exec_stream("echo 1; sleep 1; echo 2", on_stdout=lambda _: arrivals.append(time.monotonic()))
    assert arrivals[-1] - arrivals[0] > 0.7


def test_a_large_stream_is_complete(sandbox: Sandbox):
    chunks: list[str] = []
    assert sandbox.exec_stream("seq 1 200000; exit 3", on_stdout=chunks.append) == 3
    assert "".join(chunks) == "".join(f"{n}\n" for n in range(1, 200_001))


def test_a_stream_past_its_deadline_is_a_timeout_with_what_came_before(sandbox: Sandbox):
    out: list[str] = []
    with pytest.raises(SandboxTimeout):
        sandbox.exec_stream("echo first; sleep 30", on_stdout=out.append, timeout_seconds=1)
    assert "".join(out) == "first\n"


@pytest.mark.slow
def test_a_silent_stream_outlives_the_clients_patience(sandbox: Sandbox):
    assert sandbox.exec_stream("sleep 33; exit 2") == 2


def test_one_shot_code_runs_in_both_languages(sandbox: Sandbox):
    assert sandbox.run_code("print('it''s', \"6*7\", 6*7)").stdout == "its 6*7 42\n"
    assert sandbox.run_code("echo ${BASH_VERSION:+bash}", language="bash").stdout == "bash\n"
    assert sandbox.run_code("import sys; sys.exit(7)").exit_code == 7
    with pytest.raises(ValueError):
        sandbox.run_code("1", language="cobol")


def test_logs_hold_what_was_printed(sandbox: Sandbox):
    sandbox.exec("echo kept-é; echo complaint >&2")
    assert "kept-é" in list(sandbox.logs())
    assert "complaint" in list(sandbox.logs(stream="stderr"))
    assert "complaint" not in list(sandbox.logs(stream="stdout"))


def test_logs_are_followed(sandbox: Sandbox):
    printer = threading.Timer(1, lambda: sandbox.exec("echo followed-line"))
    printer.start()
    for line in sandbox.logs(follow=True):
        assert "{" not in line
        if line == "followed-line":
            break
    printer.join()


def test_quotes_and_specials_reach_the_shell_as_they_are(sandbox: Sandbox):
    assert sandbox.exec("""printf '%s' "a'b\\$c" """).stdout == "a'b$c"
    assert sandbox.exec("").exit_code == 0
