"""Chrome traces of ``torch.profiler`` (``export_chrome_trace``), also compressed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...errors import InvalidInputError
from ..record import Launch, Metric, Recorded, Timeline
from ..units import MAX_VALUE
from .protocol import ProfileFile

__all__ = ["READER"]

_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_OPERATOR = frozenset({"cpu_op", "operator"})
_METRICS = {
    "registers per thread": ("Registers Per Thread", "register/thread"),
    "est. achieved occupancy %": ("est. achieved occupancy %", "%"),
    "blocks per SM": ("blocks per SM", ""),
    "shared memory": ("launch__shared_mem_per_block_static", "byte/block"),
}
"""Arguments of a kernel's event, and the metric that each is."""


class _Event(NamedTuple):
    name: str
    category: str
    start_us: float
    duration_us: float
    thread: str
    arguments: dict[str, Any]


class _Reader:
    name = "chrome-trace"

    def recognises(self, file: ProfileFile) -> bool:
        """It is JSON with events."""
        head = file.data[: 1 << 16].lstrip()
        return head[:1] in (b"{", b"[") and (b'"traceEvents"' in file.data or b'"ph"' in file.data)

    def read(self, file: ProfileFile) -> Recorded:
        """The kernels of the device and its gaps; without kernels, the CPU's operators.

        Raises:
            InvalidInputError: If it is not JSON, or has no list of events.
        """
        events = sorted(_events(file), key=lambda e: e.start_us)
        device = [event for event in events if event.category in _DEVICE]
        if not device:
            operators = [event for event in events if event.category in _OPERATOR]
            return Recorded(tuple(_operators(operators)))
        kernels = [e for e in device if e.category in ("kernel", "gpu_memset")]
        return Recorded(tuple(map(_launch, kernels)), timeline=_timeline(device))


def _events(file: ProfileFile) -> Iterator[_Event]:
    name = str(file.path)
    try:
        value = json.loads(file.text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{name!r} is not valid JSON: {error}", hint="export the trace again; it may be cut"
        ) from error
    entries = value.get("traceEvents") if isinstance(value, dict) else value
    if not isinstance(entries, list):
        raise InvalidInputError(f"{name!r} has no list 'traceEvents'", hint="export it again")
    for entry in entries:
        event = _event(entry) if isinstance(entry, dict) else None
        if event is not None:
            yield event


def _event(entry: dict[str, Any]) -> _Event | None:
    start, duration = _number(entry.get("ts")), _number(entry.get("dur"))
    arguments = entry.get("args")
    if entry.get("ph") != "X" or start is None or duration is None or duration < 0:
        return None
    return _Event(
        name=str(entry.get("name", "")),
        category=str(entry.get("cat", "")).lower(),
        start_us=start,
        duration_us=duration,
        thread=f"{entry.get('pid')}/{entry.get('tid')}",
        arguments=arguments if isinstance(arguments, dict) else {},
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= MAX_VALUE else None


def _launch(event: _Event) -> Launch:
    metrics = [
        Metric(name, unit, value)
        for key, (name, unit) in _METRICS.items()
        if (value := _number(event.arguments.get(key))) is not None
    ]
    return Launch(
        name=event.name,
        grid=_dim3(event.arguments.get("grid")),
        block=_dim3(event.arguments.get("block")),
        duration_us=event.duration_us,
        metrics=tuple(metrics),
    )


def _dim3(value: Any) -> tuple[int, int, int] | None:
    if not isinstance(value, list) or not all(type(x) is int for x in value) or len(value) != 3:
        return None
    return (value[0], value[1], value[2])


def _timeline(events: Sequence[_Event]) -> Timeline:
    """Activities may overlap on several streams; time in which any of them ran counts once."""
    busy_us, end_us = 0.0, events[0].start_us
    for event in events:
        stop_us = event.start_us + event.duration_us
        busy_us += max(0.0, stop_us - max(end_us, event.start_us))
        end_us = max(end_us, stop_us)
    return Timeline(end_us - events[0].start_us, busy_us)


def _operators(events: Sequence[_Event]) -> Iterator[Launch]:
    """Operators by their own time: without that of the operators that they call."""
    own_us = [event.duration_us for event in events]
    open_by_thread: dict[str, list[int]] = {}
    for i, event in enumerate(events):
        stack = open_by_thread.setdefault(event.thread, [])
        while (
            stack and events[stack[-1]].start_us + events[stack[-1]].duration_us <= event.start_us
        ):
            stack.pop()
        if stack:
            own_us[stack[-1]] -= event.duration_us
        stack.append(i)
    for event, us in zip(events, own_us, strict=True):
        yield Launch(name=event.name, duration_us=max(0.0, us), on_device=False)


READER = _Reader()
