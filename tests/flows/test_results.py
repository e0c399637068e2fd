"""Rich results: what a cell shows, in order, once, and in a form that can be sent (faults, section C)."""

from __future__ import annotations

import json

import pytest
from client import Context, decoded

pytestmark = pytest.mark.full_template

PNG = b"\x89PNG\r\n\x1a\n"


def kinds(answer: dict) -> list[set[str]]:
    """The MIME types of each result."""
    return [set(bundle) for bundle in answer["results"]]


def pictures(answer: dict) -> list[bytes]:
    """Every PNG of an answer."""
    return [decoded(bundle["image/png"]) for bundle in answer["results"] if "image/png" in bundle]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('only text')", []),
        ("42", [{"text/plain"}]),
        ("None", []),
        ("x = 5", []),
        ("import pandas as pd\npd.DataFrame({'a': [1]})", [{"text/plain", "text/html"}]),
        ("import pandas as pd\npd.Series([1, 2])", [{"text/plain"}]),
        ("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", [{"image/png"}]),
        ("import matplotlib.pyplot as plt\nplt.plot([1, 2])", [{"text/plain"}, {"image/png"}]),
        ("from IPython.display import HTML\nHTML('<b>x</b>')", [{"text/plain", "text/html"}]),
        ("from IPython.display import Markdown\nMarkdown('*x*')", [{"text/plain", "text/markdown"}]),
        (
            "from IPython.display import SVG\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')",
            [{"text/plain", "image/svg+xml"}],
        ),
        ("from IPython.display import JSON\nJSON({'a': [1]})", [{"text/plain", "application/json"}]),
    ],
)
def test_each_kind_of_value_arrives_in_the_forms_that_clients_look_for(
    context: Context, code: str, expected: list[set[str]]
):
    answer = context.rc(code)
    assert answer.exit == 0, answer.error
    got = kinds(answer)
    assert len(got) == len(expected)
    for have, want in zip(got, expected, strict=True):
        assert want <= have | ({"text/plain"} if have == {"image/png"} else set())
    assert all(isinstance(value, str) for bundle in answer["results"] for value in bundle.values())
    assert all(picture.startswith(PNG) for picture in pictures(answer))


@pytest.mark.fault(37)
@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("plt.plot([1, 2]); plt.show()", 1),
        ("plt.plot([1, 2]); plt.show(); plt.gcf()", 1),
        ("for i in range(3):\n    plt.figure(); plt.plot([i, 2]); plt.show()", 3),
        ("plt.figure(); plt.plot([1]); plt.figure(); plt.plot([2]); None", 2),
        ("fig, ax = plt.subplots(); ax.plot([1, 2]); fig", 1),
        ("from IPython.display import display\nfig, ax = plt.subplots(); display(fig); plt.close(fig)", 1),
    ],
    ids=["one-show", "show-then-gcf", "three-shows", "two-left-open", "figure-as-value", "displayed"],
)
def test_a_figure_is_shown_as_often_as_it_is_asked_for(context: Context, code: str, count: int):
    """`gcf()` after `show()` makes a new figure; as nothing is drawn in it, it is no picture."""
    answer = context.rc(f"import matplotlib.pyplot as plt\n{code}")
    assert answer.exit == 0, answer.error
    assert len(pictures(answer)) == count
    assert context.value("len(plt.get_fignums())") == "0"


@pytest.mark.fault(38)
def test_two_hundred_figures_leave_none_open_and_do_not_grow_the_context(context: Context):
    draw = "import matplotlib.pyplot as plt\nplt.figure(); plt.plot(range(9)); plt.show()"
    rss = "int(open('/proc/self/statm').read().split()[1]) * 4096"
    for _ in range(10):
        context.rc(draw)
    before = int(context.value(rss))
    for _ in range(190):
        assert len(pictures(context.rc(draw))) == 1
    assert context.value("len(plt.get_fignums())") == "0"
    assert int(context.value(rss)) - before < 60 << 20


@pytest.mark.fault(40)
@pytest.mark.parametrize(
    "value",
    [
        "pd.DataFrame({'d': [datetime.date.today()], 'n': [float('nan')], 'x': [decimal.Decimal('1.1')],"
        " 't': [pd.Timestamp.now('UTC')]})",
        "pd.NaT",
        "float('inf')",
        "{'when': datetime.datetime.now(), 'what': {1, 2}, 'nan': float('nan')}",
        "IPython.display.JSON({'n': float('nan'), 'd': str(datetime.date.today())})",
        "np.array([np.nan, np.inf])",
        "complex(1, 2)",
        "b'\\xff\\x00'",
        "type('Odd', (), {'_repr_json_': lambda self: {'d': datetime.date(2026, 1, 2), 1: {2}}})()",
        "type('Odd', (), {'_repr_mimebundle_': lambda self, **_: {'application/json': {'n': float('nan')}, 7: 8}})()",
    ],
)
def test_values_that_json_cannot_say_do_not_lose_the_result(context: Context, value: str):
    answer = context.rc(f"import datetime, decimal, IPython.display\nimport numpy as np, pandas as pd\n{value}")
    assert answer.exit == 0, answer.error
    (bundle,) = answer["results"]
    assert bundle["text/plain"]
    if "application/json" in bundle:
        json.loads(bundle["application/json"], parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.mark.fault(41)
def test_a_wide_and_long_table_says_its_shape_where_it_was_cut(context: Context):
    answer = context.rc("import pandas as pd\npd.DataFrame({f'c{i}': range(1000) for i in range(80)})")
    (bundle,) = answer["results"]
    assert "1000 rows" in bundle["text/plain"] and "80 columns" in bundle["text/plain"]
    assert "1000 rows" in bundle["text/html"]


@pytest.mark.fault(43)
def test_a_display_that_is_updated_is_one_result_with_its_last_value(context: Context):
    answer = context.rc(
        "from IPython.display import display\n"
        "h = display('a', display_id=True)\n"
        "display('between')\n"
        "for i in range(1000): h.update(i)"
    )
    assert [bundle["text/plain"] for bundle in answer["results"]] == ["999", "'between'"]


def test_display_and_last_value_come_in_order(context: Context):
    answer = context.rc("from IPython.display import display\ndisplay(1)\nprint('x')\ndisplay(2, 3)\n4")
    assert [bundle["text/plain"] for bundle in answer["results"]] == ["1", "2", "3", "4"]


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    "method", ["_repr_html_", "_repr_png_", "_repr_mimebundle_", "_repr_json_", "_ipython_display_"]
)
def test_a_representation_that_raises_leaves_the_plain_one_and_a_note(context: Context, method: str):
    answer = context.rc(
        f"class X:\n  def {method}(self, *a, **k): raise RuntimeError('r')\n  def __repr__(self): return 'X!'\nX()"
    )
    assert answer.exit == 0
    text = answer["results"][-1]["text/plain"]
    assert text.startswith("X!") and "RuntimeError: r" in text


@pytest.mark.fault(46)
@pytest.mark.parametrize("method", ["_repr_html_", "__repr__"])
def test_a_representation_that_never_ends_meets_the_cells_deadline(context: Context, method: str):
    answer = context.rc(f"class X:\n  def {method}(self):\n    while True: pass\nX()", t=2)
    assert answer.outcome == "timeout"
    assert context.value("1 + 1") == "2"


@pytest.mark.fault(46)
def test_a_representation_that_is_no_text_is_an_error_of_the_cell(context: Context):
    answer = context.rc("class X:\n  def __repr__(self): return 7\nX()")
    assert answer.outcome in ("ok", "error")
    assert context.value("1 + 1") == "2"


@pytest.mark.fault(47)
def test_a_list_of_ten_million_numbers_is_cut_and_a_too_long_number_is_told(context: Context):
    answer = context.rc("list(range(10 ** 7))", t=20)
    assert answer.exit == 0
    text = answer["results"][-1]["text/plain"]
    assert text.startswith("[0,") and len(text) < 2_000_000
    answer = context.rc("10 ** 5000")
    assert "4300" in (answer.error or answer["results"][-1]["text/plain"])


@pytest.mark.fault(47)
def test_a_traceback_of_a_thousand_frames_is_readable(context: Context):
    answer = context.rc("def f(n): return f(n + 1)\nf(0)")
    assert answer.exit == 1
    assert "RecursionError" in answer.error
    assert len(answer.error) < 60_000


@pytest.mark.full_template
def test_a_plotly_figure_arrives_as_chart_data_html_and_picture(context: Context):
    answer = context.rc("import plotly.express as px\npx.bar(x=['a', 'b'], y=[1, 2])", t=20)
    assert answer.exit == 0, answer.error
    bundle = answer["results"][-1]
    figure = json.loads(bundle["application/vnd.plotly.v1+json"])
    assert figure["data"][0]["type"] == "bar"
    assert "plotly" in bundle["text/html"].lower()
