"""What ``kopt calibrate --timing`` reports."""

from __future__ import annotations

from typing import Any

from kopt_harness.noise import NoiseFloor
from kopt_harness.schema import Model

__all__ = ["Decisions", "Slowdown", "TimingCalibration"]


class Decisions(Model):
    """How many comparisons were decided how."""

    comparisons: int
    faster: int
    """Of equal solutions, each of these would be a false promotion."""
    slower: int
    same: int
    ambiguous: int
    faster_upper_95: float
    """The rate of ``faster`` is below this with a confidence of 95 % (Clopper-Pearson)."""

    @property
    def faster_rate(self) -> float | None:
        """Share of ``faster``; None of no comparison."""
        return self.faster / self.comparisons if self.comparisons else None


class Slowdown(Model):
    """Live comparisons with a solution that does more work."""

    extra_work: float
    """Share of a call's own time that is added to it."""
    decisions: Decisions
    median_ratio: float | None
    """Measured."""
    ratios: tuple[float, ...]

    @property
    def power(self) -> float | None:
        """Share that was found slower."""
        counted = self.decisions
        return counted.slower / counted.comparisons if counted.comparisons else None


class TimingCalibration(Model):
    """A solution against itself."""

    floor: NoiseFloor
    margin: float
    """That comparisons of this epoch take by default."""
    confidence: float
    workloads: tuple[str, ...]
    """That were timed, by uuid."""
    live: Decisions
    """With new processes each, at a margin of zero."""
    live_at_margin: Decisions
    """The same blocks, decided with ``margin``."""
    resampled: Decisions
    """Drawn out of the blocks, at a margin of zero."""
    resampled_at_margin: Decisions
    detectable: float | None
    """Least slowdown that 95 of 100 comparisons find, with ``margin``; null beyond 200 %."""
    detectable_without_margin: float | None
    """The same with a margin of zero."""
    seconds: tuple[float, ...]
    """Wall time of each live comparison, with the start of its processes."""
    ratios: tuple[float, ...]
    """Of each live comparison, B / A."""
    slowdowns: tuple[Slowdown, ...] = ()
    environment: dict[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """JSON-able, with rates beside counts."""
        document = self.model_dump(mode="json")
        for name in ("live", "live_at_margin", "resampled", "resampled_at_margin"):
            document[name]["faster_rate"] = getattr(self, name).faster_rate
        for row, slowdown in zip(document["slowdowns"], self.slowdowns, strict=True):
            row["power"] = slowdown.power
        return {
            "definition": self.floor.key.definition,
            "target": self.floor.key.target,
            **document,
        }
