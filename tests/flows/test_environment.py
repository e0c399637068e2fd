"""What ordinary programs expect to find around them (faults, section K)."""

from __future__ import annotations

import pytest
from client import Context, Sandbox
from conftest import Create


@pytest.mark.fault(148)
@pytest.mark.isolation
def test_shared_memory_works_up_to_the_sandboxs_memory(sandbox: Sandbox):
    context = sandbox.context()
    assert context.value("import multiprocessing as m\nm.Pool(4).map(abs, [-1] * 9)", t=25) == str([1] * 9)
    answer = context.rc(
        "from multiprocessing.shared_memory import SharedMemory as S\n"
        "s = S(create=True, size=500_000_000); s.buf[-1] = 7; print(s.buf[-1]); s.close(); s.unlink()"
    )
    assert answer.stdout == "7\n", answer.error
    assert sandbox.sh("test -d /dev/shm && test -w /dev/shm").exit_code == 0


@pytest.mark.fault(149)
@pytest.mark.parametrize(("zone", "offset"), [(None, "+0000"), ("Asia/Tokyo", "+0900"), ("America/Lima", "-0500")])
@pytest.mark.full_template
def test_the_time_zone_is_one_everywhere(create: Create, zone: str | None, offset: str):
    sandbox = create(env={"TZ": zone} if zone else {})
    assert sandbox.sh("date +%z").stdout.strip() == offset
    assert sandbox.sh("python3 -c 'import time; print(time.strftime(\"%z\"))'").stdout.strip() == offset
    assert sandbox.context().value("__import__('time').strftime('%z')") == repr(offset)


@pytest.mark.fault(149)
@pytest.mark.full_template
def test_zones_can_be_looked_up(context: Context):
    assert "Paris" in context.value("import zoneinfo; zoneinfo.ZoneInfo('Europe/Paris')")


@pytest.mark.fault(151)
@pytest.mark.full_template
@pytest.mark.parametrize("user", [None, "by-uid-1000"])
def test_home_user_and_the_password_file_agree(shared: Sandbox, user: str | None):
    more = {}
    if user:
        more["user"] = shared.sh("getent passwd 1000 | cut -d: -f1").stdout.strip()
    home, name, uid = shared.sh('echo "$HOME|$USER|$(id -u)"', **more).stdout.strip().split("|")
    entry = shared.sh("getent passwd $(id -u)", **more).stdout.strip().split(":")
    assert (entry[0], entry[2], entry[5]) == (name, uid, home)
    assert home == ("/workspace" if user else "/root")
    answer = shared.sh(
        "cd ~ && git config --global user.name x && git config --global user.name && pip config list", **more
    )
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout.startswith("x\n")


@pytest.mark.fault(151)
@pytest.mark.full_template
def test_the_locale_takes_any_text(context: Context):
    assert context.sandbox.sh("locale charmap").stdout == "UTF-8\n"
    assert context.value("import sys; (sys.getfilesystemencoding(), sys.stdout.encoding)") == "('utf-8', 'utf-8')"
    assert context.sandbox.sh("python3 -c 'print(\"日本\")'").stdout == "日本\n"


@pytest.mark.fault(152)
@pytest.mark.isolation
def test_tools_see_the_sandboxs_limits_and_not_the_hosts(create: Create):
    sandbox = create(cpu=1, memory_mb=512)
    total = int(sandbox.sh("free -m | awk '/^Mem:/ {print $2}'").stdout)
    assert 450 <= total <= 560
    for command in (
        "nproc",
        "python3 -c 'import os; print(os.cpu_count())'",
        "python3 -c 'import os; print(len(os.sched_getaffinity(0)))'",
    ):
        assert sandbox.sh(command).stdout.strip() == "1", command


@pytest.mark.fault(154)
@pytest.mark.isolation
def test_five_thousand_open_files_are_fine(context: Context):
    assert context.value("files = [open('/etc/passwd') for _ in range(5000)]; len(files)", t=25) == "5000"
    assert context.value("[f.close() for f in files]; 1") == "1"


@pytest.mark.fault(154)
@pytest.mark.isolation
@pytest.mark.alone
def test_sandboxes_that_open_all_files_they_can_do_not_starve_others(create: Create, bystander: Sandbox):
    hogs = [create() for _ in range(3)]
    hold = (
        'python3 -c "import os, time\n'
        "n = 0\n"
        "try:\n  while n < 50000: os.open('/etc/passwd', 0); n += 1\n"
        "except OSError: pass\n"
        'print(n, flush=True); time.sleep(30)"'
    )
    held = [hog.events(hold) for hog in hogs]
    for events in held:
        assert int(next(events)[1]["chunk"]) > 500
    assert bystander.sh("cat /etc/hostname").exit_code == 0
    extra = create()
    assert extra.sh("echo fine").stdout == "fine\n"
    for events in held:
        events.close()


@pytest.mark.fault(155)
def test_hundreds_of_variables_with_any_text_reach_commands_and_cells(create: Create):
    env = {f"VARIABLE_{n}": f"wert-{n}" for n in range(500)} | {"K": "日本", "EMPTY": "", "SPACED": " a  b "}
    sandbox = create(env=env)
    dumped = dict(line.split("=", 1) for line in sandbox.sh("env -0").stdout.split("\0") if line)
    assert {name: dumped.get(name) for name in env} == env
    context = sandbox.context()
    assert context.value("import os; (os.environ['K'], os.environ['VARIABLE_499'], os.environ['EMPTY'])") == (
        "('日本', 'wert-499', '')"
    )


@pytest.mark.fault(155)
@pytest.mark.isolation
def test_name_resolution_is_closed_and_says_so_at_once(sandbox: Sandbox):
    answer = sandbox.sh("getent hosts example.com; echo $?", t=10)
    assert answer.stdout.strip() == "2"
    devices = sandbox.sh("ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1").stdout.split()
    assert set(devices) <= {"lo"}


@pytest.mark.full_template
@pytest.mark.parametrize(
    "package",
    [
        "IPython",
        "numpy",
        "pandas",
        "scipy",
        "sklearn",
        "matplotlib",
        "seaborn",
        "plotly",
        "kaleido",
        "openpyxl",
        "requests",
    ],
)
def test_the_template_holds_the_libraries_that_it_promises(context: Context, package: str):
    answer = context.rc(f"import {package}; {package}.__name__", t=25)
    assert answer.exit == 0, answer.error


@pytest.mark.full_template
@pytest.mark.parametrize(
    "program", ["node --version", "git --version", "curl --version", "sudo --version", "python3 --version"]
)
def test_the_template_holds_the_programs_that_it_promises(shared: Sandbox, program: str):
    assert shared.sh(program).exit_code == 0


@pytest.mark.full_template
@pytest.mark.parametrize("folder", ["/work", "/workspace"])
def test_the_promised_folders_are_there_and_writable_by_both_users(shared: Sandbox, folder: str):
    user = shared.sh("getent passwd 1000 | cut -d: -f1").stdout.strip()
    for more in ({}, {"user": user}):
        answer = shared.sh(f"f=$(mktemp {folder}/XXXXXX) && rm $f", **more)
        assert answer.exit_code == 0, answer.stderr


def test_two_sandboxes_of_one_template_never_draw_the_same(create: Create):
    draw = (
        "import os, random, secrets, uuid\n"
        "(random.random(), str(uuid.uuid4()), secrets.token_hex(8), os.urandom(8).hex())"
    )
    sandboxes = [create() for _ in range(3)]
    drawn = [eval(sandbox.context().value(draw)) for sandbox in sandboxes]
    for values in zip(*drawn, strict=True):
        assert len(set(values)) == 3, values
    shells = {
        sandbox.sh("cat /proc/sys/kernel/random/uuid; bash -c 'echo $RANDOM$RANDOM'").stdout for sandbox in sandboxes
    }
    assert len(shells) == 3
    assert len({sandbox.sh("hostname").stdout for sandbox in sandboxes}) == 3


@pytest.mark.full_template
def test_numpys_global_generator_differs_between_sandboxes(create: Create):
    drawn = {create().context().value("import numpy as np; float(np.random.random())") for _ in range(3)}
    assert len(drawn) == 3


def test_the_clock_is_right_in_the_first_cell(sandbox: Sandbox):
    import time

    before = time.time()
    inside = float(sandbox.context().value("import time; time.time()"))
    assert before - 0.1 < inside < time.time() + 0.1
