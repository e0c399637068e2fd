"""Reading a PNG far enough to know that it is a whole picture, with the standard library."""

from __future__ import annotations

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG whose every chunk is whole and whose picture data unpacks; ValueError otherwise."""
    if not data.startswith(SIGNATURE):
        raise ValueError("it does not start as a PNG does")
    size, packed, position = (0, 0), b"", len(SIGNATURE)
    while position < len(data):
        length, kind = struct.unpack(">I4s", data[position : position + 8])
        body = data[position + 8 : position + 8 + length]
        (checksum,) = struct.unpack(">I", data[position + 8 + length : position + 12 + length])
        if zlib.crc32(kind + body) != checksum:
            raise ValueError(f"its {kind!r} chunk is damaged")
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
        elif kind == b"IDAT":
            packed += body
        elif kind == b"IEND":
            zlib.decompress(packed)
            return size
        position += 12 + length
    raise ValueError("it has no end")
