"""MIME bundles as the wire wants them: text and base64 are strings, JSON types are strictly valid values."""

import base64

from . import strict_json, text

MAX_VALUE_BYTES = 12 << 20
"""Largest value of one MIME type, in characters; a larger one is replaced by a sentence in text/plain."""


def to_wire(bundle):
    """A new bundle with only what JSON can carry. Values that cannot be sent leave a note in text/plain."""
    wire, notes = {}, []
    for mime, value in bundle.items():
        if value is None:
            continue
        mime = str(mime)
        made = _value(mime, value)
        if mime == "text/plain":
            made = text.shorten(made, text.MAX_TEXT)
        elif _size(made) > MAX_VALUE_BYTES:
            notes.append(f"({mime} left out: {_size(made)} characters, the limit is {MAX_VALUE_BYTES})")
            continue
        wire[mime] = made
    if notes:
        wire["text/plain"] = "\n".join([wire["text/plain"], *notes] if "text/plain" in wire else notes)
    return wire


def _value(mime, value):
    if mime == "application/json" or mime.endswith("+json"):
        return strict_json.jsonable(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        if _is_text(mime):
            return bytes(value).decode("utf-8", "replace")
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, str):
        # Libraries give base64 with line ends, which not every client's decoder takes.
        return str.__str__(value) if _is_text(mime) else "".join(value.split())
    if _is_text(mime):
        return str(value)
    return strict_json.jsonable(value)


def _is_text(mime):
    return mime.startswith("text/") or mime in ("image/svg+xml", "application/javascript", "application/xml")


def _size(value):
    return len(value) if isinstance(value, str) else len(strict_json.encode(value))
