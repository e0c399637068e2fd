"""What a cell sends: each row of the result table of the PandaStack contract (section 4.5), and rich results beyond it."""

import base64

import pytest

PNG = b"\x89PNG\r\n\x1a\n"


def png_of(bundle):
    data = base64.b64decode(bundle["image/png"], validate=True)
    assert data.startswith(PNG)
    return data


def test_print_only_gives_output_and_no_result(context):
    cell = context.run("print('text')")
    assert (cell.stdout, cell.stderr, cell.results) == ("text\n", "", [])
    assert cell.done == {"event": "done", "cell": 1, "status": "ok", "exit_code": 0, "execution_count": 1}


@pytest.mark.parametrize("code, text", [("1+1", "2"), ("'a'", "'a'"), ("[1, 2]", "[1, 2]"), ("1.5", "1.5")])
def test_a_last_expression_gives_its_repr_and_no_output(context, code, text):
    cell = context.run(code)
    assert (cell.stdout, cell.bundles) == ("", [{"text/plain": text}])
    assert cell.results[0]["is_last_expression"] is True


@pytest.mark.parametrize("code", ["None", "x = 1", "pass", "", "  \n", "# only a comment", "1+1;", "for i in [1]: i"])
def test_what_has_no_value_gives_no_result(context, code):
    cell = context.run(code)
    assert (cell.stdout, cell.stderr, cell.results) == ("", "", [])
    assert cell.done["status"] == "ok"


def test_a_data_frame_comes_as_text_and_html(context):
    (bundle,) = context.run("import pandas as pd; pd.DataFrame({'a': [1]})").bundles
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"] == "   a\n0  1"


def test_a_large_data_frame_says_its_shape_and_what_is_cut(context):
    (bundle,) = context.run("import pandas as pd; pd.DataFrame({f'c{i}': range(1000) for i in range(80)})").bundles
    assert "[1000 rows x 80 columns]" in bundle["text/plain"]
    assert "(cut: 10 of 1000 rows and 20 of 80 columns are shown" in bundle["text/plain"]
    assert "1000 rows × 80 columns" in bundle["text/html"]


def test_a_data_frame_of_odd_values_is_valid_json(context):
    cell = context.run(
        "import pandas as pd, datetime, decimal\n"
        "pd.DataFrame({'d': [datetime.date.today()], 'n': [float('nan')], 'x': [decimal.Decimal('1.1')],"
        " 't': [pd.Timestamp.now('UTC')]})"
    )
    assert "NaN" in cell.bundles[0]["text/plain"]


def test_a_series_comes_as_text(context):
    (bundle,) = context.run("import pandas as pd; pd.Series([1, 2])").bundles
    assert set(bundle) == {"text/plain"}


def test_show_gives_one_png(context):
    (bundle,) = context.run("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()").bundles
    assert set(bundle) == {"image/png"}
    png_of(bundle)


def test_a_bare_plot_gives_its_repr_and_the_figure(context):
    text, figure = context.run("import matplotlib.pyplot as plt; plt.plot([1, 2])").bundles
    assert text["text/plain"].startswith("[<matplotlib.lines.Line2D")
    assert set(figure) == {"image/png"}


def test_a_figure_as_last_expression_gives_its_repr_and_the_figure(context):
    text, figure = context.run("import matplotlib.pyplot as plt\nfig, ax = plt.subplots(); ax.plot([1]); fig").bundles
    assert text == {"text/plain": "<Figure size 640x480 with 1 Axes>"}
    assert set(figure) == {"image/png"}


def test_a_figure_without_pyplot_carries_its_own_png(context):
    (bundle,) = context.run("from matplotlib.figure import Figure\nf = Figure(); f.subplots().plot([1]); f").bundles
    assert set(bundle) == {"text/plain", "image/png"}


def test_every_open_figure_is_shown_without_show(context):
    code = "import matplotlib.pyplot as plt\nfor i in range(3):\n    plt.figure(); plt.plot([i])"
    assert [set(bundle) for bundle in context.run(code).bundles] == [{"image/png"}] * 3


def test_a_figure_is_shown_once_per_show(context):
    cell = context.run("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show(); plt.gcf()")
    assert [set(bundle) for bundle in cell.bundles] == [{"image/png"}, {"text/plain"}]
    again = context.run("import matplotlib.pyplot as plt\nfig = plt.figure(); plt.plot([1]); plt.show(); fig")
    assert [set(bundle) for bundle in again.bundles] == [{"image/png"}, {"text/plain"}]


def test_a_displayed_figure_is_shown_in_order_and_not_again(context):
    code = "import matplotlib.pyplot as plt\nfig = plt.figure(); plt.plot([1]); display(fig); display('after')"
    figure, text = context.run(code).bundles
    assert "image/png" in figure and text == {"text/plain": "'after'"}


def test_a_figure_can_be_shown_again_by_a_later_cell(context):
    context.run("import matplotlib.pyplot as plt\nfig = plt.figure(); plt.plot([1])")
    (bundle,) = context.run("fig").bundles
    assert set(bundle) == {"text/plain", "image/png"}


def test_figures_are_closed_after_each_cell(context):
    for _ in range(20):
        context.run("import matplotlib.pyplot as plt; plt.figure(); plt.plot(range(9)); plt.show()")
    assert context.run("len(plt.get_fignums())").bundles == [{"text/plain": "0"}]


def test_a_closed_figure_is_not_shown(context):
    cell = context.run("import matplotlib.pyplot as plt; plt.plot([1]); plt.savefig('x.png'); plt.close()")
    assert cell.results == []


@pytest.mark.parametrize("choice", ["%matplotlib inline", "import matplotlib; matplotlib.use('Agg')"])
def test_choosing_another_backend_still_shows_figures_without_noise(context, choice):
    cell = context.run(f"{choice}\nimport matplotlib.pyplot as plt\nplt.plot([1]); plt.show()")
    assert [set(bundle) for bundle in cell.bundles] == [{"image/png"}]
    assert (cell.stdout, cell.stderr) == ("", "")


def test_a_figure_that_cannot_be_drawn_is_told_on_stderr(context):
    cell = context.run("import matplotlib.pyplot as plt; plt.plot([1]); plt.title(r'$\\frac{$'); None")
    assert "A figure could not be drawn: ValueError" in cell.stderr
    assert cell.done["status"] == "ok"


@pytest.mark.parametrize(
    "code, mime, value",
    [
        ("HTML('<b>x</b>')", "text/html", "<b>x</b>"),
        ("Markdown('*x*')", "text/markdown", "*x*"),
        ("SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", "image/svg+xml", None),
        ("JSON({'a': [1, float('nan')]})", "application/json", {"a": [1, None]}),
        ("Latex('$x$')", "text/latex", "$x$"),
    ],
)
def test_display_objects_come_as_text_and_their_own_type(context, code, mime, value):
    (bundle,) = context.run(f"from IPython.display import *\n{code}").bundles
    assert set(bundle) == {"text/plain", mime}
    assert value is None or bundle[mime] == value


def test_a_plotly_figure_comes_as_data_page_and_text(context):
    code = "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(x=['a'], y=[1])); fig"
    (bundle,) = context.run(code).bundles
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.plotly.v1+json"}
    assert bundle["application/vnd.plotly.v1+json"]["data"][0]["type"] == "bar"
    assert len(bundle["text/html"]) < 100_000
    (shown,) = context.run("fig.show()").bundles
    assert set(shown) == set(bundle)


def test_a_plotly_figure_of_arrays_and_dates_is_valid_json(context):
    code = (
        "import plotly.express as px, pandas as pd, numpy as np\n"
        "px.line(pd.DataFrame({'t': pd.date_range('2020', periods=3), 'v': [1.0, np.nan, 3.0]}), x='t', y='v')"
    )
    assert "application/vnd.plotly.v1+json" in context.run(code).bundles[0]


def test_display_comes_in_order_with_output_and_the_last_value(context):
    cell = context.run("print('one'); display(1); print('two'); display('x', HTML='') if False else display('x'); 3")
    assert cell.stdout == "one\ntwo\n"
    assert [bundle["text/plain"] for bundle in cell.bundles] == ["1", "'x'", "3"]
    assert [result["is_last_expression"] for result in cell.results] == [False, False, True]


def test_a_thousand_updates_are_one_result_and_few_messages(context):
    cell = context.run("h = display('a', display_id=True)\nfor i in range(1000): h.update(i)")
    assert cell.bundles == [{"text/plain": "999"}]
    assert len(cell.results) < 20


def test_a_representation_that_raises_is_left_out_with_a_note(context):
    cell = context.run("class X:\n  def _repr_html_(s): raise RuntimeError('r')\n  def __repr__(s): return 'X!'\nX()")
    assert cell.bundles == [{"text/plain": "X!\n(text/html left out: RuntimeError: r)"}]
    assert cell.done["status"] == "ok"


def test_a_repr_that_raises_is_named(context):
    (bundle,) = context.run("class X:\n  def __repr__(s): raise ValueError('no')\nX()").bundles
    assert "X object" in bundle["text/plain"] and "ValueError: no" in bundle["text/plain"]


def test_a_repr_without_end_can_be_interrupted(context):
    code = "class X:\n  def __repr__(s):\n    print('in', flush=True)\n    while True: pass\nX()"
    assert context.run(code, interrupt_when=b"in").done["status"] == "interrupted"
    assert context.run("1").bundles == [{"text/plain": "1"}]


def test_huge_values_are_cut_with_counts(context):
    (many,) = context.run("list(range(10**7))").bundles
    assert many["text/plain"].endswith("(cut: 1000 of 10000000 items are shown)")
    (long,) = context.run("'x' * 5_000_000").bundles
    assert len(long["text/plain"]) < 110_000 and "of 5000002 characters cut" in long["text/plain"]
    (number,) = context.run("10**5000").bundles
    assert "Exceeds the limit" in number["text/plain"]


def test_a_huge_value_goes_to_a_file_that_the_text_names(context):
    (bundle,) = context.run("from IPython.display import HTML\nHTML('x' * 20_000_000)").bundles
    assert set(bundle) == {"text/plain"}
    path = bundle["text/plain"].split("text/html of 20000000 characters is in ")[1].rstrip(")")
    assert path.endswith(".html")
    assert context.run(f"import os; size = os.path.getsize({path!r}); os.remove({path!r}); size").bundles == [
        {"text/plain": "20000000"}
    ]


def test_images_of_any_kind_are_base64_without_line_ends(context):
    code = (
        "from IPython.display import Image\nimport io\nfrom PIL import Image as P\n"
        "b = io.BytesIO(); P.new('RGB', (200, 200)).save(b, 'JPEG')\ndisplay(Image(b.getvalue())); P.new('RGB', (9, 9))"
    )
    jpeg, pillow = context.run(code).bundles
    assert base64.b64decode(jpeg["image/jpeg"], validate=True)[:2] == b"\xff\xd8"
    png_of(pillow)


def test_the_last_values_are_kept_as_underscores(context):
    context.run("40 + 1")
    assert context.run("_ + 1").bundles == [{"text/plain": "42"}]
    assert context.run("Out[1]").bundles == [{"text/plain": "41"}]


def test_lone_surrogates_break_nothing(context):
    cell = context.run("print('\\ud800'); '\\udfff' + chr(0xd800)")
    assert cell.stdout == "\\ud800\n"
    assert "\\udfff" in cell.bundles[0]["text/plain"]
    cell = context.run("from IPython.display import HTML, JSON; display(HTML('\\ud800')); JSON({'\\ud800': '\\ud800'})")
    assert cell.bundles[0]["text/html"] == "\\ud800"
    cell = context.run("raise ValueError('\\ud800')")
    assert cell.done["error"]["value"] == "\\ud800"
