"""Contexts beside each other: walls, queues, environment, and callers who leave (faults, section D)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from client import Context, Refused, Sandbox
from conftest import Create


@pytest.mark.fault(49)
def test_a_variable_of_one_context_is_unknown_in_another(shared: Sandbox):
    one, two = shared.context(), shared.context()
    one.rc("secret = 1\nimport builtins, sys\nbuiltins.leak = 2\nsys.leak = 3\nimport json; json.leak = 4")
    for name in ("secret", "leak", "sys.leak", "json.leak"):
        answer = two.rc(f"import json, sys\n{name}")
        assert answer.exit == 1
        assert "NameError" in answer.error or "AttributeError" in answer.error
    later = shared.context()
    assert "NameError" in later.rc("secret").error
    for context in (one, two, later):
        context.close()


@pytest.mark.fault(50)
def test_calls_of_one_context_queue_and_none_is_lost(context: Context):
    count = "import time; time.sleep(0.05); n = globals().get('n', 0) + 1"
    with ThreadPoolExecutor(20) as callers:
        answers = list(callers.map(lambda _: context.rc(count), range(20)))
    assert {answer.outcome for answer in answers} == {"ok"}
    assert context.value("n") == "20"
    counts = sorted(answer.execution_count for answer in answers)
    assert counts == list(range(counts[0], counts[0] + 20))


@pytest.mark.fault(50)
def test_calls_of_one_context_run_in_the_order_in_which_they_came(context: Context):
    context.rc("order = []")
    with ThreadPoolExecutor(8) as callers:
        waits = []
        for number in range(8):
            waits.append(callers.submit(context.rc, f"import time; time.sleep(0.3); order.append({number})"))
            time.sleep(0.1)
        for wait in waits:
            wait.result()
    assert context.value("order") == str(list(range(8)))


@pytest.mark.fault(50)
def test_contexts_run_side_by_side(shared: Sandbox):
    contexts = [shared.context() for _ in range(4)]
    started = time.monotonic()
    with ThreadPoolExecutor(4) as callers:
        list(callers.map(lambda context: context.rc("import time; time.sleep(1)"), contexts))
    assert time.monotonic() - started < 3
    for context in contexts:
        context.close()


@pytest.mark.fault(50, 52)
def test_ten_contexts_made_at_once_are_ten_in_the_list(sandbox: Sandbox):
    with ThreadPoolExecutor(10) as callers:
        made = list(callers.map(lambda _: sandbox.context(), range(10)))
    listed = [item["id"] for item in sandbox.contexts()]
    assert sorted(listed) == sorted(context.id for context in made)
    assert len(set(listed)) == 10
    made[3].close()
    assert sorted(item["id"] for item in sandbox.contexts()) == sorted(set(listed) - {made[3].id})
    with pytest.raises(Refused) as gone:
        made[3].rc("1")
    assert gone.value.status == 404


@pytest.mark.fault(53)
def test_environment_of_one_run_is_for_that_run_alone(shared: Sandbox):
    context = shared.context(env={"BASE": "context"})
    read = "__import__('os').environ.get('K'), __import__('os').environ.get('BASE')"
    assert context.value(read) == "(None, 'context')"
    answer = context.rc(read, env={"K": "1", "BASE": "run"})
    assert answer["results"][-1]["text/plain"] == "('1', 'run')"
    assert context.value(read) == "(None, 'context')"
    child = context.rc(
        "import subprocess; print(subprocess.check_output('echo $K', shell=True).decode())", env={"K": "2"}
    )
    assert child.stdout.strip() == "2"
    raised = context.rc("1 / 0", env={"K": "3"})
    assert raised.exit == 1
    assert context.value(read) == "(None, 'context')"
    assert shared.sh('echo "[$K]"').stdout == "[]\n"
    context.close()


@pytest.mark.fault(55)
def test_a_caller_that_leaves_ends_its_cell_and_the_context_is_free_again(context: Context):
    with pytest.raises(httpx.ReadTimeout):
        context.sandbox.api.http.post(
            f"{context.path}/run",
            json={"code": "state = 1\nimport time; time.sleep(3600)", "timeout_ms": 3_600_000},
            timeout=1.5,
        )
    answer = context.rc("state", t=20)
    assert answer["results"][-1]["text/plain"] == "1"


@pytest.mark.fault(55)
def test_a_busy_context_says_so_in_the_list(shared: Sandbox):
    context = shared.context()
    with ThreadPoolExecutor(1) as caller:
        running = caller.submit(context.rc, "import time; time.sleep(2)")
        time.sleep(0.7)
        (mine,) = [item for item in shared.contexts() if item["id"] == context.id]
        assert mine["busy"] is True
        running.result()
    (mine,) = [item for item in shared.contexts() if item["id"] == context.id]
    assert (mine["busy"], mine["cells"]) == (False, 1)
    context.close()


@pytest.mark.fault(56)
@pytest.mark.alone
@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_sixty_four_commands_at_once_all_return(sandbox: Sandbox, rounds: int):
    with ThreadPoolExecutor(64) as callers:
        for _ in range(rounds):
            started = time.monotonic()
            codes = list(callers.map(lambda _: sandbox.ex(["true"]).exit_code, range(64)))
            assert codes == [0] * 64
            assert time.monotonic() - started < 5


def test_a_context_more_than_the_bound_is_refused_with_the_bound(create: Create):
    # So large that its memory is not the bound.
    sandbox = create(memory_mb=4096)
    with pytest.raises(Refused) as refused:
        for _ in range(100):
            sandbox.context()
    assert refused.value.status == 429
    assert "32" in refused.value.error
    assert sandbox.sh("echo fine").stdout == "fine\n"


@pytest.mark.parametrize("language", ["cobol", "", "Python2", 7])
def test_a_language_that_is_not_there_is_refused(shared: Sandbox, language: object):
    with pytest.raises(Refused) as refused:
        shared.context(language=language)
    assert refused.value.status == 400


@pytest.mark.parametrize("language", ["python", "PYTHON", "py", "python3"])
def test_the_names_of_python_are_one_language(shared: Sandbox, language: str):
    context = shared.context(language=language)
    assert context.info.language == "python"
    assert context.value("6 * 7") == "42"
    context.close()


def test_a_restarted_context_keeps_its_id_and_loses_its_state(context: Context):
    context.rc("x = 1")
    context.sandbox.api.ok("POST", f"{context.path}/restart")
    assert "NameError" in context.rc("x").error


def test_two_contexts_never_draw_the_same_numbers(shared: Sandbox):
    draw = (
        "import os, random, secrets, uuid\n"
        "(random.random(), str(uuid.uuid4()), secrets.token_hex(8), os.urandom(4).hex())"
    )
    contexts = [shared.context() for _ in range(4)]
    assert len({context.value(draw) for context in contexts}) == 4
    for context in contexts:
        context.close()
