"""Exceptions as the `done` message carries them: Python's own format, without our frames, colours or flood."""

import os
import traceback

import IPython

from . import text

HEAD_FRAMES = 15
TAIL_FRAMES = 15
"""Frames that are kept of a deep traceback, from its beginning and from its end."""

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_IPYTHON = os.path.dirname(os.path.abspath(IPython.__file__)) + os.sep


def describe(error):
    """`{name, value, traceback}` of an exception that a cell raised."""
    return {"name": type(error).__name__, "value": text.value_of(error), "traceback": formatted(error)}


def formatted(error):
    """The traceback as text, cut to a bound."""
    try:
        summary = traceback.TracebackException.from_exception(error, compact=True)
        _clean(summary, set())
        lines = "".join(summary.format())
    except Exception as failure:
        lines = f"{text.describe(error)}\n(its traceback could not be made: {text.describe(failure)})\n"
    return text.shorten(lines, text.MAX_TRACEBACK)


def _clean(summary, seen):
    """Drops our frames and cuts the rest, in the exception, its causes and the members of a group."""
    if summary is None or id(summary) in seen:
        return
    seen.add(id(summary))
    frames = list(summary.stack)
    if issubclass(summary.exc_type, SyntaxError) and all(_is_ours(frame) for frame in frames):
        frames = []
    summary.stack[:] = _cut(_without_lead(frames))
    for inner in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
        _clean(inner, seen)


def _without_lead(frames):
    """Frames from the first on that is neither ours nor IPython's; in the middle IPython's stay (magics that failed)."""
    for index, frame in enumerate(frames):
        if not _is_ours(frame):
            return [kept for kept in frames[index:] if not kept.filename.startswith(_OURS)]
    return []


def _is_ours(frame):
    return frame.filename.startswith((_OURS, _IPYTHON)) or frame.filename.endswith(os.sep + "zygote.py")


def _cut(frames):
    if len(frames) <= HEAD_FRAMES + TAIL_FRAMES + 1:
        return frames
    dropped = len(frames) - HEAD_FRAMES - TAIL_FRAMES
    note = traceback.FrameSummary(f"... {dropped} frames left out ...", None, "...", lookup_line=False, line="")
    return [*frames[:HEAD_FRAMES], note, *frames[-TAIL_FRAMES:]]
