"""SIGINT: KeyboardInterrupt in a running cell, nothing otherwise.

The agent interrupts by SIGINT, which may come at any moment: while the context is idle, or just when a control message is
half written. `Interrupts` raises only while a cell is armed, and never inside a `held` block (it raises at its end).
"""

import signal
from contextlib import contextmanager


class Interrupts:
    """The SIGINT handler of one context."""

    def __init__(self):
        self._armed = False
        self._held = 0
        self._pending = False

    def install(self):
        """Takes SIGINT (back, should a cell have taken it)."""
        if signal.getsignal(signal.SIGINT) != self._handle:
            signal.signal(signal.SIGINT, self._handle)

    def arm(self):
        """From here on an interrupt raises KeyboardInterrupt."""
        self._pending = False
        self._armed = True

    def disarm(self):
        """From here on an interrupt does nothing."""
        self._armed = False

    @contextmanager
    def held(self):
        """Inside, an interrupt waits; it is raised on the way out."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if self._pending and not self._held and self._armed:
                self._pending = False
                raise KeyboardInterrupt

    def _handle(self, _signum, _frame):
        if not self._armed:
            return
        if self._held:
            self._pending = True
            return
        raise KeyboardInterrupt
