"""Whether this sandbox has a network at all, and what to say when it has none."""

import socket

NO_NETWORK = "this sandbox has no network (its policy allows none)"


def available():
    """Whether any interface but the loopback exists."""
    try:
        return any(name != "lo" for _index, name in socket.if_nameindex())
    except OSError:
        return True
