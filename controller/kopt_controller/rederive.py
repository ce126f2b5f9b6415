"""Regimes as measured: cut where latencies show a boundary that the cost model does not know.

The regimes of a definition come from its workloads and its cost model alone. Once an incumbent
was swept, its latency over the floor of each workload should hardly vary within a regime. Where
it jumps at a value of an axis (a change point), another regime begins there: a cache that is
too small, a grid that no longer fills the device. And one workload with a third of all
latency is a regime of its own. Only medians of a whole sweep are used, and a jump must be
large and better than chance, so that noise cuts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from typing import NamedTuple

from kopt_harness.regimes import Regime
from kopt_harness.schema import Workload

__all__ = ["COST_MODEL", "Derived", "rederive"]

COST_MODEL = "cost model"
"""Origin of a regime that no measurement has changed."""
OUTLIER_SHARE = 1 / 3
"""Of all latency, from which a workload stands alone."""
MOST_REGIMES = 8
"""Each costs a profile and a place at every gate."""
LEAST_EACH_SIDE = 2
"""Workloads of either side of a cut: one alone may be a bad measurement."""
LEAST_JUMP = log(1.25)
"""Of the latency over the floor; less is not worth a regime."""
SPREAD_FLOOR = log(1.02)
"""Medians of one workload differ by as much from day to day."""
EVIDENCE = 3.0
"""Penalty of a cut, in logarithms of the number of workloads: two means, and where to cut."""


class Derived(NamedTuple):
    """One regime, and why it is one."""

    name: str
    workloads: tuple[Workload, ...]
    origin: str
    """``cost model``, or what the measurement showed."""


class _Cut(NamedTuple):
    gain: float
    axis: str
    last: int
    """The lower side has the values up to and including this one."""
    jump: float
    """Of the logarithms, from the lower to the upper side."""


def rederive(
    regimes: Sequence[Regime],
    latency_us: Mapping[str, float],
    floor_us: Mapping[str, float],
    axes: Sequence[str],
) -> tuple[Derived, ...]:
    """The regimes, cut further where latencies say so; order and names of the others stay.

    Args:
        regimes: Of the cost model.
        latency_us: Of the incumbent by workload; of all, or nothing is changed.
        floor_us: What latencies are seen against, by workload: a floor, or any least work.
        axes: That may be cut, most important first.
    """
    as_they_are = tuple(Derived(r.name, r.workloads, COST_MODEL) for r in regimes)
    uuids = [workload.uuid for regime in regimes for workload in regime.workloads]
    if not all(latency_us.get(u, 0) > 0 and floor_us.get(u, 0) > 0 for u in uuids):
        return as_they_are
    total = sum(latency_us[uuid] for uuid in uuids)
    share = {uuid: latency_us[uuid] / total for uuid in uuids}
    level = {uuid: log(latency_us[uuid] / floor_us[uuid]) for uuid in uuids}
    found = [part for each in as_they_are for part in _outliers(each, share, axes)]
    while len(found) < MOST_REGIMES:
        cuts = [_best_cut(each.workloads, level, axes) for each in found]
        at = max(range(len(found)), key=lambda i: _gain(cuts[i]), default=-1)
        cut = cuts[at] if at >= 0 else None
        if cut is None:
            break
        found[at : at + 1] = _halves(found[at], cut, axes)
    return tuple(found)


def _gain(cut: _Cut | None) -> float:
    return 0.0 if cut is None else cut.gain


def _outliers(regime: Derived, share: Mapping[str, float], axes: Sequence[str]) -> list[Derived]:
    alone = [w for w in regime.workloads if share[w.uuid] >= OUTLIER_SHARE]
    rest = tuple(w for w in regime.workloads if w not in alone)
    if not alone or len(regime.workloads) == 1:
        return [regime]
    parts = [
        Derived(_name((w,), axes), (w,), f"outlier: {share[w.uuid]:.0%} of all latency")
        for w in alone
    ]
    if rest:
        parts.insert(0, Derived(_name(rest, axes), rest, "what an outlier left"))
    return parts


def _best_cut(
    workloads: Sequence[Workload], level: Mapping[str, float], axes: Sequence[str]
) -> _Cut | None:
    """The cut with the most evidence; the first of equals; None if none has enough."""
    return max(_cuts(workloads, level, axes), key=lambda cut: round(cut.gain, 9), default=None)


def _cuts(
    workloads: Sequence[Workload], level: Mapping[str, float], axes: Sequence[str]
) -> Iterator[_Cut]:
    count = len(workloads)
    everything = _squares([level[w.uuid] for w in workloads])
    for axis in axes:
        for last in sorted({w.axes[axis] for w in workloads})[:-1]:
            low = [level[w.uuid] for w in workloads if w.axes[axis] <= last]
            high = [level[w.uuid] for w in workloads if w.axes[axis] > last]
            if min(len(low), len(high)) < LEAST_EACH_SIDE:
                continue
            jump = sum(high) / len(high) - sum(low) / len(low)
            cut = _squares(low) + _squares(high)
            gain = count * (_spread(everything, count) - _spread(cut, count))
            gain -= EVIDENCE * log(count)
            if gain > 0 and abs(jump) >= LEAST_JUMP:
                yield _Cut(gain, axis, last, jump)


def _spread(squares: float, count: int) -> float:
    """Logarithm of a variance that is never smaller than that of a measurement."""
    return log(max(squares / count, SPREAD_FLOOR**2))


def _squares(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def _halves(regime: Derived, cut: _Cut, axes: Sequence[str]) -> list[Derived]:
    low = tuple(w for w in regime.workloads if w.axes[cut.axis] <= cut.last)
    high = tuple(w for w in regime.workloads if w.axes[cut.axis] > cut.last)
    times = exp(cut.jump)
    origin = f"change point over {cut.axis} after {cut.last}: {times:.2f} times over the floor"
    return [Derived(_name(side, axes), side, origin) for side in (low, high)]


def _name(workloads: Sequence[Workload], axes: Sequence[str]) -> str:
    parts = []
    for axis in axes:
        low = min(w.axes[axis] for w in workloads)
        high = max(w.axes[axis] for w in workloads)
        parts.append(f"{axis}={low}" if low == high else f"{axis}={low}..{high}")
    return ",".join(parts) or "all"
