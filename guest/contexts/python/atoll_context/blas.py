"""Ends the threads that OpenBLAS starts when NumPy and SciPy are imported.

Threads make a snapshot slower to restore, and a fork would lose them anyway. OpenBLAS starts them again by itself at the
first large enough operation, so nothing has to be undone in a context.
"""

import ctypes


def end_threads():
    """Stops the worker threads of every OpenBLAS in this process."""
    for path in _libraries():
        library = ctypes.CDLL(path)
        shutdown = getattr(library, "blas_thread_shutdown_", None)
        if shutdown is not None:
            shutdown()


def _libraries():
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
    return sorted(paths)
