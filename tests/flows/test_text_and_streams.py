"""What a program writes is what a caller reads: characters, bytes, amounts, order and end (faults, section A)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

import pytest
from client import Context, Refused, Sandbox, decoded
from conftest import Create, Watch

# Texts whose characters have two, three and four bytes, joined marks and characters of two code points.
TEXTS = ["日本語", "€uro ß", "😀👩‍👩‍👧", "e\u0301\u0323", "\u2028\u0085end"]


@pytest.mark.fault(1)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("before", [8190, 8191, 65533, 65535])
def test_a_character_that_crosses_a_buffers_edge_arrives_whole(shared: Sandbox, text: str, before: int):
    shared.write("/tmp/edge.txt", b"a" * before + text.encode())
    streamed = shared.stream("cat /tmp/edge.txt")
    collected = shared.sh("cat /tmp/edge.txt")
    assert streamed.stdout == collected.stdout == "a" * before + text
    assert "\ufffd" not in streamed.stdout


@pytest.mark.fault(1)
@pytest.mark.parametrize("text", TEXTS)
def test_a_character_written_byte_by_byte_arrives_whole(shared: Sandbox, context: Context, text: str):
    program = (
        "import sys, time\n"
        f"for byte in {text!r}.encode():\n"
        "    sys.stdout.buffer.write(bytes([byte])); sys.stdout.flush(); time.sleep(0.05)\n"
    )
    assert context.rc(program).stdout == text
    shared.write("/tmp/bytewise.py", program.encode())
    assert shared.stream("python3 /tmp/bytewise.py").stdout == text


@pytest.mark.fault(2)
@pytest.mark.parametrize("raw", [b"\xff\xfe\x00ok", bytes(range(256)), b"half \xe6\x97", b"\xed\xa0\x80"])
def test_bytes_that_are_no_text_arrive_marked_and_whole_beside(shared: Sandbox, raw: bytes):
    shared.write("/tmp/raw.bin", raw)
    answer = shared.sh("cat /tmp/raw.bin; cat /tmp/raw.bin >&2")
    assert answer.exit_code == 0
    assert "\ufffd" in answer.stdout
    assert decoded(answer.stdout_base64) == raw
    assert decoded(answer.stderr_base64) == raw


@pytest.mark.fault(2)
@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError(b'\\xff'.decode('latin1') + '\\ud800')",
        "'\\ud800'",
        "import sys; sys.stdout.buffer.write(b'\\xff'); None",
        "class Odd(Exception):\n    __str__ = lambda self: '\\udfff'\nraise Odd",
    ],
)
def test_a_lone_surrogate_or_broken_byte_in_a_cell_does_not_lose_the_answer(context: Context, code: str):
    answer = context.rc(code)
    assert answer.outcome in ("ok", "error")
    assert answer.exit == (1 if "raise" in code else 0)
    assert context.value("1 + 1") == "2"


@pytest.mark.fault(4, 5)
@pytest.mark.parametrize(
    ("command", "text"),
    [
        (r"printf 'a\n\n\nb'", "a\n\n\nb"),
        (r"printf '\n\n'", "\n\n"),
        (r"printf 'no end'", "no end"),
        (r"printf 'a\0b'", "a\0b"),
        (r"printf '\0\0\0'", "\0\0\0"),
        (r"printf 'a\r\nb\rc\n'", "a\r\nb\rc\n"),
        (r"printf 'data: x\n\nevent: exit\n'", "data: x\n\nevent: exit\n"),
    ],
)
def test_blank_lines_missing_ends_nul_and_carriage_returns_survive(shared: Sandbox, command: str, text: str):
    assert shared.sh(command).stdout == text
    assert shared.stream(command).stdout == text
    assert shared.sh(f"({command}) >&2").stderr == text


@pytest.mark.fault(5)
def test_the_environment_can_be_dumped_with_nul_between(shared: Sandbox):
    dumped = shared.sh("env -0", env={"ODD": "line\nbreak"}).stdout.split("\0")
    assert "ODD=line\nbreak" in dumped


@pytest.mark.fault(7)
@pytest.mark.alone
@pytest.mark.parametrize("code", ["while True: print('x' * 1000)", "import os\nwhile True: os.write(2, b'y' * 65536)"])
def test_a_cell_that_prints_without_end_is_cut_and_harms_nobody(
    sandbox: Sandbox, code: str, memory_stays_flat: Watch, answers_at_once: Callable[[], None]
):
    loud, quiet = sandbox.context(), sandbox.context()
    with memory_stays_flat():
        answers: list[object] = []
        runner = threading.Thread(target=lambda: answers.append(loud.rc(code, t=5)))
        runner.start()
        time.sleep(2)
        answers_at_once()
        assert quiet.value("6 * 7") == "42"
        runner.join()
    (answer,) = answers
    assert answer.outcome == "timeout"
    stream = "stdout" if "print" in code else "stderr"
    assert answer.truncated is True
    assert answer[f"{stream}_total_bytes"] > 1 << 20
    assert len(answer[stream].encode()) < 2 << 20
    assert loud.value("1 + 1") == "2"


@pytest.mark.fault(7)
@pytest.mark.alone
@pytest.mark.parametrize("command", ["yes", "cat /dev/zero", "yes error >&2"])
def test_a_command_that_prints_without_end_is_cut_at_its_deadline(
    sandbox: Sandbox, command: str, memory_stays_flat: Watch
):
    with memory_stays_flat(), pytest.raises(Refused) as late:
        sandbox.sh(command, t=4)
    assert late.value.status == 504
    assert "timeout" in late.value.error
    assert late.value.body["result"]["truncated"] is True
    assert sandbox.sh("echo fine").stdout == "fine\n"


@pytest.mark.fault(8)
@pytest.mark.parametrize("how", ["cell", "command"])
def test_cut_output_says_how_much_there_was_and_where_all_of_it_lies(shared: Sandbox, context: Context, how: str):
    program = "print('begin'); print('x' * 3_000_000); print('the end')"
    answer = context.rc(program) if how == "cell" else shared.ex(["python3", "-c", program])
    assert answer.truncated is True
    assert answer.stdout_total_bytes == len("begin\n") + 3_000_001 + len("the end\n")
    assert answer.stdout.startswith("begin\nxxx")
    assert answer.stdout.endswith("xxx\nthe end\n")
    whole = shared.read(answer.stdout_spill_path)
    assert whole == b"begin\n" + b"x" * 3_000_000 + b"\nthe end\n"
    middle = shared.read(answer.stdout_spill_path, offset=1_000_000, length=10)
    assert middle == b"x" * 10


@pytest.mark.fault(8)
@pytest.mark.parametrize("code", ["pass", "", "# only a remark", "x = 1", "None"])
def test_a_cell_that_prints_nothing_says_that_it_ran(context: Context, code: str):
    answer = context.rc(code)
    assert answer.outcome == "ok"
    assert (answer.stdout, answer.stderr, answer["results"], answer.exit) == ("", "", [], 0)
    assert (answer.stdout_total_bytes, answer.truncated) == (0, False)


@pytest.mark.fault(10)
@pytest.mark.parametrize("size", [32 * 1024, 40 * 1024, 64 * 1024 + 1, 1 << 20, 20 << 20])
def test_a_burst_of_any_size_streams_whole_and_the_sandbox_lives(shared: Sandbox, size: int):
    shared.sh(f"head -c {size} /dev/zero | tr '\\0' b > /tmp/burst.txt")
    seen = shared.stream("cat /tmp/burst.txt; echo done >&2")
    assert (len(seen.stdout), seen.stderr, seen.exit_code) == (size, "done\n", 0)
    assert set(seen.stdout) == {"b"}


@pytest.mark.fault(11)
@pytest.mark.full_template
@pytest.mark.parametrize("megabytes", [1, 8, 20])
def test_a_huge_result_is_delivered_or_cut_with_a_mark_and_never_lost(context: Context, megabytes: int):
    answer = context.rc(f"from IPython.display import HTML\nHTML('x' * {megabytes}_000_000)", t=20)
    assert answer.outcome == "ok"
    (bundle,) = answer["results"]
    size = megabytes * 1_000_000
    if len(bundle.get("text/html", "")) != size:
        told = re.search(rf"text/html of {size} characters is in (/\S+\.html)", bundle["text/plain"])
        assert context.sandbox.stat(told.group(1))["size"] == size
    assert context.value("1 + 1") == "2"


@pytest.mark.fault(13)
def test_the_exit_code_never_comes_before_the_last_line(shared: Sandbox):
    for _ in range(30):
        seen = shared.stream("seq 1 200000; exit 3")
        assert seen.exit_code == 3
        assert seen.stdout.count("\n") == 200000 and seen.stdout.endswith("\n200000\n")


@pytest.mark.fault(13)
@pytest.mark.slow
def test_the_exit_code_never_comes_before_the_last_line_a_hundred_times(shared: Sandbox):
    for _ in range(100):
        answer = shared.sh("seq 1 100000; seq 1 100000 >&2; exit 3")
        assert answer.exit_code == 3
        assert answer.stdout.endswith("\n100000\n") and answer.stderr.endswith("\n100000\n")


@pytest.mark.fault(14)
@pytest.mark.isolation
@pytest.mark.alone
def test_output_that_nobody_reads_is_kept_within_a_bound_everywhere(sandbox: Sandbox, memory_stays_flat: Watch):
    before = sandbox.agent_memory()
    with memory_stays_flat():
        events = sandbox.events("yes")
        next(events)
        time.sleep(5)
        grown = sandbox.agent_memory() - before
        events.close()
    assert grown < 16 << 20


@pytest.mark.fault(16)
@pytest.mark.isolation
@pytest.mark.parametrize("streamed", [False, True], ids=["collected", "streamed"])
def test_a_dead_agent_is_told_as_such_and_never_as_success(create: Create, streamed: bool):
    sandbox = create()
    killer = threading.Timer(1.5, lambda: sandbox.api.call("POST", f"{sandbox.path}/exec", json={"cmd": "kill -9 1"}))
    killer.start()
    try:
        if streamed:
            seen = sandbox.stream("echo before; sleep 30")
            assert seen.exit_code is None
            assert seen.error
        else:
            with pytest.raises(Refused) as lost:
                sandbox.sh("echo before; sleep 30")
            assert lost.value.code in ("agent_lost", "sandbox_gone")
    finally:
        killer.join()
