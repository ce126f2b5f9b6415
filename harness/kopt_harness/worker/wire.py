"""Length-prefixed JSON between the orchestrator and a worker.

One frame is a little-endian u32 length and that many bytes of UTF-8 JSON with ``schema``,
``seq`` (counts up from 0 in each direction) and ``type``. Frames over ``MAX_FRAME_BYTES``
and out-of-order frames are protocol errors. Nothing is pickled and no stream that a
candidate can print to is ever parsed.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

from kopt_harness.schema import SCHEMA_VERSION

__all__ = ["MAX_FRAME_BYTES", "Channel", "ChannelClosedError", "ChannelTimeoutError", "WireError"]

MAX_FRAME_BYTES = 8 << 20
_LENGTH = struct.Struct("<I")


class WireError(Exception):
    """The peer broke the protocol."""


class ChannelClosedError(WireError):
    """The peer went away."""


class ChannelTimeoutError(WireError):
    """The peer did not answer before the deadline."""


class Channel:
    """One end of a private socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sent = 0
        self._received = 0

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        """The worker's end, inherited by number."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Descriptor of the socket."""
        return self._sock.fileno()

    def close(self) -> None:
        """Closes this end."""
        self._sock.close()

    def send(self, type_: str, **fields: Any) -> None:
        """Sends one frame.

        Raises:
            ChannelClosedError: the peer is gone.
            WireError: the frame would be over the cap.
        """
        message = {"schema": SCHEMA_VERSION, "seq": self._sent, "type": type_, **fields}
        body = json.dumps(message, allow_nan=True).encode()
        if len(body) > MAX_FRAME_BYTES:
            raise WireError(f"a frame of {len(body)} bytes is over the cap of {MAX_FRAME_BYTES}")
        try:
            self._sock.sendall(_LENGTH.pack(len(body)) + body)
        except OSError as error:
            raise ChannelClosedError(f"the peer is gone: {error}") from error
        self._sent += 1

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next frame, within ``timeout_s`` seconds (None: for ever).

        Raises:
            ChannelClosedError: end of file.
            ChannelTimeoutError: no complete frame in time.
            WireError: an oversized, malformed or out-of-order frame.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, deadline))
        if length > MAX_FRAME_BYTES:
            raise WireError(f"the peer announced {length} bytes, over the cap")
        try:
            message = json.loads(self._exactly(length, deadline))
        except (ValueError, RecursionError) as error:
            raise WireError(f"the peer sent no JSON: {error}") from error
        if not isinstance(message, dict) or message.get("schema") != SCHEMA_VERSION:
            raise WireError("the peer sent a document of another schema")
        if message.get("seq") != self._received or not isinstance(message.get("type"), str):
            raise WireError(f"frame {message.get('seq')!r} where {self._received} was expected")
        self._received += 1
        return message

    def _exactly(self, size: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < size:
            wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._sock], [], [], wait_s)[0]:
                raise ChannelTimeoutError("no answer before the deadline")
            try:
                chunk = self._sock.recv(min(size - len(data), 1 << 20))
            except OSError as error:
                raise ChannelClosedError(f"the peer is gone: {error}") from error
            if not chunk:
                raise ChannelClosedError("the peer closed the channel")
            data += chunk
        return bytes(data)
