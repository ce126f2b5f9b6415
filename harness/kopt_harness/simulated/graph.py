"""Graphs: work that is captured once and launched as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .engine import Gpu, Stream, Work

__all__ = ["Graph"]


class Graph:
    """The nodes of one stream, in order, with the addresses that they were captured with."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.nodes: list[Work] = []

    @contextmanager
    def capture(self) -> Iterator[Stream]:
        """Captures what the current stream is given; it does not run.

        Work that is launched to a stream by name is not captured and runs as always.
        """
        before = self._gpu.current_stream
        stream = self._gpu.new_stream()
        stream.graph = self
        self._gpu.current_stream = stream
        try:
            yield stream
        finally:
            stream.graph = None
            self._gpu.current_stream = before

    def replay(self) -> None:
        """Launches all nodes into the current stream, by one API call."""
        self._gpu.submit_all(tuple(self.nodes))
