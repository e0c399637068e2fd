"""One cell: from its `run` message to its `done` message."""

import os
import sys
from contextlib import suppress

from . import environment, figures, stdio, tracebacks


_NO_CODE = 255
"""What a shell shows for an exit code that is none."""


class Runner:
    """Runs the cells of one context, one after the other."""

    def __init__(self, shell, results, interrupts):
        self._shell = shell
        self._results = results
        self._interrupts = interrupts
        self._pid = os.getpid()

    def run(self, cell, code, variables):
        """Runs a cell and gives its `done` message. Everything that it wrote has reached the descriptors by then."""
        self._interrupts.install()
        self._results.begin(cell)
        error = None
        try:
            self._interrupts.arm()
            with environment.of_run(variables):
                error = self._execute(code)
            figures.end_cell()
            self._results.end()
        except KeyboardInterrupt as interrupt:
            error = error or interrupt
        finally:
            self._interrupts.disarm()
        self._leave_if_forked()
        done = {"event": "done", "cell": cell, **outcome(error)}
        done["execution_count"] = self._shell.execution_count - 1
        stdio.flush()
        return done

    def _execute(self, code):
        """The exception that ended the code, or None."""
        try:
            result = self._shell.run_cell(code, store_history=True)
        finally:
            self._shell.history_manager.outputs.clear()
            self._shell.history_manager.exceptions.clear()
            self._shell.history_manager.db_input_cache.clear()
        return result.error_before_exec or result.error_in_exec

    def _leave_if_forked(self):
        """A child that a cell forked and that ran on to the cell's end ends here: it is no context."""
        if os.getpid() != self._pid:
            stdio.flush()
            os._exit(0)


def outcome(error):
    """`status`, `exit_code` and `error` for the exception that ended a cell, or None."""
    if error is None:
        return {"status": "ok", "exit_code": 0}
    if isinstance(error, SystemExit):
        return {"status": "exit", "exit_code": _exit_code(error.code)}
    status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
    return {"status": status, "exit_code": 1, "error": tracebacks.describe(error)}


def _exit_code(code):
    """As the interpreter itself would: None is 0, a number its lowest byte, anything else is printed and 1.

    A number whose lowest byte is 0 or that no process can end with is 255: only 0 itself is a success.
    """
    if code is None:
        return 0
    if isinstance(code, int):
        # The number itself, whatever a subclass makes of its operators.
        number = int.__add__(code, 0)
        fits = -(2**31) <= number < 2**31
        return (number & 0xFF if fits else 0) or (_NO_CODE if number else 0)
    # Neither its text nor what the cell has put into sys.stderr need be of any use.
    with suppress(Exception):
        print(code, file=sys.stderr)
    return 1
