"""Child processes that a cell starts with `!`, `%pip` or `%%bash`. They write to the context's own descriptors 1 and 2."""

import os
import re
import signal
import subprocess
import sys

from . import network, stdio

_PIP = re.compile(r"(^|[\s;&|/])(pip3?|uv)\s")
_GRACE = 2.0


def run(argv):
    """Runs a program to its end and gives its exit code; -n when signal n ended it.

    pip is told at once that there is no index when there is no network: it answers "already satisfied" for what is
    there, and fails in a moment, not after a minute of retries, for what is not.
    """
    environment = None
    offline = not network.available()
    if offline:
        environment = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **os.environ}
    stdio.flush()
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=1, stderr=2, env=environment)
    code = _wait(child)
    if code and offline and _PIP.search(" ".join(argv) + " "):
        print(f"pip cannot reach a package index: {network.NO_NETWORK}.", file=sys.stderr)
    return code


def shell_argv(command):
    """The command line that runs a text in the user's shell."""
    shell = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.access(path, os.X_OK)), "/bin/sh")
    return [shell, "-c", command]


def _wait(child):
    """Waits; an interrupt is passed on to the child, which is killed when it does not obey."""
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
