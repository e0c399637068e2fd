"""matplotlib figures as results: each shown once, as PNG, then closed.

The rule: `plt.show()` sends every open figure that has anything drawn and closes it; the end of a cell does the same with
what is still open. A figure that a cell displayed by hand and did not change afterwards is not sent a second time. An empty
figure (`plt.gcf()` after `plt.show()`) is closed silently.
"""

import io
import sys
import weakref

from . import text

_results = None
_shown = weakref.WeakSet()


def attach(results):
    """Where figures go: called once in each context."""
    global _results
    _results = results


def use_backend(matplotlib):
    """Selects our backend. Not by environment variable: child processes do not have this package."""
    matplotlib.use(f"module://{__package__}.backend")


def harvest():
    """Sends and closes every open figure. Cheap when pyplot was never imported."""
    for manager in _managers():
        try:
            if _has_content(manager.canvas.figure) and not _is_shown(manager.canvas.figure):
                _send(manager.canvas.figure)
        finally:
            sys.modules["matplotlib._pylab_helpers"].Gcf.destroy(manager.num)


def end_cell():
    """Harvests, and forgets what was shown: a later cell may show a figure again."""
    harvest()
    if _shown:
        _shown.clear()


def show_one(figure):
    """Sends a figure that stays open."""
    if not _is_shown(figure):
        _send(figure)


def is_open(obj):
    """Whether this is a figure that the end of the cell will show."""
    return any(manager.canvas.figure is obj for manager in _managers())


def png_of_result(figure):
    """The PNG of a figure that is displayed; None when it is empty or was shown already."""
    if _is_shown(figure) or not _has_content(figure):
        return None
    made = png(figure)
    _shown.add(figure)
    return made


def png(figure):
    """A figure as PNG bytes, with a tight bounding box."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if not isinstance(figure.canvas, FigureCanvasAgg):
        FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    figure.stale = False
    return buffer.getvalue()


def _send(figure):
    try:
        data = png(figure)
    except Exception as error:
        print(f"A figure could not be drawn: {text.describe(error)}", file=sys.stderr)
        return
    _shown.add(figure)
    if _results is not None:
        _results.emit({"image/png": data})


def _has_content(figure):
    return bool(figure.axes or figure.texts or figure.images or figure.lines or figure.patches or figure.artists)


def _is_shown(figure):
    return figure in _shown and not figure.stale


def _managers():
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return helpers.Gcf.get_all_fig_managers() if helpers else ()
