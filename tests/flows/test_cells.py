"""Cells: deadlines, interruption, input, exit and death, and that what follows is right again (faults, section B)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from client import Context, Sandbox, took
from conftest import Create


@pytest.mark.fault(17)
def test_after_a_timeout_the_old_cell_is_over_and_what_was_defined_is_kept(context: Context):
    context.rc("kept = 'from before'")
    late = context.rc("import time; print('first', flush=True); time.sleep(5); print('OLD')", t=1)
    assert late.outcome == "timeout"
    assert late.context_restarted is False
    assert late.stdout == "first\n"
    fresh = context.rc("print('NEW', kept)")
    assert fresh.stdout == "NEW from before\n"
    time.sleep(5)
    assert context.rc("print('AGAIN')").stdout == "AGAIN\n"


@pytest.mark.fault(17)
def test_a_timeout_is_a_504_that_says_timeout_and_is_told_within_the_bound(context: Context):
    started = time.monotonic()
    response = context.sandbox.api.call(
        "POST", f"{context.path}/run", json={"code": "import time; time.sleep(30)", "timeout_ms": 800}
    )
    assert time.monotonic() - started < 3
    assert response.status_code == 504
    assert "timeout" in response.json()["error"]
    assert response.json()["code"] == "timeout"


@pytest.mark.fault(19, 20)
@pytest.mark.parametrize(
    "code",
    [
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')",
        "10 ** 10 ** 9",
        "import threading, time\n[threading.Thread(target=time.sleep, args=(99,)).start() for _ in range(3)]\n"
        "while True:\n  try: time.sleep(99)\n  except KeyboardInterrupt: pass",
    ],
    ids=["swallows", "ignores-the-signal", "regex-in-c", "arithmetic-in-c", "threads"],
)
def test_code_that_resists_an_interrupt_is_ended_all_the_same_and_the_loss_of_state_is_told(
    context: Context, code: str
):
    context.rc("before = 1")
    started = time.monotonic()
    answer = context.rc(code, t=2)
    assert time.monotonic() - started < 9
    assert answer.outcome == "timeout"
    # Whether it had to be killed or could still be interrupted, the answer tells which, and so whether variables are kept.
    assert context.value("'before' in globals()") == str(not answer.context_restarted)


@pytest.mark.fault(22)
@pytest.mark.parametrize(
    ("code", "signal", "exit_code"),
    [
        ("import os; os._exit(7)", None, 7),
        ("import ctypes; ctypes.memmove(0, 0, 1)", 11, None),
        ("import os, signal; os.kill(os.getpid(), 9)", 9, None),
        ("import os; os.abort()", 6, None),
        ("import os; os.close(1); os.close(2); os._exit(0)", None, 0),
        ("import os; os.execv('/bin/false', ['false'])", None, 1),
    ],
    ids=["exits", "segfaults", "kills-itself", "aborts", "closes-and-exits", "becomes-another-program"],
)
def test_a_context_that_dies_is_told_at_once_with_how_and_what_it_had_printed(
    context: Context, code: str, signal: int | None, exit_code: int | None
):
    started = time.monotonic()
    answer = context.rc(f"print('said', flush=True)\n{code}")
    assert time.monotonic() - started < 3
    assert answer.outcome == "context_died"
    assert answer.signal == signal
    assert f"signal {signal}" in answer.error if signal else f"exit code {exit_code}" in answer.error
    assert answer.stdout == "said\n"
    assert answer.context_restarted is True
    assert context.value("1 + 1") == "2"


@pytest.mark.fault(23)
@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("exit()", 0),
        ("quit(5)", 5),
        ("raise SystemExit", 0),
        ("raise SystemExit('a reason')", 1),
    ],
)
def test_an_exit_is_reported_with_its_code_and_the_context_lives(context: Context, code: str, exit_code: int):
    context.rc("x = 1")
    answer = context.rc(code)
    assert answer.exit == exit_code
    assert answer.outcome in ("ok", "error")
    assert context.rc("print(x)").stdout == "1\n"


@pytest.mark.fault(25)
@pytest.mark.isolation
@pytest.mark.alone
def test_sixty_four_busy_processes_do_not_make_the_sandbox_deaf(sandbox: Sandbox, answers_at_once: Callable[[], None]):
    context = sandbox.context()
    context.rc("import multiprocessing as m\n[m.Process(target=lambda: exec('while 1: 0')).start() for _ in range(64)]")
    assert took(lambda: sandbox.list("/")) < 1
    assert took(sandbox.refresh) < 1
    assert took(sandbox.contexts) < 1
    answers_at_once()
    assert took(sandbox.delete) < 5


@pytest.mark.fault(26)
@pytest.mark.isolation
@pytest.mark.alone
@pytest.mark.parametrize("step", [50_000_000, 4_096_000])
def test_a_memory_hog_ends_as_oom_with_its_numbers_and_the_sandbox_runs_on(
    create: Create, step: int, answers_at_once: Callable[[], None]
):
    sandbox = create(memory_mb=512)
    context = sandbox.context()
    answer = context.rc(f"b = []\nwhile True: b.append(bytearray({step}))", t=60)
    assert answer.outcome == "oom"
    assert 0 < answer.peak_mb <= answer.limit_mb * 1.1
    assert "memory" in answer.error
    assert sandbox.refresh().status == "running"
    assert context.value("1 + 1") == "2"
    answers_at_once()


@pytest.mark.fault(26)
@pytest.mark.isolation
@pytest.mark.alone
def test_a_command_that_takes_all_memory_ends_as_oom_and_the_sandbox_runs_on(create: Create):
    sandbox = create(memory_mb=512)
    answer = sandbox.sh("python3 -c 'b = []\nwhile True: b.append(bytearray(20_000_000))'", t=60)
    assert answer.outcome == "oom"
    assert sandbox.sh("echo fine").stdout == "fine\n"


@pytest.mark.fault(28)
def test_a_chatty_child_process_finishes_and_is_capped(context: Context):
    answer = context.rc(
        "import subprocess; subprocess.run('head -c 20M /dev/zero | base64', shell=True).returncode", t=20
    )
    assert answer["results"][-1]["text/plain"] == "0"
    assert answer.truncated is True
    assert answer.stdout_total_bytes > 27_000_000


@pytest.mark.fault(29)
def test_output_of_child_processes_and_of_c_code_comes_in_order(context: Context):
    answer = context.rc(
        "import ctypes, os, subprocess, sys\n"
        "print('one'); os.system('echo two')\n"
        "subprocess.run(['echo', 'three'], stdout=sys.stdout); print('four')\n"
        "sys.stdout.flush(); os.write(1, b'five\\n')\n"
        "libc = ctypes.CDLL(None); libc.puts(b'six'); libc.fflush(None)\n"
        "sys.stdout.fileno(), sys.stderr.fileno()"
    )
    assert answer.stdout.split() == ["one", "two", "three", "four", "five", "six"]
    assert answer["results"][-1]["text/plain"] == "(1, 2)"


@pytest.mark.fault(29)
def test_a_cell_that_closes_its_streams_does_not_break_the_next(context: Context):
    context.rc("import os\nfor fd in (0, 1, 2): os.close(fd)")
    answer = context.rc("40 + 2")
    if answer.outcome != "ok":
        answer = context.rc("40 + 2")
    assert answer["results"][-1]["text/plain"] == "42"


@pytest.mark.fault(31)
def test_async_code_works_at_top_level_and_in_run(context: Context):
    context.rc("import asyncio\nasync def g(): return 5")
    assert context.value("await g()") == "5"
    answer = context.rc("asyncio.run(g())")
    if answer.exit == 0:
        assert answer["results"][-1]["text/plain"] == "5"
    else:
        assert "await" in answer.error
    assert context.value("sum([await g() for _ in range(3)])") == "15"


@pytest.mark.fault(32)
@pytest.mark.full_template
@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("!echo hi", "hi"),
        ("%%bash\necho yo", "yo"),
        ("!printf 'a b'", "a b"),
        ("out = !echo caught\nprint(out[0])", "caught"),
    ],
)
def test_shell_lines_and_cell_magics_work(context: Context, code: str, printed: str):
    answer = context.rc(code)
    assert answer.exit == 0, answer.error
    assert answer.stdout.strip() == printed


@pytest.mark.fault(32)
@pytest.mark.full_template
@pytest.mark.parametrize("line", ["%pip install --quiet tabulate", "!pip install --quiet tabulate"])
def test_an_install_without_a_network_fails_fast_and_says_why(context: Context, line: str):
    started = time.monotonic()
    answer = context.rc(line, t=25)
    assert time.monotonic() - started < 15
    assert answer.outcome != "timeout"
    assert "network" in (answer.stdout + answer.stderr + (answer.error or "")).lower()


@pytest.mark.fault(34)
@pytest.mark.parametrize("folder", ["/tmp/a b", "/tmp/ü'\"$x", "/tmp/new\nline"])
def test_a_working_folder_with_an_odd_name_is_used(shared: Sandbox, folder: str):
    shared.write(f"{folder}/here", b"")
    context = shared.context(cwd=folder)
    assert context.value("__import__('os').getcwd()") == repr(folder)
    assert shared.ex(["ls"], cwd=folder).stdout == "here\n"
    context.close()


@pytest.mark.fault(35)
@pytest.mark.parametrize("how", ["route", "deadline"])
def test_an_interrupted_cell_leaves_no_process_behind(sandbox: Sandbox, how: str):
    context = sandbox.context()
    answers = []
    code = "import subprocess; subprocess.run(['sleep', '543'])"
    runner = threading.Thread(target=lambda: answers.append(context.rc(code, t=2 if how == "deadline" else 30)))
    runner.start()
    time.sleep(1)
    if how == "route":
        sandbox.api.ok("POST", f"{context.path}/interrupt")
    runner.join()
    assert answers[0].outcome == ("interrupted" if how == "route" else "timeout")
    assert "sleep 543" not in sandbox.running()


def test_input_fails_at_once_and_says_that_there_is_nobody_to_ask(context: Context):
    started = time.monotonic()
    answer = context.rc("input('name? ')")
    assert time.monotonic() - started < 3
    assert answer.exit == 1
    assert "input" in answer.error


def test_an_exception_is_in_error_and_on_stderr_with_the_same_traceback(context: Context):
    answer = context.rc("def f(): return {}['missing']\nprint('so far')\nf()")
    assert answer.stdout == "so far\n"
    assert "KeyError" in answer.error and "in f" in answer.error
    assert answer.error.strip() in answer.stderr
    assert "\x1b" not in answer.error
    assert answer.exit == 1


def test_a_syntax_error_is_told_with_its_line(context: Context):
    answer = context.rc("x = 1\nif x\n  print(x)")
    assert answer.exit == 1
    assert "SyntaxError" in answer.error and "line 2" in answer.error
