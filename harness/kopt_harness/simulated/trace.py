"""Activity records of the simulated device, and how they can get lost."""

from __future__ import annotations

from kopt_harness.bench.timers.census import Activity

__all__ = ["KINDS", "Trace"]

KINDS = ("kernel", "memcpy", "memset")


class Trace:
    """A buffer of records that one subscriber empties."""

    def __init__(self, capacity: int = 1 << 16) -> None:
        self.capacity = capacity
        self.counts_drops = True
        """Whether the number of lost records is known."""
        self._enabled: set[str] = set()
        self._records: list[Activity] = []
        self._dropped = 0

    def enable(self, *kinds: str) -> None:
        """Records these kinds from now on."""
        self._enabled |= set(kinds or KINDS)

    def disable(self, *kinds: str) -> None:
        """Records them no longer."""
        self._enabled -= set(kinds or KINDS)

    def add(self, activity: Activity) -> None:
        """What the device has done."""
        if activity.kind not in self._enabled:
            return
        if len(self._records) >= self.capacity:
            self._dropped += 1
            return
        self._records.append(activity)

    def take(self) -> list[Activity]:
        """The records since the last time, in the order in which they ended."""
        taken, self._records = self._records, []
        return taken

    def dropped(self) -> int | None:
        """Records lost since the last time; None where nobody counts them."""
        lost, self._dropped = self._dropped, 0
        return lost if self.counts_drops else None
