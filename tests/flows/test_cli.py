"""The command line against a running server, as a person or a script uses it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from pathlib import Path

import pytest
from client import Api, Sandbox
from conftest import Create, Stack


def run(atoll: list[str], *arguments: str, given: str = "", **more: object) -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    return subprocess.run([*atoll, *arguments], input=given, capture_output=True, text=True, timeout=60, **more)


def ids(api: Api) -> set[str]:
    """The live sandboxes."""
    return {item.id for item in api.sandboxes()}


@pytest.fixture
def label() -> str:
    """What marks the sandboxes of one test."""
    return secrets.token_hex(8)


def labelled(api: Api, label: str) -> set[str]:
    """The live sandboxes of one test."""
    return {item.id for item in api.sandboxes() if item.labels.get("flow") == label}


def test_run_prints_what_the_command_prints_and_leaves_nothing(atoll: list[str], api: Api, label: str):
    done = run(atoll, "run", "--label", f"flow={label}", "--", "python3", "-c", "print(6*7)")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert labelled(api, label) == set()


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
def test_run_ends_with_the_commands_exit_code(atoll: list[str], code: int):
    assert run(atoll, "run", "--", "sh", "-c", f"echo out; echo err >&2; exit {code}").returncode == code


def test_run_keeps_both_streams_apart(atoll: list[str]):
    done = run(atoll, "run", "--", "sh", "-c", "echo out; echo err >&2")
    assert done.stdout == "out\n"
    assert "err\n" in done.stderr and "out" not in done.stderr


def test_run_hands_arguments_on_as_they_are(atoll: list[str]):
    odd = ["a b", "$HOME", "", "*", "--json", "'q'", "ü"]
    done = run(atoll, "run", "--", "python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *odd)
    assert json.loads(done.stdout) == odd


def test_run_and_exec_need_no_dashes_before_the_command(atoll: list[str], shared: Sandbox):
    assert run(atoll, "run", "echo", "-n", "hi", "--json").stdout == "hi --json"
    assert run(atoll, "exec", shared.id, "sh", "-c", "echo $0", "--timeout").stdout == "--timeout\n"


def test_run_without_a_command_says_what_to_write(atoll: list[str]):
    done = run(atoll, "run")
    assert done.returncode == 2
    assert "atoll run -- " in done.stderr


def test_run_passes_input_on(atoll: list[str]):
    assert run(atoll, "run", "--", "wc", "-c", given="x" * 5000).stdout.strip() == "5000"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_leaves_nothing(atoll: list[str], api: Api, label: str, ending: signal.Signals):
    running = subprocess.Popen(
        [*atoll, "run", "--label", f"flow={label}", "--", "sh", "-c", "echo up; sleep 600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout.readline() == "up\n"
    assert len(labelled(api, label)) == 1
    running.send_signal(ending)
    assert running.wait(20) in (128 + ending, -ending)
    running.stdout.close()
    running.stderr.close()
    deadline = time.monotonic() + 10
    while labelled(api, label):
        assert time.monotonic() < deadline, "its sandbox lives on"
        time.sleep(0.1)


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.2, 0.3])
def test_a_run_that_is_interrupted_at_its_create_leaves_nothing(
    atoll: list[str], api: Api, label: str, delay: float
):
    running = subprocess.Popen([*atoll, "run", "--label", f"flow={label}", "--", "sleep", "600"])
    # Nothing tells how far a create is, so the signal comes at several moments of it.
    time.sleep(delay)
    running.send_signal(signal.SIGINT)
    assert running.wait(20) in (130, -signal.SIGINT)
    assert labelled(api, label) == set()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_exec_that_is_interrupted_leaves_no_process(atoll: list[str], sandbox: Sandbox, ending: signal.Signals):
    running = subprocess.Popen(
        [*atoll, "exec", sandbox.id, "--", "sh", "-c", "(setsid sleep 4711 &); echo up; sleep 4712"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout.readline() == "up\n"
    running.send_signal(ending)
    assert running.wait(20) == 128 + ending
    running.stdout.close()
    deadline = time.monotonic() + 10
    while "sleep 471" in run(atoll, "exec", sandbox.id, "--", "ps", "-e", "-o", "args").stdout:
        assert time.monotonic() < deadline, "its processes live on"
        time.sleep(0.1)


def test_create_ls_exec_and_rm_are_one_life(atoll: list[str], api: Api):
    created = json.loads(run(atoll, "create", "--json").stdout)
    assert created["status"] == "running"
    listed = json.loads(run(atoll, "ls", "--json").stdout)
    assert created["id"] in {item["id"] for item in listed}
    assert created["id"][:8] in run(atoll, "ls").stdout
    done = run(atoll, "exec", created["id"], "--", "sh", "-c", "echo $((6*7)); exit 9")
    assert (done.returncode, done.stdout) == (9, "42\n")
    assert run(atoll, "rm", created["id"]).returncode == 0
    assert created["id"] not in ids(api)


def test_cp_carries_files_both_ways_exact(atoll: list[str], sandbox: Sandbox, tmp_path: Path):
    data = bytes(range(256)) * 5000
    (tmp_path / "up load").write_bytes(data)
    sent = run(atoll, "cp", str(tmp_path / "up load"), f"{sandbox.id}:/work/da ta")
    assert sent.returncode == 0, sent.stderr
    assert sandbox.read("/work/da ta") == data
    fetched = run(atoll, "cp", f"{sandbox.id}:/work/da ta", str(tmp_path / "down"))
    assert fetched.returncode == 0, fetched.stderr
    assert (tmp_path / "down").read_bytes() == data


def test_errors_are_one_sentence_on_stderr_and_an_exit_code(atoll: list[str]):
    for arguments in (
        ("exec", "11111111-2222-4333-8444-555555555555", "--", "true"),
        ("rm", "11111111-2222-4333-8444-555555555555"),
        ("rm", "../keys"),
        ("create", "--template", "no-such"),
        ("run", "--template", "no-such", "--", "true"),
    ):
        done = run(atoll, *arguments)
        assert done.returncode not in (0, 101), arguments
        assert done.stdout == ""
        assert done.stderr.strip() and "panicked" not in done.stderr


def test_an_error_with_json_is_json(atoll: list[str]):
    done = run(atoll, "create", "--template", "no-such", "--json")
    assert done.returncode != 0
    text = done.stdout or done.stderr
    assert json.loads(text.strip().splitlines()[-1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "--ttl", "-5"), "'--ttl <SECONDS>': it is a whole number from 0 to 31536000"),
        (("create", "--memory", "9" * 30), "'--memory <MIB>': it is a whole number from 128 to 65536"),
        (("run", "--timeout", "-1", "true"), "more than 0 and at most 86400"),
        (("exec", "x", "--timeout", "1e9", "true"), "more than 0 and at most 86400"),
        (("rm",), "<SANDBOX>"),
        (("no-such-command",), "no-such-command"),
    ],
)
def test_wrong_arguments_are_said_with_what_is_right_and_as_json_when_asked(
    atoll: list[str], arguments: tuple[str, ...], said: str
):
    done = run(atoll, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    done = run(atoll, "--json", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    told = json.loads(done.stderr)
    assert said in told["error"] and told["code"] == "usage"


def test_a_server_that_is_not_there_is_said_plainly(atoll: list[str]):
    away = [part if not part.startswith("ATOLL_URL=") else "ATOLL_URL=http://127.0.0.1:9" for part in atoll]
    done = run(away, "ls")
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stderr


def test_a_wrong_key_is_said_plainly(atoll: list[str]):
    wrong = [part if not part.startswith("ATOLL_API_KEY=") else "ATOLL_API_KEY=atl_" + "0" * 40 for part in atoll]
    done = run(wrong, "ls")
    assert done.returncode != 0
    assert "key" in done.stderr.lower()


def test_templates_and_keys_are_listed(atoll: list[str], stack: Stack):
    templates = json.loads(run(atoll, "template", "ls", "--json").stdout)
    assert {"base", "code-interpreter"} <= {item["name"] for item in templates}
    keys = run(atoll, "key", "ls").stdout
    assert stack.api_key not in keys
    assert stack.api_key[:12] in keys


def test_a_new_key_printed_alone_works_until_it_is_revoked(atoll: list[str], stack: Stack):
    made = run(atoll, "key", "create", "from the command line", "--quiet")
    key = made.stdout.strip()
    assert made.stdout == f"{key}\n" and key.startswith("atl_") and len(key) == 44
    assert Api(stack.url, key).sandboxes() is not None
    assert run(atoll, "key", "revoke", key[:12]).returncode == 0
    assert Api(stack.url, key).call("GET", "/sandboxes").status_code == 401


@pytest.mark.alone
def test_the_first_key_is_kept_for_its_owner_only(stack: Stack):
    if stack.server is None and stack.state is None:
        pytest.skip("the state folder is not known")
    config = (stack.state or stack.server.state) / "client/atoll/config.json"
    assert os.stat(config).st_mode & 0o777 == 0o600
    assert set(json.loads(config.read_text())) >= {"url", "api_key"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_printed(atoll: list[str], shell: str):
    done = run(atoll, "completions", shell)
    assert done.returncode == 0
    assert "atoll" in done.stdout


def test_bash_completes_commands_and_options(atoll: list[str]):
    script = run(atoll, "completions", "bash").stdout
    ask = """
        COMP_WORDS=(atoll te); COMP_CWORD=1; _atoll atoll te atoll; echo "${COMPREPLY[@]}"
        COMP_WORDS=(atoll create --tt); COMP_CWORD=2; _atoll atoll --tt create; echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["template", "--ttl"], done.stderr


def test_a_pipe_that_closes_early_ends_the_command_quietly(atoll: list[str], create: Create):
    sandbox = create()
    command = " ".join(f"'{part}'" for part in [*atoll, "exec", sandbox.id, "--", "seq", "1", "1000000"])
    done = subprocess.run(["bash", "-c", f"{command} | head -1"], capture_output=True, text=True, timeout=30)
    assert done.stdout == "1\n"
    assert "panicked" not in done.stderr
