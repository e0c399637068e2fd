"""Code contexts: every row of the table of results (pandastack-v1 §4.5)."""

from __future__ import annotations

import base64
import threading
import time

import pytest
from pandastack import BadRequestError, CodeContext, NotFoundError, Sandbox, SandboxTimeout

PNG = b"\x89PNG\r\n\x1a\n"


def is_png(text: str | None) -> bool:
    return text is not None and base64.b64decode(text, validate=True).startswith(PNG)


def test_state_is_kept_from_cell_to_cell_and_not_shared(sandbox: Sandbox, context: CodeContext):
    assert len(context.id) == 16 and context.language == "python"
    context.run_code("x = 41")
    assert context.run_code("x + 1").text == "42"
    with sandbox.create_code_context("Python3") as other:
        assert "NameError" in (other.run_code("x").error or "")


def test_print_only(context: CodeContext):
    ran = context.run_code("print('hello')")
    assert (ran.stdout, ran.stderr, ran.results, ran.error, ran.exit_code) == ("hello\n", "", [], None, 0)
    assert ran.logs == {"stdout": "hello\n", "stderr": ""}


@pytest.mark.parametrize(("code", "text"), [("7", "7"), ("'a'", "'a'"), ("[1, None]", "[1, None]")])
def test_the_last_expression_is_a_result_and_not_echoed(context: CodeContext, code: str, text: str):
    ran = context.run_code(code)
    assert (ran.stdout, ran.text, len(ran.results)) == ("", text, 1)


@pytest.mark.parametrize("code", ["None", "x = 1", "", "pass", "# nothing"])
def test_nothing_gives_an_empty_success(context: CodeContext, code: str):
    ran = context.run_code(code)
    assert (ran.stdout, ran.stderr, ran.results, ran.error, ran.exit_code) == ("", "", [], None, 0)


def test_a_data_frame_is_one_result_with_text_and_html(context: CodeContext):
    ran = context.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    assert len(ran.results) == 1
    assert "<table" in ran.results[0].html and "a" in ran.results[0].text
    series = context.run_code("pd.Series([1, 2])")
    assert series.results[0].html is None and "dtype" in series.text


def test_figures_come_as_png_once_each_and_are_closed(context: CodeContext):
    shown = context.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()")
    assert [is_png(result.png) for result in shown.results] == [True]
    assert is_png(shown.png) and is_png(shown.results[0].chart)
    bare = context.run_code("plt.plot([1, 2])")
    assert bare.results[0].text.startswith("[<matplotlib") and is_png(bare.results[-1].png)
    two = context.run_code("plt.figure(); plt.plot([1])\nplt.figure(); plt.plot([2])\nNone")
    assert sum(is_png(result.png) for result in two.results) == 2
    assert context.run_code("len(plt.get_fignums())").text == "0"


def test_display_objects_have_their_type_beside_the_text(context: CodeContext):
    ran = context.run_code(
        "from IPython.display import HTML, JSON, Markdown, SVG, display\n"
        "display(HTML('<b>b</b>')); display(Markdown('# m')); display(JSON({'a': [1, None]}))\n"
        "SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"
    )
    html, markdown, json, svg = ran.results
    assert html.html == "<b>b</b>" and markdown.markdown == "# m" and "<svg" in svg.svg
    assert json.json == {"a": [1, None]}
    assert all(isinstance(value, str) for result in ran.results for value in result.data.values())


def test_a_plotly_figure_has_html_and_its_json(context: CodeContext):
    ran = context.run_code("import plotly.graph_objects as go\ngo.Figure(go.Bar(y=[1, 2]))")
    figure = ran.results[-1]
    assert "plotly" in figure.html.lower()
    assert figure.data["application/vnd.plotly.v1+json"].startswith("{")


def test_an_exception_is_in_error_and_on_stderr_with_what_came_before(context: CodeContext):
    ran = context.run_code("print('before')\n1 / 0")
    assert (ran.stdout, ran.exit_code) == ("before\n", 1)
    assert "ZeroDivisionError" in ran.error and "ZeroDivisionError" in ran.stderr
    assert "Traceback" in ran.error and "\x1b" not in ran.error
    assert ran.stderr.count("ZeroDivisionError: division by zero") == 1


def test_an_exit_has_its_code_and_the_context_goes_on(context: CodeContext):
    context.run_code("x = 1")
    ran = context.run_code("import sys; print('bye'); sys.exit(3)")
    assert (ran.stdout, ran.exit_code, ran.error) == ("bye\n", 3, None)
    assert context.run_code("x").text == "1"


def test_a_cell_past_its_deadline_is_a_timeout_and_the_next_answer_is_its_own(context: CodeContext):
    context.run_code("kept = 5")
    with pytest.raises(SandboxTimeout):
        context.run_code("import time; time.sleep(5); print('OLD')", timeout_seconds=1)
    ran = context.run_code("print('NEW', kept)")
    assert ran.stdout == "NEW 5\n"


@pytest.mark.slow
def test_a_long_cell_outlives_the_clients_patience(context: CodeContext):
    assert context.run_code("import time; time.sleep(33); 'done'", timeout_seconds=60).text == "'done'"


@pytest.mark.slow
def test_a_long_cells_deadline_is_told_in_its_result(context: CodeContext):
    ran = context.run_code("import time; print('so far', flush=True); time.sleep(60)", timeout_seconds=31)
    assert (ran.exit_code, ran.error) == (124, "cell timeout after 31s")
    assert ran.stdout == "so far\n" and "timeout" in ran.stderr
    assert context.run_code("1 + 1").text == "2"


@pytest.mark.slow
def test_a_long_commands_deadline_is_told_in_its_result(sandbox: Sandbox):
    ran = sandbox.exec("echo so far; sleep 60", timeout_seconds=31)
    assert (ran.exit_code, ran.stdout) == (124, "so far\n")
    assert "timeout" in ran.stderr


def test_cells_of_one_context_queue_and_of_two_run_side_by_side(sandbox: Sandbox, context: CodeContext):
    def nap(where: CodeContext) -> None:
        where.run_code("import time; time.sleep(.5); n = globals().get('n', 0) + 1")

    threads = [threading.Thread(target=nap, args=(context,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    with sandbox.create_code_context() as other:
        started = time.monotonic()
        nap(other)
        assert time.monotonic() - started < 1.9
    for thread in threads:
        thread.join()
    assert context.run_code("n").text == "4"


def test_code_of_any_text_runs(context: CodeContext):
    assert context.run_code("'é 日本語 😀 \\u2028'.upper()").text == repr("É 日本語 😀 \u2028")
    assert context.run_code("for i in range(3):\n\tprint(i)\n").stdout == "0\n1\n2\n"


def test_shell_lines_and_magics_work(context: CodeContext):
    assert context.run_code("!echo hi").stdout == "hi\n"
    assert context.run_code("%%bash\necho yo").stdout == "yo\n"


def test_async_code_works(context: CodeContext):
    assert context.run_code("import asyncio\nawait asyncio.sleep(0, 5)").text == "5"


def test_other_languages_and_closed_contexts_are_refused(sandbox: Sandbox):
    with pytest.raises(BadRequestError, match="language"):
        sandbox.create_code_context("cobol")
    context = sandbox.create_code_context()
    context.close()
    with pytest.raises(NotFoundError, match="not found"):
        context.run_code("1")
    context.close()
    assert sandbox.refresh().status == "running"
