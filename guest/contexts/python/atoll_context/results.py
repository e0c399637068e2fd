"""Results of the running cell, sent in order of appearance."""

import sys
import time

from . import bundles

UPDATE_INTERVAL = 0.2
"""Seconds between two rounds of `update_display` messages; in between only the newest value of each display is kept."""


class Results:
    """Where displayed values go. One for the life of a context; `begin` and `end` bound a cell."""

    def __init__(self, channel):
        self._channel = channel
        self._cell = None
        self._updates = {}
        self._updated_at = 0.0

    def begin(self, cell):
        """Results belong to this cell from now on."""
        self._cell = cell

    def end(self):
        """Sends what was held back. Later results, of threads that a cell left behind, belong to nobody and are dropped."""
        self._send_updates()
        self._cell = None

    def emit(self, bundle, *, is_last_expression=False, display_id=None, update=False, hold=False):
        """Sends one bundle; an update replaces the earlier result of that display_id. `hold` is `Channel.send`'s."""
        if self._cell is None:
            return
        message = {"event": "result", "cell": self._cell, "bundle": bundles.to_wire(bundle)}
        message["is_last_expression"] = is_last_expression
        if display_id is not None:
            message["display_id"] = str(display_id)
        if update:
            message["update"] = True
            self._updates[message.get("display_id")] = message
            if time.monotonic() - self._updated_at >= UPDATE_INTERVAL:
                self._send_updates()
            return
        # What was printed before this result is to arrive before it.
        sys.stdout.flush()
        self._channel.send(message, hold=hold)

    def _send_updates(self):
        while self._updates:
            _, message = self._updates.popitem()
            self._channel.send(message)
        self._updated_at = time.monotonic()
