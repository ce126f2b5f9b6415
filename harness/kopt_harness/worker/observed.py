"""A candidate that an external profiler has started: the same, but for its timer.

Arguments: CHANNEL_FD ARENA_FD PROFILER ISOLATION. Its timer flushes as for cold calls and times
nothing: it says to the profiler when a call begins and ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from kopt_harness.bench.timers import Sample, Timer, make_timer
from kopt_harness.external import Bracket, get_external

from .candidate import Candidate
from .serve import serve
from .wire import Channel

__all__ = ["ObservedTimer", "main"]

_FLUSHES_AS = {"cupti": "events"}
"""A timer that flushes as another one does, and leaves the device's recorder alone."""


class ObservedTimer:
    """Brackets each call; functions are bound before candidate code."""

    def __init__(self, base: Timer, bracket: Bracket, synchronize: Callable[[], object]) -> None:
        self.flush_bytes = base.flush_bytes
        self.flush = base.flush
        self._bracket = bracket
        self._synchronize = synchronize

    def measure(self, call: Any) -> Sample:
        """Wall time on the host, which nobody uses; the profiler has the kernels."""
        self._bracket.begin()
        self._bracket.mark()
        start_ns = time.perf_counter_ns()
        call.run()
        self._synchronize()
        host_ns = time.perf_counter_ns() - start_ns
        self._bracket.end()
        call.seal()
        self._synchronize()
        return Sample(max(1, host_ns), {})


class _Observed(Candidate):
    """See the module's docstring."""

    def __init__(
        self, channel: Channel, arena_fd: int, isolation: dict[str, Any], profiler: str
    ) -> None:
        super().__init__(channel, arena_fd, isolation)
        self._profiler = profiler

    def _make_timer(self, request: dict[str, Any]) -> Timer:
        base = make_timer(
            _FLUSHES_AS.get(request["timer"], request["timer"]),
            cache=request["cache"],
            torch_device=self._device.torch_device,
            l2_bytes=request["l2_bytes"],
            buffer=self._device.flush_buffer,
        )
        bracket = get_external(self._profiler).bracket()
        return ObservedTimer(base, bracket, self._device.synchronize)


def main() -> None:
    """Serves requests until the orchestrator closes the channel."""
    # Standard output is the profiler's report.
    os.dup2(2, 1)
    channel_fd, arena_fd = (int(word) for word in sys.argv[1:3])
    channel = Channel.from_fd(channel_fd)
    candidate = _Observed(channel, arena_fd, json.loads(sys.argv[4]), sys.argv[3])
    names = ("open", "load", "call", "conduct", "watch")
    serve(channel, {name: getattr(candidate, name) for name in names})


if __name__ == "__main__":
    main()
