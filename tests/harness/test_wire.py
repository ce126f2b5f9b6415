"""Frames between orchestrator and worker."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kopt_harness.worker.wire import (
    MAX_FRAME_BYTES,
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    WireError,
)


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel, and the raw other end."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def frame(document: object) -> bytes:
    """A document as it travels."""
    body = json.dumps(document).encode()
    return struct.pack("<I", len(body)) + body


def test_frames_arrive_in_order_with_their_fields() -> None:
    """What is sent is received, and sequence numbers count up."""
    ours, theirs = socket.socketpair()
    a, b = Channel(ours), Channel(theirs)
    a.send("one", value=1.5)
    a.send("two", nested={"x": [1, 2]})
    assert b.receive(1)["value"] == 1.5
    assert b.receive(1)["nested"] == {"x": [1, 2]}
    a.close()
    b.close()


@pytest.mark.parametrize(
    "bad",
    [
        frame({"schema": 1, "seq": 1, "type": "x"}),
        frame({"schema": 2, "seq": 0, "type": "x"}),
        frame({"schema": 1, "seq": 0, "type": 3}),
        frame([1, 2, 3]),
        struct.pack("<I", 5) + b"\xff\xfe{}[",
        struct.pack("<I", 200_000) + b"[" * 200_000,
        struct.pack("<I", MAX_FRAME_BYTES + 1),
    ],
    ids=["reordered", "schema", "type", "list", "not-utf8", "nested", "oversized"],
)
def test_a_broken_frame_is_an_error(pair: tuple[Channel, socket.socket], bad: bytes) -> None:
    """Nothing but the next frame of the right schema is taken."""
    channel, peer = pair
    peer.sendall(bad)
    with pytest.raises(WireError):
        channel.receive(1)


def test_a_truncated_frame_times_out_or_closes(pair: tuple[Channel, socket.socket]) -> None:
    """Half a frame is no frame, whether the peer stays or goes."""
    channel, peer = pair
    peer.sendall(frame({"schema": 1, "seq": 0, "type": "x"})[:-3])
    with pytest.raises(ChannelTimeoutError):
        channel.receive(0.05)
    peer.close()
    with pytest.raises(ChannelClosedError):
        channel.receive(1)


@given(st.binary(max_size=64))
def test_garbage_never_passes_as_a_frame(garbage: bytes) -> None:
    """Random bytes end in an error of this module, never in another one."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.sendall(garbage)
    theirs.close()
    with pytest.raises(WireError):
        channel.receive(1)
    channel.close()
