"""Commands: their whole process tree, input, deadlines, names and values, users (faults, section E)."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from client import Answer, Refused, Sandbox, server_sent
from conftest import Create


def at_deadline(sandbox: Sandbox, command: str, t: float) -> Refused:
    """The refusal that a command's deadline comes as."""
    with pytest.raises(Refused) as late:
        sandbox.sh(command, t=t)
    assert late.value.status == 504
    return late.value


@pytest.mark.fault(58)
@pytest.mark.parametrize(
    "command",
    [
        "(setsid sh -c 'exec -a marked-58 sleep 500' &) ; sleep 60",
        "(sh -c '(setsid sh -c \"while :; do :; done\" marked-58 &)' &) ; sleep 60",
        "trap '' TERM INT HUP; bash -c 'trap \"\" TERM INT HUP; while :; do sleep 1; done' marked-58; sleep 60",
        "nohup sh -c 'sleep 500; echo marked-58' > /dev/null 2>&1 & sleep 60",
    ],
    ids=["own-session", "double-fork", "ignores-signals", "nohup"],
)
def test_a_deadline_ends_the_whole_process_tree(sandbox: Sandbox, command: str):
    at_deadline(sandbox, command, t=1)
    deadline = time.monotonic() + 3
    while "marked-58" in sandbox.running():
        assert time.monotonic() < deadline, sandbox.running()


@pytest.mark.fault(58)
def test_a_caller_that_leaves_ends_the_whole_process_tree(sandbox: Sandbox):
    events = sandbox.events("echo up; (setsid sh -c 'sleep 500; echo marked-58' &); sleep 60")
    assert next(events)[1]["chunk"] == "up\n"
    events.close()
    deadline = time.monotonic() + 5
    while "marked-58" in sandbox.running():
        assert time.monotonic() < deadline, sandbox.running()


@pytest.mark.fault(59)
@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_every_exit_code_of_many_short_commands_is_delivered_and_no_zombie_stays(sandbox: Sandbox, count: int):
    with ThreadPoolExecutor(8) as callers:
        codes = list(callers.map(lambda n: sandbox.ex(["sh", "-c", f"exit {n % 200}"]).exit_code, range(count)))
    assert codes == [n % 200 for n in range(count)]
    sandbox.sh("for i in $(seq 500); do (sleep 0.01 &) ; done")
    deadline = time.monotonic() + 4
    while sandbox.zombies():
        assert time.monotonic() < deadline, f"{sandbox.zombies()} zombies"
        time.sleep(0.1)


@pytest.mark.fault(61)
@pytest.mark.parametrize(
    ("argv", "exit_code"),
    [(["cat"], 0), (["python3", "-c", "input()"], 1), (["sh", "-c", "read line"], 1), (["head", "-c", "1"], 0)],
)
def test_a_command_that_reads_input_finds_its_end_at_once(shared: Sandbox, argv: list[str], exit_code: int):
    assert shared.ex(argv, t=5).exit_code == exit_code


@pytest.mark.fault(62)
@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 700_000])
def test_given_input_arrives_whole(shared: Sandbox, size: int):
    assert shared.ex(["wc", "-c"], stdin="i" * size).stdout.strip() == str(size)


@pytest.mark.fault(62)
def test_input_that_a_command_does_not_read_is_no_fault(shared: Sandbox):
    answer = shared.ex(["head", "-c1"], stdin="i" * 700_000)
    assert (answer.exit_code, answer.stdout) == (0, "i")
    assert shared.ex(["true"], stdin="i" * 700_000).exit_code == 0


@pytest.mark.fault(64)
def test_a_long_command_works(shared: Sandbox):
    assert len(shared.sh(f"echo '{'x' * 100_000}'").stdout) == 100_001


@pytest.mark.fault(64)
@pytest.mark.parametrize("form", ["shell", "argv"])
def test_a_command_longer_than_the_kernel_takes_works_or_says_so(shared: Sandbox, form: str):
    text = "x" * 300_000
    try:
        answer = shared.sh(f"echo '{text}'") if form == "shell" else shared.ex(["echo", text])
    except Refused as refused:
        assert refused.status == 400
        assert "long" in refused.error
    else:
        assert len(answer.stdout) == 300_001


@pytest.mark.fault(65)
@pytest.mark.parametrize("command", ["sleep 30", "while :; do :; done", "echo partial; sleep 30"])
def test_a_deadline_is_kept_and_told_as_a_timeout(shared: Sandbox, command: str):
    started = time.monotonic()
    late = at_deadline(shared, command, t=1)
    assert time.monotonic() - started < 2.5
    assert late.code == "timeout" and "timeout" in late.error
    assert late.body["result"]["stdout"] == ("partial\n" if "partial" in command else "")
    assert (late.body["result"]["outcome"], late.body["result"]["exit_code"]) == ("timeout", 124)


@pytest.mark.fault(65)
def test_the_deadline_of_a_streamed_command_is_an_error_event_and_no_exit(shared: Sandbox):
    seen = shared.stream("echo partial; sleep 30", timeout_seconds=1)
    assert seen.stdout == "partial\n"
    assert seen.exit_code is None
    assert "timeout" in seen.error


@pytest.mark.fault(67)
def test_half_a_second_is_honoured(shared: Sandbox):
    started = time.monotonic()
    at_deadline(shared, "sleep 30", t=0.5)
    assert time.monotonic() - started < 1.5


@pytest.mark.fault(67)
@pytest.mark.parametrize("value", ["0", "-1", "1e18", "NaN", "Infinity", '"5"', "true", "[]", "-0.0"])
def test_a_deadline_that_is_none_is_refused_by_its_name(shared: Sandbox, value: str):
    body = f'{{"cmd": "true", "timeout_seconds": {value}}}'
    response = shared.api.call("POST", f"{shared.path}/exec", content=body)
    assert response.status_code == 400
    # NaN and Infinity are no JSON, so there is no field to name.
    if value not in ("NaN", "Infinity"):
        assert response.json()["field"] == "timeout_seconds"


@pytest.mark.fault(68)
@pytest.mark.parametrize("body", [{"argv": []}, {"argv": [""]}, {}, {"cmd": "x", "argv": ["x"]}, {"argv": "ls"}])
def test_a_command_that_is_none_is_refused(shared: Sandbox, body: dict):
    with pytest.raises(Refused) as refused:
        shared.api.json("POST", f"{shared.path}/exec", json=body)
    assert refused.value.status == 400
    assert isinstance(refused.value.error, str)


@pytest.mark.fault(68)
def test_an_empty_shell_command_is_refused_or_does_nothing(shared: Sandbox):
    try:
        assert shared.sh("").exit_code == 0
    except Refused as refused:
        assert refused.status == 400 and "cmd" in refused.error


@pytest.mark.fault(70)
@pytest.mark.parametrize(
    ("argv", "exit_code"),
    [
        (["nope-not-here"], 127),
        (["/nope/not/here"], 127),
        (["/etc/passwd"], 126),
        (["/tmp"], 126),
        (["/tmp/odd-shebang"], 126),
        (["/tmp/wrong-machine"], 126),
    ],
)
def test_what_cannot_be_run_is_told_as_a_shell_would(shared: Sandbox, argv: list[str], exit_code: int):
    shared.write("/tmp/odd-shebang", b"#!/no/such/interpreter\n")
    # An ELF header for a machine that is not this one.
    shared.write("/tmp/wrong-machine", b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\0\xf3\0\x01" + b"\0" * 43)
    shared.sh("chmod +x /tmp/odd-shebang /tmp/wrong-machine")
    answer = shared.ex(argv)
    assert answer.exit_code == exit_code
    assert argv[0] in answer.stderr


@pytest.mark.fault(71)
def test_a_template_without_bash_runs_shell_commands(create: Create):
    base = create(template="base")
    assert base.sh("echo ok").stdout == "ok\n"
    base.sh("rm -f /bin/bash /usr/bin/bash /bin/sh /usr/bin/sh")
    assert base.ex(["/bin/echo", "still"]).stdout == "still\n"


HOSTILE = [
    "$(touch /tmp/pwned)",
    "`touch /tmp/pwned`",
    "'; touch /tmp/pwned; '",
    '"; touch /tmp/pwned; "',
    "%s %n \\n \\0",
    "a\nb",
    "-rf /",
    "\u202e \ud7ff ü",
    "$HOME ~ * ? [a]",
]


@pytest.mark.fault(73)
@pytest.mark.parametrize("text", HOSTILE)
def test_values_and_names_are_never_read_as_code(sandbox: Sandbox, text: str):
    assert sandbox.ex(["printenv", "K"], env={"K": text}).stdout == text + "\n"
    assert sandbox.ex(["printf", "%s", text]).stdout == text
    path = f"/tmp/odd/{text.replace('/', '_')}"
    sandbox.write(path, text.encode())
    assert sandbox.read(path) == text.encode()
    assert [entry["name"] for entry in sandbox.list("/tmp/odd")] == [path.rpartition("/")[2]]
    sandbox.remove(path)
    context = sandbox.context(env={"K": text})
    assert context.value("__import__('os').environ['K']") == repr(text)
    assert sandbox.sh("test -e /tmp/pwned").exit_code == 1


@pytest.mark.fault(73)
@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_a_name_that_no_variable_can_have_is_refused(shared: Sandbox, name: str):
    with pytest.raises(Refused) as refused:
        shared.sh("true", env={name: "x"})
    assert refused.value.status == 400
    with pytest.raises(Refused) as refused:
        shared.api.create(env={name: "x"})
    assert refused.value.status == 400


@pytest.mark.fault(73)
@pytest.mark.full_template
def test_a_package_name_is_never_read_as_code(context):
    context.rc("%pip install 'x; touch /tmp/pwned'", t=20)
    assert context.sandbox.sh("test -e /tmp/pwned").exit_code == 1


@pytest.mark.fault(74)
@pytest.mark.slow
@pytest.mark.parametrize("command", ["sleep 45", "timeout 45 sh -c 'while :; do :; done'; true"])
def test_a_quiet_or_busy_command_is_use_and_outlives_the_idle_limit(create: Create, command: str):
    sandbox = create(ttl_seconds=3)
    assert sandbox.sh(command, t=60).exit_code == 0
    assert sandbox.refresh().status == "running"


@pytest.mark.fault(74)
def test_an_idle_sandbox_is_removed_and_one_that_is_used_is_not(create: Create):
    idle, used = create(ttl_seconds=2), create(ttl_seconds=2)
    runner = threading.Thread(target=lambda: used.context().rc("import time; time.sleep(9)", t=20))
    runner.start()
    deadline = time.monotonic() + 45
    while idle.id in {item.id for item in idle.api.sandboxes()}:
        assert time.monotonic() < deadline, "the idle sandbox lives on"
        time.sleep(0.5)
        if runner.is_alive():
            assert used.refresh().status == "running"
    runner.join()


@pytest.mark.fault(76)
def test_a_command_that_has_ended_can_be_fetched_by_its_id(sandbox: Sandbox):
    body = {"cmd": "echo the tail; exit 4", "detach": True}
    with sandbox.api.http.stream("POST", f"{sandbox.path}/exec/stream", json=body) as response:
        identity = response.headers["x-exec-id"]
        response.read()
    listed = {item["exec_id"]: Answer(item) for item in sandbox.api.ok("GET", f"{sandbox.path}/exec").json()}
    assert (listed[identity].running, listed[identity].exit_code) == (False, 4)
    with sandbox.api.http.stream("GET", f"{sandbox.path}/exec/{identity}/stream") as response:
        events = list(server_sent(response))
    assert "".join(data["chunk"] for name, data in events if name == "stdout") == "the tail\n"
    assert (events[-1][0], events[-1][1]["exit_code"]) == ("exit", 4)


@pytest.mark.fault(77)
def test_supplementary_groups_count(sandbox: Sandbox):
    sandbox.sh(
        "groupadd readers; useradd -m -G readers reader; echo yes > /opt/f; chgrp readers /opt/f; chmod 640 /opt/f"
    )
    assert sandbox.ex(["cat", "/opt/f"], user="reader").stdout == "yes\n"
    sandbox.sh("useradd -m stranger")
    assert sandbox.ex(["cat", "/opt/f"], user="stranger").exit_code == 1
    with pytest.raises(Refused) as refused:
        sandbox.ex(["true"], user="nobody-there")
    assert refused.value.status in (400, 404) and "nobody-there" in refused.value.error


@pytest.mark.fault(79)
@pytest.mark.full_template
def test_sudo_works_for_the_templates_user_or_says_why_not(shared: Sandbox):
    """Builds of gVisor without support for set-uid programs run every process with "no new privileges"."""
    user = shared.sh("getent passwd 1000 | cut -d: -f1").stdout.strip()
    assert shared.ex(["id", "-u"], user=user).stdout == "1000\n"
    answer = shared.ex(["sudo", "-n", "id", "-u"], user=user)
    if answer.exit_code == 0:
        assert answer.stdout == "0\n"
    else:
        assert "no new privileges" in answer.stderr


def test_a_signal_that_ends_a_command_is_told(shared: Sandbox):
    answer = shared.sh("kill -TERM $$")
    assert (answer.exit_code, answer.signal) == (143, 15)


def test_a_command_whose_child_keeps_the_output_open_still_returns(shared: Sandbox):
    started = time.monotonic()
    answer = shared.sh("echo done; sleep 40 &", t=60)
    assert answer.stdout == "done\n"
    assert time.monotonic() - started < 15
