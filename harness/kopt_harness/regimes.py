"""Regimes: which workloads of a definition behave alike, derived from the workloads themselves.

The rule has no bands. The workloads start as one regime. The regime whose workloads differ most
in cost (compulsory bytes and FLOPs of the cost model, in logarithms) is cut in two at the value
of one regime axis, where the cut leaves the least squared difference within the two halves. This
repeats until there are six regimes or none whose workloads differ by more than a factor of two.
So every regime is a box in the axes, which a dispatch rule can express and a name can say:
``batch_size=16..32``. Equal input gives equal regimes.

Bytes and FLOPs are both used because either can be the limiting factor, and which one is, only
a device decides; the regimes of a definition are the same for every target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from .schema import Workload

__all__ = ["Cost", "Regime", "derive_regimes", "representatives"]

MAX_REGIMES = 6
"""More would each be too small to choose a direction for."""

_ALIKE = log(2.0) + 1e-9
"""Workloads within a factor of two of each other's cost are not cut apart."""

_MANY_WORKLOADS = 40
_LEAST_REPRESENTATIVES = 3
"""Of a definition with many workloads, when it has fewer regimes than this."""


class Cost(NamedTuple):
    """Least work of a workload."""

    bytes: int
    """Compulsory traffic to memory, read plus written."""
    flops: int


class Regime(NamedTuple):
    """Workloads that belong together, in their order in the workload file."""

    name: str
    workloads: tuple[Workload, ...]


@dataclass(frozen=True)
class _Point:
    """A workload in the space of its log cost."""

    workload: Workload
    log_bytes: float
    log_flops: float

    @property
    def size(self) -> float:
        """One number to order by: the logarithm of the geometric mean of bytes and FLOPs."""
        return (self.log_bytes + self.log_flops) / 2


class _Box(NamedTuple):
    points: tuple[_Point, ...]
    cut_axes: tuple[str, ...]
    """Axes along which this box was cut out of the whole, in the order of the cuts."""


class _Cut(NamedTuple):
    error: float
    axis: str
    last: int
    """The lower half has the values up to and including this one."""


def derive_regimes(
    workloads: Sequence[Workload],
    axes: Sequence[str],
    cost: Callable[[Workload], Cost],
) -> tuple[Regime, ...]:
    """Cut workloads into regimes, cheapest first.

    Args:
        workloads: Of one definition.
        axes: Axes that may be cut, most important first.
        cost: The cost model.
    """
    if not workloads:
        return ()
    points = tuple(_point(workload, cost(workload)) for workload in workloads)
    boxes = [_Box(points, ())]
    while len(boxes) < MAX_REGIMES:
        cuttable = [(_spread(box), -i) for i, box in enumerate(boxes) if _best_cut(box, axes)]
        widest, position = max(cuttable, default=(0.0, 0))
        if widest <= _ALIKE:
            break
        box = boxes.pop(-position)
        boxes[-position:-position] = _halves(box, _best_cut(box, axes))
    boxes.sort(key=lambda box: (sum(p.size for p in box.points) / len(box.points), _first(box)))
    return tuple(
        Regime(_name(box, axes), tuple(point.workload for point in box.points)) for box in boxes
    )


def representatives(
    regimes: Sequence[Regime], cost: Callable[[Workload], Cost]
) -> tuple[Workload, ...]:
    """The workload of median cost of each regime, in regime order.

    A definition with many workloads but few regimes gets up to three: of the whole, those at
    the quantiles in between are added.
    """
    chosen = [_quantile(regime.workloads, 0.5, cost) for regime in regimes]
    everything = [workload for regime in regimes for workload in regime.workloads]
    if len(everything) >= _MANY_WORKLOADS:
        for share in (0.0, 1.0, 0.25, 0.75):
            candidate = _quantile(everything, share, cost)
            taken = [workload.axes for workload in chosen]
            if len(chosen) < _LEAST_REPRESENTATIVES and candidate.axes not in taken:
                chosen.append(candidate)
    return tuple(chosen)


def _point(workload: Workload, cost: Cost) -> _Point:
    return _Point(workload, log(max(1, cost.bytes)), log(max(1, cost.flops)))


def _first(box: _Box) -> int:
    return min(point.workload.index for point in box.points)


def _spread(box: _Box) -> float:
    """Log ratio of the largest to the smallest cost in a box."""
    return max(
        max(values) - min(values)
        for values in ([p.log_bytes for p in box.points], [p.log_flops for p in box.points])
    )


def _best_cut(box: _Box, axes: Sequence[str]) -> _Cut | None:
    """The cut that leaves the least squared difference; the first of equals; None if none."""
    cuts = (cut for axis in axes for cut in _cuts(box, axis))
    return min(cuts, key=lambda cut: round(cut.error, 9), default=None)


def _cuts(box: _Box, axis: str) -> Iterable[_Cut]:
    values = sorted({point.workload.axes[axis] for point in box.points})
    for last in values[:-1]:
        low = [point for point in box.points if point.workload.axes[axis] <= last]
        high = [point for point in box.points if point.workload.axes[axis] > last]
        yield _Cut(_squares(low) + _squares(high), axis, last)


def _squares(points: Sequence[_Point]) -> float:
    return _variance_sum([p.log_bytes for p in points]) + _variance_sum(
        [p.log_flops for p in points]
    )


def _variance_sum(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def _halves(box: _Box, cut: _Cut | None) -> list[_Box]:
    assert cut is not None, "only a box with a cut is halved"
    low = tuple(p for p in box.points if p.workload.axes[cut.axis] <= cut.last)
    high = tuple(p for p in box.points if p.workload.axes[cut.axis] > cut.last)
    cut_axes = (*box.cut_axes, cut.axis)
    return [_Box(low, cut_axes), _Box(high, cut_axes)]


def _name(box: _Box, axes: Sequence[str]) -> str:
    """The range of each axis along which the box was cut, else of all regime axes."""
    named = [axis for axis in axes if axis in box.cut_axes] or list(axes)
    parts = []
    for axis in named:
        values = [point.workload.axes[axis] for point in box.points]
        low, high = min(values), max(values)
        parts.append(f"{axis}={low}" if low == high else f"{axis}={low}..{high}")
    return ",".join(parts) or "all"


def _quantile(
    workloads: Sequence[Workload], share: float, cost: Callable[[Workload], Cost]
) -> Workload:
    ordered = sorted(workloads, key=lambda w: (_point(w, cost(w)).size, w.index))
    return ordered[int(share * (len(ordered) - 1))]
