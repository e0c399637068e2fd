"""plotly figures: the chart as data, as a page, and as text. No image: rendering one costs seconds (`fig.to_image()` does)."""

from . import text

MIME = "application/vnd.plotly.v1+json"
MAX_REPR = 2_000


def bundle(figure, include=None, exclude=None):
    """The bundle of a figure. The page loads plotly's script from plotly's own address, which keeps it small."""
    return {
        "text/plain": text.shorten(repr(figure), MAX_REPR),
        MIME: figure.to_plotly_json(),
        "text/html": figure.to_html(full_html=True, include_plotlyjs="cdn"),
    }


def configure(renderers):
    """Makes `fig.show()` display the same bundle. plotly's own renderers want a notebook or a browser.

    `renderers` is the module `plotly.io._renderers`.
    """

    class Renderer(renderers.ExternalRenderer):
        """Shows a figure as a result of the running cell."""

        def render(self, fig):
            """Called by `plotly.io.show`."""
            import plotly.graph_objects
            from IPython.display import display

            display(plotly.graph_objects.Figure(fig))

    renderers.renderers["atoll"] = Renderer()
    renderers.renderers.default = "atoll"
