"""How cells end, and what surrounds them: exceptions, exit, interrupts, input, children, environment, magics."""

import os

import pytest


def test_an_exception_is_described_without_our_frames_or_colours(context):
    cell = context.run("def f():\n    return 1/0\nprint('before'); f()")
    assert cell.stdout == "before\n" and cell.stderr == ""
    assert (cell.done["status"], cell.done["exit_code"]) == ("error", 1)
    error = cell.done["error"]
    assert (error["name"], error["value"]) == ("ZeroDivisionError", "division by zero")
    lines = error["traceback"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == '  File "<cell 1>", line 3, in <module>'
    assert "return 1/0" in error["traceback"] and "\x1b" not in error["traceback"]
    assert "atoll_context" not in error["traceback"] and "IPython" not in error["traceback"]


def test_a_syntax_error_shows_its_line(context):
    error = context.run("x = 1\nx = = 2").done["error"]
    assert error["name"] == "SyntaxError"
    assert error["traceback"].startswith('  File "<cell 1>", line 2\n')


@pytest.mark.parametrize(
    "code", ["def f(:", "return 1", "if 1:\nx", "x = '\0'", "%%nosuch\n1", "%nosuch", "?", "'\\ud800' +"]
)
def test_code_that_cannot_run_is_an_error_and_not_a_crash(context, code):
    context.run(code)
    assert context.run("1").bundles == [{"text/plain": "1"}]


def test_causes_and_groups_are_told(context):
    traceback = context.run("try:\n  1/0\nexcept Exception as e:\n  raise KeyError('k') from e").done["error"][
        "traceback"
    ]
    assert "ZeroDivisionError" in traceback and "direct cause" in traceback
    traceback = context.run("raise ExceptionGroup('g', [ValueError('a'), TypeError('b')])").done["error"]["traceback"]
    assert "ValueError: a" in traceback and "TypeError: b" in traceback


def test_a_deep_traceback_is_cut(context):
    code = "def a(n): return b(n)\ndef b(n): return a(n)\na(1)"
    error = context.run(code).done["error"]
    assert error["name"] == "RecursionError"
    assert "frames left out" in error["traceback"] and len(error["traceback"]) < 8000


def test_an_exception_that_cannot_be_printed_is_still_told(context):
    error = context.run("class E(Exception):\n  def __str__(s): raise RuntimeError('no')\nraise E()").done["error"]
    assert error["name"] == "E"


def test_results_before_an_exception_are_kept(context):
    cell = context.run("import matplotlib.pyplot as plt; display(1); plt.plot([1]); 1/0")
    assert [set(bundle) for bundle in cell.bundles] == [{"text/plain"}, {"image/png"}]
    assert cell.done["status"] == "error"


@pytest.mark.parametrize(
    "code, exit_code, stderr",
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("exit()", 0, ""),
        ("exit(5)", 5, ""),
        ("quit", 0, None),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit('why')", 1, "why\n"),
        ("exit(True)", 1, ""),
        ("exit(-1)", 255, ""),
        ("exit(256)", 255, ""),
        ("exit(2**70)", 255, ""),
        ("exit(-(2**70) + 3)", 255, ""),
        ("exit(type('Silent', (), {'__str__': lambda self: 1 / 0})())", 1, ""),
    ],
)
def test_exit_ends_the_cell_and_keeps_the_state(context, code, exit_code, stderr):
    context.run("x = 1")
    cell = context.run(f"print('so far')\n{code}")
    assert cell.stdout == "so far\n"
    if stderr is not None:
        assert (cell.done["status"], cell.done["exit_code"], cell.stderr) == ("exit", exit_code, stderr)
        assert "error" not in cell.done
    assert context.run("x").bundles == [{"text/plain": "1"}]


def test_an_interrupt_ends_the_cell_and_keeps_the_state(context):
    cell = context.run("x = 7; print('on', flush=True)\nwhile True: pass", interrupt_when=b"on")
    assert cell.done["status"] == "interrupted"
    assert cell.done["error"]["name"] == "KeyboardInterrupt"
    assert context.run("x").bundles == [{"text/plain": "7"}]


def test_an_interrupt_while_idle_does_nothing(context):
    context.run("x = 1")
    os.kill(context.pid, 2)
    assert context.run("x").done["status"] == "ok"


def test_an_interrupted_await_does_not_wake_in_the_next_cell(context):
    code = "import asyncio\nprint('on', flush=True)\nawait asyncio.sleep(60)\nprint('LATE')"
    assert context.run(code, interrupt_when=b"on").done["status"] == "interrupted"
    assert context.run("await asyncio.sleep(0.01); print('NEW')").stdout == "NEW\n"


def test_a_cell_that_takes_sigint_loses_it_at_its_end(context):
    context.run("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert context.run("print('on', flush=True)\nwhile 1: pass", interrupt_when=b"on").done["status"] == "interrupted"


def test_await_and_asyncio_run_both_work(context):
    code = "import asyncio\nasync def g(): return 5\n"
    assert context.run(code + "await g()").bundles == [{"text/plain": "5"}]
    assert context.run("asyncio.run(g())").bundles == [{"text/plain": "5"}]
    assert context.run("await g()").bundles == [{"text/plain": "5"}]


def test_a_task_goes_on_between_cells(context, tmp_path):
    code = (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.05)\n    open('mark', 'w').close()\n"
        "task = asyncio.create_task(f())\nawait asyncio.sleep(0)"
    )
    context.run(code)
    assert context.run("import time; time.sleep(0)").done["status"] == "ok"
    assert context.run("await task; import os; os.path.exists('mark')").bundles == [{"text/plain": "True"}]


@pytest.mark.parametrize(
    "code", ["input()", "input('name? ')", "import getpass; getpass.getpass()", "breakpoint()", "%debug"]
)
def test_a_question_fails_at_once(context, code):
    cell = context.run(code)
    assert cell.done["status"] == "error" and "not available here: nobody can answer" in cell.done["error"]["value"]


def test_standard_input_is_empty(context):
    assert context.run("import sys; sys.stdin.read()").bundles == [{"text/plain": "''"}]


def test_pdb_does_not_hang(context):
    assert context.run("import pdb; pdb.set_trace()\n1").done["status"] in ("ok", "error")
    assert context.run("2").bundles == [{"text/plain": "2"}]


def test_output_of_children_is_in_order(context):
    code = (
        "import os, subprocess, sys\nprint('1')\nos.system('echo 2')\nprint('3')\n"
        "subprocess.run(['echo', '4'], stdout=sys.stdout)\nprint('5')\nos.write(1, b'6\\n')\n!echo 7\nprint('8', end='')"
    )
    assert context.run(code).stdout == "1\n2\n3\n4\n5\n6\n7\n8"


def test_bytes_arrive_as_they_were_written(context):
    code = (
        "import sys, time\nfor b in '€'.encode(): sys.stdout.buffer.write(bytes([b])); sys.stdout.flush()\nprint('\\0')"
    )
    assert context.run(code).out == "€\0\n".encode()
    assert context.run("import os; os.write(1, b'\\xff\\xfe')").out == b"\xff\xfe"


def test_shell_commands_work(context):
    cell = context.run("name = 'you'\n!echo hi {name}; exit 4\nprint(_exit_code)")
    assert cell.stdout == "hi you\n4\n"
    assert context.run("lines = !echo a; echo b\nlist(lines)").bundles == [{"text/plain": "['a', 'b']"}]
    assert context.run("!cat").done["status"] == "ok"


def test_bash_cells_work(context):
    cell = context.run("%%bash\necho yo\ncd /; pwd")
    assert cell.stdout == "yo\n/\n"
    failed = context.run("%%bash\necho out; exit 3")
    assert failed.stdout == "out\n" and failed.done["error"]["name"] == "CalledProcessError"


def test_an_interrupt_reaches_a_child(context):
    cell = context.run("!echo on; sleep 100", interrupt_when=b"on")
    assert cell.done["status"] == "interrupted"


def test_pip_runs(context):
    assert context.run("%pip --version").stdout.startswith("pip ")


def test_without_a_network_pip_says_so_at_once(context):
    offline = "import sys; sys.modules['atoll_context.network'].available = lambda: False\n"
    cell = context.run(offline + "%pip install six-is-not-here")
    assert "this sandbox has no network" in cell.stderr
    assert "already satisfied" in context.run("!{sys.executable} -m pip install pandas").stdout


def test_the_environment_of_a_run_ends_with_it(context):
    context.run("import os; os.environ['KEPT'] = 'old'")
    cell = context.run("print(os.environ['K'], os.environ['KEPT'])", env={"K": "$(touch pwn)'\"; %s", "KEPT": "new"})
    assert cell.stdout == "$(touch pwn)'\"; %s new\n"
    assert context.run("'K' in os.environ, os.environ['KEPT']").bundles == [{"text/plain": "(False, 'old')"}]


def test_the_time_zone_of_a_run_counts(context):
    cell = context.run("import time; print(time.strftime('%z'))", env={"TZ": "Asia/Tokyo"})
    assert cell.stdout == "+0900\n"
    assert context.run("print(time.strftime('%z'))").stdout == "+0000\n"


def test_a_forked_child_is_no_second_context(context):
    cell = context.run(
        "import os\npid = os.fork()\nif pid == 0: print('child')\nelse: os.waitpid(pid, 0); print('parent')"
    )
    assert cell.stdout == "child\nparent\n"
    assert cell.done["status"] == "ok"


def test_multiprocessing_works(context):
    code = "import multiprocessing as m\ndef f(x): return x * x\nwith m.Pool(2) as p: print(p.map(f, [1, 2, 3]))"
    assert context.run(code).stdout == "[1, 4, 9]\n"


def test_threads_may_print_after_their_cell(context):
    context.run("import threading, time\nthreading.Thread(target=lambda: (time.sleep(.05), print('late'))).start()")
    assert "late" in context.run("time.sleep(.3)").stdout


def test_blas_uses_its_threads_after_the_fork(context):
    code = (
        "import numpy as np\na = np.random.default_rng(1).random((400, 400))\n"
        "assert np.allclose(a @ np.linalg.inv(a), np.eye(400), atol=1e-6)\nlen(__import__('os').listdir('/proc/self/task'))"
    )
    (bundle,) = context.run(code).bundles
    assert int(bundle["text/plain"]) >= min(2, os.cpu_count())


def test_import_finds_modules_of_the_working_directory(context, tmp_path):
    (tmp_path / "here.py").write_text("value = 5")
    assert context.run("import here; here.value").bundles == [{"text/plain": "5"}]
    assert context.run("'atoll_context' in dir()").bundles == [{"text/plain": "False"}]


def test_magics_of_ipython_work(context):
    assert "Wall time" in context.run("%%time\nx = 1").stdout
    assert context.run("%%capture out\nprint('hidden')").stdout == ""
    assert context.run("out.stdout").bundles == [{"text/plain": "'hidden\\n'"}]
    assert "usage" not in context.run("%timeit -n1 -r1 1").stderr
    assert "Signature" in context.run("len?").stdout


def test_memory_of_many_cells_is_bounded(context):
    context.run("import matplotlib.pyplot as plt, resource")
    rss = "int(open('/proc/self/statm').read().split()[1]) * 4096"
    for _ in range(10):
        context.run("plt.plot(range(9)); plt.show()")
    before = int(context.run(rss).bundles[0]["text/plain"])
    for _ in range(60):
        context.run("plt.plot(range(9)); plt.show()")
    assert int(context.run(rss).bundles[0]["text/plain"]) - before < 20_000_000
