"""Texts that are too long, and texts that objects refuse to give."""

MAX_TEXT = 100_000
"""Longest text/plain of one result, in characters."""

MAX_TRACEBACK = 20_000
"""Longest traceback, in characters."""

MAX_VALUE = 10_000
"""Longest text of an exception, in characters."""


def shorten(text, limit):
    """The text itself, or its head and tail with the number of characters between them that were left out."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    cut = len(text) - head - tail
    return f"{text[:head]}\n... [{cut} of {len(text)} characters cut] ...\n{text[-tail:]}"


def describe(error):
    """`Name: text` of an exception, whatever its `__str__` does."""
    name = type(error).__name__
    value = value_of(error)
    return f"{name}: {value}" if value else name


def value_of(error):
    """The text of an exception, cut; a note when its `__str__` raises."""
    try:
        return shorten(str(error), MAX_VALUE)
    except Exception as inner:
        return f"<its text could not be made: {type(inner).__name__}>"
