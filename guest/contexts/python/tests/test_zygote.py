"""The zygote itself: contexts apart from each other, seeds, bad input, dead contexts."""

import os
import signal

import pytest
from driver import Zygote

DRAWS = (
    "import random, uuid, secrets, tempfile, os\nimport numpy as np\n"
    "print(random.random(), np.random.rand(), np.random.default_rng().random(), uuid.uuid4(), uuid.uuid1(),"
    " secrets.token_hex(8), next(tempfile._get_candidate_names()), sep='\\n')"
)


def pair(zygote):
    return zygote.context(), zygote.context()


def test_contexts_do_not_see_each_other(zygote):
    one, two = pair(zygote)
    one.run("secret = 1; import os; os.environ['SECRET'] = '1'; os.chdir('/')")
    assert two.run("secret").done["error"]["name"] == "NameError"
    assert two.run("import os; os.getcwd(), 'SECRET' in os.environ").bundles == [{"text/plain": "('/tmp', False)"}]
    one.close(), two.close()


def test_contexts_never_draw_the_same_numbers(zygote):
    entropy = "ab" * 32
    drawn = set()
    for _ in range(3):
        # Even the same entropy gives different numbers: the kernel's is mixed in.
        context = zygote.context(entropy=entropy)
        drawn.update(context.run(DRAWS).stdout.split())
        context.close()
    assert len(drawn) == 21


def test_what_a_cell_seeds_stays_seeded(context):
    first = context.run("import random; random.seed(1); random.random()").bundles
    context.run("pass")
    assert context.run("random.seed(1); random.random()").bundles == first


def test_a_thaw_makes_a_living_context_a_new_one(context):
    context.run("import random, os, numpy as np; random.seed(1); np.random.seed(1)")
    would_be = context.run("s = random.getstate(), np.random.get_state(); random.random(), np.random.rand()").bundles
    context.run("random.setstate(s[0]); np.random.set_state(s[1])")
    context.peer.send({"op": "thaw", "entropy": "ab" * 32, "env": {"FROM_THAW": "x"}})
    drawn = context.run("random.random(), np.random.rand()").bundles
    assert drawn != would_be
    assert context.run("os.environ['FROM_THAW']").bundles == [{"text/plain": "'x'"}]
    context.peer.send({"op": "thaw", "entropy": 5, "env": 5})
    assert context.run("random.random(), np.random.rand()").bundles != drawn


def test_a_thaw_changes_the_environment_of_later_contexts(cold_zygote):
    thaw = {"op": "thaw", "entropy": "00" * 32, "env": {"FROM_THAW": "x", "LATER": "thaw"}}
    assert cold_zygote.call(thaw) == {"event": "thawed"}
    context = cold_zygote.context(env={"LATER": "fork"})
    assert context.run("import os; os.environ['FROM_THAW'], os.environ['LATER']").bundles == [
        {"text/plain": "('x', 'fork')"}
    ]
    context.close()


def test_a_context_is_a_session_of_its_own_without_foreign_descriptors(context):
    assert context.run("import os; os.getsid(0) == os.getpid()").bundles == [{"text/plain": "True"}]
    # 0 to 2, the control socket, and the one that lists.
    assert context.run("len(os.listdir('/proc/self/fd')) <= 6").bundles == [{"text/plain": "True"}]
    assert context.run("!ls /proc/self/fd | wc -l").stdout.strip() == "4"


def test_the_zygote_has_one_thread(zygote):
    assert len(os.listdir(f"/proc/{zygote.process.pid}/task")) == 1


@pytest.mark.parametrize(
    "code, status",
    [("import os; os._exit(7)", 7 << 8), ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL)],
)
def test_a_context_that_dies_is_reported_with_its_status(zygote, code, status):
    context = zygote.context()
    context.start(code)
    assert zygote.status_of(context.pid) == status
    assert context.peer.receive() is None
    context.close()


def test_a_context_ends_when_its_socket_is_closed(zygote):
    context = zygote.context()
    context.close()
    assert zygote.status_of(context.pid) == 0


def test_ten_contexts_run_side_by_side(zygote):
    contexts = [zygote.context() for _ in range(10)]
    for number, context in enumerate(contexts):
        context.start(f"n = {number}")
    for context in contexts:
        assert context.peer.receive()["status"] == "ok"
    assert [context.run("n").bundles[0]["text/plain"] for context in contexts] == [str(n) for n in range(10)]
    for context in contexts:
        context.close()


@pytest.mark.parametrize(
    "message, reason",
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe", "not JSON"),
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ({"op": "nope"}, "unknown op"),
        ({}, "unknown op"),
        ({"op": "fork", "context": "c", "cwd": "/", "entropy": "00" * 32}, "needs 3 descriptors"),
        ({"op": "warm"}, "code is not text"),
        ({"op": "warm", "code": "1/0"}, "ZeroDivisionError"),
        ({"op": "warm", "code": "import nosuch"}, "nosuch"),
        ({"op": "warm", "code": "raise SystemExit(1)"}, "SystemExit"),
        ({"op": "thaw", "entropy": "00", "env": {}}, "entropy"),
        ({"op": "thaw", "entropy": 5, "env": {}}, "entropy"),
        ({"op": "thaw", "entropy": "00" * 32, "env": {"a=b": "x"}}, "not a valid variable"),
        ({"op": "thaw", "entropy": "00" * 32, "env": {"a": 1}}, "not text"),
    ],
)
def test_bad_requests_are_answered_and_survived(cold_zygote, message, reason):
    cold_zygote.peer.send(message)
    event = cold_zygote.event()
    assert event["event"] == "failed" and reason in event["message"]
    context = cold_zygote.context()
    assert context.run("1").bundles == [{"text/plain": "1"}]
    context.close()


def test_a_missing_folder_is_refused(cold_zygote):
    reads = [os.pipe() for _ in range(3)]
    request = {"op": "fork", "context": "c", "cwd": "/no/such", "env": {}, "entropy": "00" * 32}
    event = cold_zygote.call(request, [write for _, write in reads])
    message = "cwd: '/no/such' is no directory that the interpreter can see"
    assert event == {"event": "failed", "op": "fork", "code": "invalid", "message": message}
    for read, write in reads:
        os.close(write)
        assert os.read(read, 1) == b"", "the zygote closed what it was given"
        os.close(read)


def test_a_message_longer_than_the_limit_is_skipped(cold_zygote):
    cold_zygote.peer.send(b" " * ((64 << 20) + 1))
    assert "longer than" in cold_zygote.event()["message"]
    assert cold_zygote.call({"op": "x"})["event"] == "failed"


def test_a_context_survives_messages_that_it_does_not_know(context):
    context.peer.send(b"nonsense")
    context.peer.send({"op": "dance"})
    assert "does not understand" in context.run("1").stderr


def test_libraries_imported_by_a_cell_behave_like_warm_ones(cold_zygote):
    context = cold_zygote.context()
    plot = context.run("import matplotlib.pyplot as plt; plt.plot([1]); plt.show()")
    assert [set(bundle) for bundle in plot.bundles] == [{"image/png"}]
    plotly = context.run("import plotly.graph_objects as go; go.Figure().show()")
    assert "text/html" in plotly.bundles[0]
    context.close()


def test_what_a_zygote_leaves_out_can_be_imported(context):
    assert context.run("import sys; 'jedi' in sys.modules or 'prompt_toolkit' in sys.modules").bundles == [
        {"text/plain": "False"}
    ]
    code = "import IPython.terminal.embed, jedi, prompt_toolkit; callable(IPython.terminal.embed.embed)"
    assert context.run(code).bundles == [{"text/plain": "True"}]
    context.run("a_long_name = 1")
    assert context.run("get_ipython().complete('a_long_n')[1]").bundles == [{"text/plain": "['a_long_name']"}]


def test_a_zygote_ends_when_its_socket_is_closed(tmp_path):
    assert Zygote(tmp_path).close() == 0
