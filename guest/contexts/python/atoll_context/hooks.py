"""IPython's two ways to show a value, sent to the agent instead of a terminal."""

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher

from . import figures


class ResultHook(DisplayHook):
    """The value of a cell's last expression."""

    def quiet(self):
        """Whether the cell ends with a semicolon. Cells without one are spared the tokenizer."""
        cells = self.shell.history_manager.input_hist_parsed
        return ";" in cells[-1] and super().quiet()

    def __call__(self, result=None):
        """Shows a value and keeps it as `_` and in `Out`."""
        self.check_for_underscore()
        if result is None or self.quiet():
            return
        # An open figure comes as a result of its own at the end of the cell.
        exclude = ("image/png",) if figures.is_open(result) else None
        bundle, _metadata = self.shell.display_formatter.format(result, exclude=exclude)
        self.update_user_ns(result)
        self.fill_exec_result(result)
        if bundle:
            # With "all" every expression comes here, and more code may follow.
            ends_cell = self.shell.ast_node_interactivity != "all"
            self.shell.results.emit(bundle, is_last_expression=True, hold=ends_cell)

    def cull_cache(self):
        """Forgets the oldest values of `Out`, without the warning of the base class."""
        outputs = self.shell.user_ns.get("_oh", {})
        for count in sorted(outputs)[: max(int(len(outputs) * self.cull_fraction), 2)]:
            self.shell.user_ns.pop(f"_{count}", None)
            outputs.pop(count, None)


class ResultPublisher(DisplayPublisher):
    """`display()` and `update_display()`."""

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **_ignored):
        """Shows a bundle."""
        self._validate_data(data, metadata)
        display_id = (transient or {}).get("display_id")
        self.shell.results.emit(data, display_id=display_id, update=update)

    def clear_output(self, wait=False):
        """Nothing: a result that was sent is not taken back."""
