"""What a zygote does before its snapshot is taken: the template's imports, and a rehearsal of what contexts do."""

import gc
import sys

from . import blas, cell, figures, frames, imports, interrupts, plotly_figures, results, shell

REHEARSAL = [
    "1 + 1",
    "x = 'text'; x",
    "print('', end='')",
    "1 / 0",
    "def f(:",
    "import asyncio; await asyncio.sleep(0)",
    "from IPython.display import display, HTML, Markdown; display(HTML('<b>x</b>')); Markdown('x')",
    "%pwd",
]
"""Cells of which each exercises another path, so that the first real one finds it imported and compiled."""

REHEARSAL_WITH = {
    "pandas": "import pandas as pd; pd.DataFrame({'a': [1.5, None], 'b': ['x', 'y']})",
    "matplotlib.pyplot": "import matplotlib.pyplot as plt; plt.plot([1, 2], label='x'); plt.title('x'); plt.legend()",
    "plotly.graph_objects": "import plotly.graph_objects as go; go.Figure(go.Bar(x=['a'], y=[1]))",
}
"""The same for libraries that the template keeps warm."""


class _Nowhere:
    """A channel to nobody."""

    def send(self, message, *, hold=False):
        """Forgets it."""


def prepare():
    """Settings for libraries of results, whenever they are imported."""
    imports.after_import("matplotlib", figures.use_backend)
    imports.after_import("pandas", frames.configure)
    imports.after_import("plotly.io._renderers", plotly_figures.configure)


def warm(interactive, code):
    """Runs a template's warm-up code, rehearses, and makes the process ready to be forked."""
    namespace = {"__name__": "__warm__", "__builtins__": __builtins__}
    exec(compile(code, "<warm-up>", "exec"), namespace)
    namespace.clear()
    rehearse(interactive)
    blas.end_threads()
    # Objects that exist now are never garbage to a context: its collector shall not touch, and so copy, their pages.
    gc.collect()
    gc.freeze()


def rehearse(interactive):
    """Runs a few cells to nobody and forgets them."""
    names = set(interactive.user_ns)
    sink = results.Results(_Nowhere())
    interactive.results = sink
    figures.attach(sink)
    runner = cell.Runner(interactive, sink, interrupts.Interrupts())
    extra = [code for module, code in REHEARSAL_WITH.items() if module in sys.modules]
    for number, code in enumerate(REHEARSAL + extra):
        runner.run(number, code, {"ATOLL_REHEARSAL": "1"})
    _forget(interactive, names)


def _forget(interactive, names):
    for name in set(interactive.user_ns) - names:
        del interactive.user_ns[name]
    interactive.reset(new_session=True, aggressive=False)
    interactive.execution_count = 1
    shell.close_loop()
