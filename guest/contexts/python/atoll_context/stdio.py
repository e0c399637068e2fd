"""The standard streams of a context: line-buffered text over descriptors 1 and 2, so that C code and child processes that
write to the same descriptors appear in order."""

import io
import os
import sys


def open_streams():
    """Makes sys.stdin, sys.stdout and sys.stderr anew over descriptors 0 to 2."""
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="replace", closefd=False)
    sys.stdout = sys.__stdout__ = _writer(1)
    sys.stderr = sys.__stderr__ = _writer(2)


def _writer(descriptor):
    raw = io.FileIO(descriptor, "w", closefd=False)
    # A lone surrogate becomes its escape: no text that a cell prints can fail to be encoded.
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)


def flush():
    """Hands everything written so far to the descriptors. Never raises: a cell may have put anything into sys.stdout."""
    for stream in {id(stream): stream for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)}.values():
        try:
            stream.flush()
        except Exception:
            continue


def adopt(standard):
    """Puts descriptors for standard output and error in place, /dev/null as input, and makes the streams anew."""
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (standard[0], 1), (standard[1], 2)):
        os.dup2(source, target)
    for descriptor in {null, *standard} - {0, 1, 2}:
        os.close(descriptor)
    open_streams()
