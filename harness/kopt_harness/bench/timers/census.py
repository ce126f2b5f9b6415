"""Which device activity belongs to a call: pure logic on activity records.

The evaluator brackets a call with marker kernels of secret grid sizes: ``begin``, the call,
``returned``, the evaluator's own fingerprint kernels, ``end``. Launches are numbered in the
order of the API calls that made them (the correlation of a record), whatever stream or thread
they went to, so each record lies in one of the brackets. What was launched after the call had
returned, and is not the evaluator's, is nobody's: ``unowned``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kopt_harness.errors import InfraError

__all__ = [
    "Activity",
    "Bracket",
    "Census",
    "Flushes",
    "Markers",
    "MissingMarkerError",
    "lacking",
    "require_sound",
    "take_census",
    "without_marker",
]

Kind = Literal["kernel", "memcpy", "memset"]
_MAX_LISTED = 8
"""Names that are listed of unowned activity."""


class Activity(NamedTuple):
    """One record of device work."""

    kind: str
    """``kernel``, ``memcpy`` or ``memset``."""
    name: str
    start_ns: int
    end_ns: int
    correlation: int = 0
    """Number of the API call that launched it; a graph's nodes share that of its launch."""
    stream: int = 0
    size: int = 0
    """Blocks in x of a kernel, bytes of a copy or fill; 0 where it is not known."""


class Bracket(NamedTuple):
    """How the records of a marker kernel look."""

    name: str
    size: int
    """Secret grid size."""


class Markers(NamedTuple):
    """The evaluator's marker kernels around one call."""

    begin: Bracket
    returned: Bracket
    end: Bracket


class MissingMarkerError(InfraError):
    """A marker was launched and its record is not there, once and only once."""

    def __init__(self, marker: str, count: int) -> None:
        super().__init__(
            f"the activity records do not cover the call: {count} records of the marker {marker!r}",
            hint="is another profiler attached to this process?",
        )
        self.marker = marker


class Census(NamedTuple):
    """The device activity of one call."""

    owned: tuple[Activity, ...]
    """In the order of their start."""
    unowned: tuple[Activity, ...]
    """Launched before the call or after its return, and not by the evaluator."""
    fence_ns: int
    """When the call began, on the clock of the records."""
    host_ns: int
    """What the call itself took on the host."""

    @property
    def span_ns(self) -> int:
        """First start to last end, over all streams; 0 without activity."""
        if not self.owned:
            return 0
        return max(a.end_ns for a in self.owned) - self.owned[0].start_ns

    @property
    def busy_ns(self) -> int:
        """Sum over the activities; more than the span where they overlap."""
        return sum(a.end_ns - a.start_ns for a in self.owned)

    @property
    def counts(self) -> dict[str, int]:
        """Launches by name."""
        return dict(Counter(a.name for a in self.owned))

    @property
    def signature(self) -> str:
        """Same for calls with the same launches, in whatever order."""
        text = "\n".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def details(self, beside: Sequence[str] = ()) -> dict[str, Any]:
        """What a timer sends beside the span.

        Args:
            beside: names for what else belongs to nobody.
        """
        ns: Counter[str] = Counter()
        for activity in self.owned:
            ns[activity.name] += activity.end_ns - activity.start_ns
        counts = self.counts
        found: dict[str, Any] = {
            "launches": len(self.owned),
            "host_ns": self.host_ns,
            "kernels": [{"name": n, "ns": t, "count": counts[n]} for n, t in ns.most_common()],
        }
        if self.owned:
            before = self.owned[0].start_ns - self.fence_ns
            found |= {"busy_ns": self.busy_ns, "before_first_ns": max(0, before)}
            found["signature"] = self.signature
        unowned = sorted({*(a.name for a in self.unowned), *beside})
        if unowned:
            found["unowned"] = unowned[:_MAX_LISTED]
        return found


def take_census(
    records: Iterable[Activity], markers: Markers, *, fence_ns: int, host_ns: int
) -> Census:
    """Attributes every record of a window with one call in it.

    Where launches are not numbered in order, records are attributed by the time of their
    start: work that a call has left behind on another stream is unowned then.

    Args:
        records: everything that was recorded since the end of the flush; the evaluator has
            launched nothing between that and the first marker.
        markers: as they were launched.
        fence_ns: when the call began.
        host_ns: how long it took to return.

    Raises:
        MissingMarkerError: a marker's record is missing, or is there twice.
        InfraError: a record has no timestamps.
    """
    seen = tuple(records)
    require_sound(seen)
    found = [_only(seen, name, bracket) for name, bracket in markers._asdict().items()]
    numbered = 0 < found[0].correlation < found[1].correlation < found[2].correlation

    def place(activity: Activity) -> int:
        return activity.correlation if numbered else activity.start_ns

    begin, returned, end = (place(marker) for marker in found)
    others = [a for a in seen if a not in found]
    owned = [a for a in others if begin < place(a) < returned]
    early = [a for a in others if place(a) < begin]
    later = [a for a in others if place(a) > end]
    return Census(
        owned=tuple(sorted(owned, key=lambda a: (a.start_ns, a.correlation))),
        unowned=tuple(early + later),
        fence_ns=fence_ns,
        host_ns=host_ns,
    )


def without_marker(records: Sequence[Activity], bracket: Bracket) -> list[Activity]:
    """The other records of a window in which a marker was launched to see that recording is on.

    Raises:
        MissingMarkerError: its record is missing, or is there twice.
    """
    probe = _only(records, "begin", bracket)
    return [activity for activity in records if activity is not probe]


class Flushes:
    """What the evaluator's own flush leaves in the records, which is always the same."""

    def __init__(self) -> None:
        self._least: int | None = None
        self._more = False

    def saw(self, records: Sequence[Activity]) -> None:
        """The records of one flush."""
        self._least = min(len(records), len(records) if self._least is None else self._least)
        self._more = len(records) > self._least

    def beside(self) -> list[str]:
        """Names for what ran in the last flush and is in no other, if anything did."""
        return ["work beside the flush"] if self._more else []


def require_sound(records: Sequence[Activity], *, dropped: int | None = 0) -> None:
    """Refuses a window whose records are not all there, or do not say when.

    Args:
        records: what was recorded.
        dropped: records that the recorder has lost; None where it cannot say.

    Raises:
        InfraError: records were dropped, that is not known, or one has no timestamps.
    """
    if dropped is None:
        raise InfraError("nobody knows how many records were dropped", hint="retry; see doctor")
    if dropped:
        raise InfraError(f"{dropped} activity records were dropped", hint="retry; see doctor")
    # Before they are sorted by time: one without a start would seem to lie before the call.
    if any(a.end_ns < a.start_ns or a.start_ns == 0 for a in records):
        raise InfraError("an activity has no timestamps", hint="retry; see doctor")


def lacking(
    checked: Sequence[Mapping[str, int]], timed: Sequence[Mapping[str, int]]
) -> tuple[str, ...]:
    """Kernels that a timed call does without, where it has lost half of the launches or more.

    Kernel sets may vary from call to call for honest reasons (two buffers in turn, a last
    block that reduces), so the leanest timed call is held against the leanest checked one.

    Args:
        checked: launches by name of calls that were not timed.
        timed: the same of timed calls.
    """
    if not checked or not timed:
        return ()
    full = min(checked, key=lambda counts: sum(counts.values()))
    lean = min(timed, key=lambda counts: sum(counts.values()))
    if 2 * sum(lean.values()) > sum(full.values()):
        return ()
    return tuple(sorted(name for name, count in full.items() if lean.get(name, 0) < count))


def _only(records: Sequence[Activity], which: str, bracket: Bracket) -> Activity:
    """The one record of a marker."""
    same = [a for a in records if (a.name, a.size) == (bracket.name, bracket.size)]
    if len(same) != 1:
        raise MissingMarkerError(which, len(same))
    return same[0]
