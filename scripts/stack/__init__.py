"""A real server for whoever needs one: the demo, the flows, the recipes and the measurements.

Only the standard library is used, so that each of them can import it from its own environment.
"""

from .client_config import ClientConfig
from .host import Leftovers, descendants, memory_of
from .server import Server, ServerFailed, answering, default_state, repository

__all__ = [
    "ClientConfig",
    "Leftovers",
    "Server",
    "ServerFailed",
    "answering",
    "default_state",
    "descendants",
    "memory_of",
    "repository",
]
