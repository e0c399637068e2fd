"""Framing of control messages: `{length u32 big-endian}{JSON}` over a Unix stream socket.

Descriptors travel as SCM_RIGHTS beside the first byte of a message.
"""

import array
import json
import os
import socket
import struct
import threading
from contextlib import nullcontext

from . import strict_json

HEADER = struct.Struct(">I")
"""Length of the JSON that follows, in bytes."""

MAX_MESSAGE = 64 << 20
"""Longest message that is read, in bytes; a longer one is skipped and reported as malformed."""

MAX_DESCRIPTORS = 16
"""Most descriptors that one message may carry."""


class Malformed(Exception):
    """A message that could not be understood. The stream is intact: the next message can be read."""


class Channel:
    """One end of a control socket. `send` may be called from any thread, `receive` from one."""

    def __init__(self, sock, shield=nullcontext):
        """`shield` makes a context manager that keeps KeyboardInterrupt away while a message is half written."""
        self._socket = sock
        self._shield = shield
        self._lock = threading.Lock()
        self._held = b""

    def fileno(self):
        """The socket's descriptor; -1 once abandoned."""
        return self._socket.fileno()

    def abandon(self):
        """Closes this process's copy; later sends do nothing. For processes that a cell forks."""
        self._lock = threading.Lock()
        self._held = b""
        self._socket.close()

    def send(self, message, *, hold=False):
        """Writes one message, a JSON-able dict. Blocks until the peer took it.

        `hold` keeps it back until the next one, which must follow at once: to wake the peer takes longer than to write.
        """
        body = strict_json.encode(message)
        with self._shield(), self._lock:
            self._held += HEADER.pack(len(body)) + body
            if hold:
                return
            data, self._held = self._held, b""
            if self._socket.fileno() >= 0:
                self._socket.sendall(data)

    def receive(self):
        """The next message and its descriptors; `(None, [])` when the peer has closed.

        Raises Malformed for what is not a JSON object; its descriptors are closed then.
        """
        header, descriptors = self._receive_header()
        if header is None:
            return None, []
        try:
            return self._receive_body(HEADER.unpack(header)[0]), descriptors
        except BaseException:
            close_all(descriptors)
            raise

    def _receive_header(self):
        space = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
        header, ancillary, _flags, _address = self._socket.recvmsg(HEADER.size, space, socket.MSG_CMSG_CLOEXEC)
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        if len(header) < HEADER.size:
            rest = self._receive_exactly(HEADER.size - len(header)) if header else None
            if rest is None:
                close_all(descriptors)
                return None, []
            header += rest
        return header, list(descriptors)

    def _receive_body(self, length):
        if length > MAX_MESSAGE:
            skipped = b"-"
            while length and skipped:
                skipped = self._receive_exactly(min(length, 1 << 20))
                length -= len(skipped or b"")
            raise Malformed(f"a message is longer than {MAX_MESSAGE} bytes")
        body = self._receive_exactly(length)
        if body is None:
            raise Malformed("the stream ended inside a message")
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"a message is not JSON: {error}") from None
        if not isinstance(message, dict):
            raise Malformed("a message is not a JSON object")
        return message

    def _receive_exactly(self, length):
        """So many bytes, or None when the stream ends before them."""
        chunk = self._socket.recv(length) if length else b""
        if len(chunk) == length:
            return chunk
        parts = bytearray(chunk)
        while chunk and len(parts) < length:
            chunk = self._socket.recv(min(length - len(parts), 1 << 20))
            parts += chunk
        return bytes(parts) if len(parts) == length else None


def close_all(descriptors):
    """Closes each descriptor; one that is closed already is no error."""
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:
            pass
