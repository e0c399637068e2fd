"""MIME bundles as the wire wants them: text and base64 are strings, JSON types are strictly valid values."""

import base64
import mimetypes
import os
import tempfile

from . import strict_json, text

MAX_VALUE = 3 << 20
"""Largest value of one MIME type that is sent, in characters. The agent takes 8 MiB a message."""


def to_wire(bundle):
    """A new bundle with only what JSON can carry. What is too large goes to a file, and text/plain says where."""
    wire, notes = {}, []
    for mime, value in bundle.items():
        if value is None:
            continue
        mime = str(mime)
        made = _value(mime, value)
        if mime == "text/plain":
            wire[mime] = text.shorten(made, text.MAX_TEXT)
        elif (size := _size(made)) > MAX_VALUE:
            notes.append(_spill(mime, made, size))
        else:
            wire[mime] = made
    if notes:
        wire["text/plain"] = "\n".join([wire["text/plain"], *notes] if "text/plain" in wire else notes)
    return wire


def _value(mime, value):
    if _is_json(mime):
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


def _is_json(mime):
    return mime == "application/json" or mime.endswith("+json")


def _is_text(mime):
    return mime.startswith("text/") or mime in ("image/svg+xml", "application/javascript", "application/xml")


def _size(value):
    return len(value) if isinstance(value, str) else len(strict_json.encode(value))


def _spill(mime, value, size):
    """Writes a value to a file and gives the note that names it."""
    suffix = ".json" if _is_json(mime) else mimetypes.guess_extension(mime) or ""
    try:
        descriptor, path = tempfile.mkstemp(prefix="result-", suffix=suffix)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_bytes(mime, value))
    except OSError as error:
        return f"({mime} left out: {size} characters, and no file could be written: {error.strerror})"
    return f"({mime} of {size} characters is in {path})"


def _bytes(mime, value):
    if not isinstance(value, str):
        return strict_json.encode(value)
    if _is_text(mime) or _is_json(mime):
        return value.encode("utf-8", "backslashreplace")
    return base64.b64decode(value)
