"""The environment of one run, put back afterwards."""

import os
import time
from contextlib import contextmanager


def adopt(variables):
    """Takes variables for good, and the time zone that comes with them."""
    os.environ.update(variables)
    time.tzset()


@contextmanager
def of_run(variables):
    """Sets variables for the length of a block; what they hid comes back, whatever the block did to them."""
    if not variables:
        yield
        return
    hidden = {name: os.environ.get(name) for name in variables}
    adopt(variables)
    try:
        yield
    finally:
        for name, value in hidden.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        time.tzset()


def invalid(variables):
    """Why these cannot be an environment, or None."""
    if not isinstance(variables, dict):
        return "env is not an object"
    for name, value in variables.items():
        if not isinstance(value, str):
            return f"env {name!r} is not text"
        if not name or "=" in name or "\0" in name or "\0" in value:
            return f"env {name!r} is not a valid variable"
    return None
