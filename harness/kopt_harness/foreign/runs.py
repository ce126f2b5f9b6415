"""Results that belong together: one solution, evaluated once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from .knowledge import Knowledge
from .record import ForeignResult

__all__ = ["Group", "Run", "comparable", "epochs", "make_runs", "spread"]

EPOCH_GAP = 1.5
"""Factor between neighbours, in order, at which mean reference times fall apart into two states
of a machine. Clocks and other tenants move a reference by tens of per cent; a factor of one
and a half with nothing in between is another device or another way of measuring."""


@dataclass(frozen=True)
class Run:
    """One evaluation of one solution."""

    label: str
    """For people: name or hash, or the file where there is neither."""
    source: str | None
    definition: str
    """kopt's id where it is known, else as written."""
    results: tuple[ForeignResult, ...]
    """One of each workload, or one mean."""

    @property
    def is_mean(self) -> bool:
        """Whether only a mean over workloads is there."""
        return self.results[0].kind == "mean"

    @property
    def file(self) -> str:
        """Where its first result stands."""
        return self.results[0].place.file

    @cached_property
    def timed(self) -> tuple[ForeignResult, ...]:
        """Results with a time."""
        return tuple(result for result in self.results if result.timed)

    @cached_property
    def covered(self) -> tuple[str, ...]:
        """What its times stand for; equal where two runs can be compared."""
        if self.is_mean:
            return ("mean", str(self.results[0].workload_count))
        return tuple(sorted(result.workload or "" for result in self.timed))

    @cached_property
    def latency_ms(self) -> float | None:
        """Mean over its timed workloads."""
        return _mean([result.latency_ms for result in self.timed])

    @cached_property
    def reference_ms(self) -> float | None:
        """Mean time of the reference over the same; None unless all have one."""
        return _mean([result.reference_latency_ms for result in self.timed])

    @cached_property
    def speedup(self) -> float | None:
        """Mean of the ratios as they are written, else as they follow; None unless all have one."""
        return _mean([ratio_of(result) for result in self.timed])

    @cached_property
    def evidence(self) -> tuple[str, ...]:
        """Places of all its results."""
        return tuple(str(result.place) for result in self.results)

    @property
    def first_place(self) -> str:
        """Place of its first result."""
        return self.evidence[0]


class Group(NamedTuple):
    """Runs of one definition over the same workloads, all timed."""

    definition: str
    runs: tuple[Run, ...]


def ratio_of(result: ForeignResult) -> float | None:
    """Reference over solution: as written, else computed."""
    if result.speedup is not None:
        return result.speedup
    if not result.latency_ms or result.reference_latency_ms is None:
        return None
    return result.reference_latency_ms / result.latency_ms


def make_runs(results: Iterable[ForeignResult], knowledge: Knowledge) -> tuple[Run, ...]:
    """Runs in the order of their first results.

    Results of one solution on several workloads are one run; a workload that comes again
    begins the next one. What a file repeats (``selected``, ``summary``) is no run.
    """
    made: dict[tuple[str, ...], list[ForeignResult]] = {}
    times: dict[tuple[str, ...], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for result in results:
        if result.kind not in ("workload", "mean"):
            continue
        known = knowledge.definition(result)
        definition = result.definition if known is None else known.name
        # A nameless solution is told from others by its file.
        who = result.solution or result.source_sha256 or result.place.file
        key = (definition, result.reader, result.kind, who, result.source_sha256 or "")
        what = str(result.place) if result.kind == "mean" else result.workload or ""
        number = times[key][what] if result.kind == "workload" else len(times[key])
        times[key][what] += 1
        made.setdefault((*key, str(number)), []).append(result)
    return tuple(
        Run(_label(found[0]), found[0].source_sha256, key[0], tuple(found))
        for key, found in made.items()
    )


def comparable(runs: Iterable[Run]) -> tuple[Group, ...]:
    """Timed runs in groups whose members can be compared; also groups of one."""
    groups: dict[tuple[str, tuple[str, ...]], list[Run]] = defaultdict(list)
    for run in runs:
        if run.latency_ms is not None:
            groups[run.definition, run.covered].append(run)
    return tuple(Group(definition, tuple(members)) for (definition, _), members in groups.items())


def epochs(group: Group) -> tuple[Group, ...]:
    """The group cut where the reference times fall apart, fastest reference first.

    Runs without a reference time are left out, unless none has one.
    """
    with_reference = [(run.reference_ms, run) for run in group.runs if run.reference_ms]
    if not with_reference:
        return (group,)
    ordered = sorted(with_reference, key=lambda pair: pair[0])
    parts = [[ordered[0][1]]]
    for (before, _), (after, run) in pairwise(ordered):
        if after / before > EPOCH_GAP:
            parts.append([])
        parts[-1].append(run)
    # Within an epoch in the order of the files, so that documents do not depend on noise.
    place = {id(run): number for number, run in enumerate(group.runs)}
    return tuple(
        Group(group.definition, tuple(sorted(part, key=lambda run: place[id(run)])))
        for part in parts
    )


def spread(values: Sequence[float]) -> float:
    """Largest over smallest, less one; 0 of fewer than two, or where one is not positive."""
    if len(values) < 2 or min(values) <= 0:
        return 0.0
    return max(values) / min(values) - 1


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return fmean(present) if present and len(present) == len(values) else None


def _label(result: ForeignResult) -> str:
    if result.solution:
        return result.solution
    if result.source_sha256:
        return result.source_sha256[:12]
    return Path(result.place.file).name
