"""A matplotlib backend: Agg, whose `show` sends figures as results."""

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from . import figures


class FigureManager(FigureManagerBase):
    """Shows by sending."""

    @classmethod
    def pyplot_show(cls, *, block=None):
        """`plt.show()`: every open figure."""
        figures.harvest()

    def show(self):
        """`figure.show()`: the others stay open."""
        figures.show_one(self.canvas.figure)


class FigureCanvas(FigureCanvasAgg):
    """Agg's canvas with our manager."""

    manager_class = FigureManager
