"""JSON that any parser takes, made from whatever a cell produced.

The rules: NaN and infinities become null; dates and times ISO 8601 text; Decimal and UUID text; NumPy and pandas scalars
and arrays their Python values; sets and tuples lists; bytes base64; keys text; everything else its repr. A lone surrogate
becomes its escape (`\\ud800`) as visible text. Nesting deeper than MAX_DEPTH becomes a repr.
"""

import base64
import codecs
import datetime
import decimal
import json
import math
import uuid

MAX_DEPTH = 100
"""Deepest nesting that is kept."""

_PLAIN = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _escape_surrogates(error):
    # The backslash is doubled because the text is inside a JSON string already.
    bad = error.object[error.start : error.end]
    return "".join(f"\\\\u{ord(character):04x}" for character in bad), error.end


codecs.register_error("atoll_json_surrogates", _escape_surrogates)


def encode(value):
    """UTF-8 bytes of a value that `jsonable` or our own code made."""
    return _PLAIN.encode(value).encode("utf-8", "atoll_json_surrogates")


def jsonable(value, depth=MAX_DEPTH):
    """The same value in dicts, lists, text, numbers, booleans and None only."""
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if depth <= 0:
        return _repr(value)
    if isinstance(value, dict):
        return {_key(key): jsonable(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item, depth - 1) for item in value]
    return _scalar(value, depth)


def _scalar(value, depth):
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return jsonable(float(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):
        # pandas' NaT is a datetime whose text is no date.
        return None if value != value else value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    for method in ("tolist", "item"):
        convert = getattr(value, method, None)
        if callable(convert):
            try:
                return jsonable(convert(), depth - 1)
            except Exception:
                continue
    return _repr(value)


def _key(key):
    if isinstance(key, str):
        return str.__str__(key)
    converted = jsonable(key, 1)
    return converted if isinstance(converted, str) else json.dumps(converted)


def _repr(value):
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}: its repr raised {type(error).__name__}>"
