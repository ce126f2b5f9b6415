"""The figures of a chapter: what is drawn of which view."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from ..shown import counted
from ..views import CandidatePoint, Chapter, SteerPoint, WorkloadRow
from .chart import Axis, Chart, Mark, Marker, Point, Role, Series
from .wording import interval, us

__all__ = ["figures_of"]

MOST_BARS = 24
"""Sizes that have a bar with its name each; more are numbered."""
MANY_ROUNDS = 60
"""From here on a trajectory has no room for what was said."""
FAR_PERCENT = 40.0
"""Samples farther from their median are drawn at the edge, so that the others can be told apart."""


def figures_of(chapter: Chapter) -> tuple[Chart, ...]:
    """All that there is something to draw for, in the order of the report."""
    makers: tuple[Callable[[Chapter], Chart | None], ...] = (
        _speedups,
        _trajectory,
        _latency,
        _roofline,
        _samples,
    )
    found = (make(chapter) for make in makers)
    return tuple(chart for chart in found if chart is not None)


def _speedups(chapter: Chapter) -> Chart | None:
    """Incumbent over candidate, a bar for each size."""
    timed = [row for row in chapter.workloads if row.candidate_us and row.incumbent_us]
    if not timed or chapter.headline is None:
        return None
    groups: dict[str, list[WorkloadRow]] = {}
    for row in timed:
        groups.setdefault(row.size, []).append(row)
    if len(groups) > MOST_BARS:
        groups = {f"#{_number(row, place)}": [row] for place, row in enumerate(timed)}
    points = [
        _bar(place, name, rows) for place, (name, rows) in enumerate(_ordered(groups).items())
    ]
    values = [point.y for point in points]
    is_wide = max(values) / min(values) > 8 or max(values) > 20
    names = tuple(_short(name) for name in _ordered(groups))
    candidate, incumbent = chapter.headline.candidate.name, chapter.headline.incumbent.name
    return Chart(
        id="speedup",
        title="Speed-up by size",
        caption=(
            f"Time of {incumbent} over time of {candidate}, medians of each workload; above 1 the "
            f"candidate is faster. A bar is the median over the workloads of one size, the line in "
            f"it their range. Least {min(values):.3g}, most {max(values):.3g}."
        ),
        x=Axis(_sizes_title(chapter, groups), "category", names),
        y=Axis("times as fast", "log" if is_wide else "linear", include=(1.0,)),
        series=(Series(candidate, "candidate", tuple(points), "bar"),),
        marks=(Mark(1.0, "", "y"),),
    )


def _number(row: WorkloadRow, place: int) -> int:
    return place if row.index is None else row.index


def _ordered(groups: dict[str, list[WorkloadRow]]) -> dict[str, list[WorkloadRow]]:
    """By the sizes themselves, not by where they first stand in the list."""
    keys = sorted(groups, key=lambda name: tuple(groups[name][0].axes.values()))
    return {key: groups[key] for key in keys}


def _bar(place: int, name: str, rows: Sequence[WorkloadRow]) -> Point:
    ratios = sorted((row.incumbent_us or 0.0) / (row.candidate_us or 1.0) for row in rows)
    middle = median(ratios)
    label = f"{rows[0].size if len(rows) == 1 else name}: {middle:.3g} times as fast"
    if len(rows) == 1:
        return Point(place, middle, label=label)
    label += f" (median of {len(rows)}, {ratios[0]:.3g} to {ratios[-1]:.3g})"
    return Point(place, middle, ratios[0], ratios[-1], label)


def _sizes_title(chapter: Chapter, groups: dict[str, list[WorkloadRow]]) -> str:
    axes = list(chapter.workloads[0].axes)
    if all(name.startswith("#") for name in groups):
        return "workloads by their number, smallest first"
    return axes[0] if len(axes) == 1 else ", ".join(axes)


def _short(size: str) -> str:
    """Values alone: the axis is named in its title."""
    return ", ".join(part.partition("=")[2] or part for part in size.split(", "))


_OUTCOMES: tuple[tuple[str, str, Role, Marker], ...] = (
    ("faster", "faster", "good", "circle"),
    ("undecided", "undecided", "muted", "diamond"),
    ("slower", "slower", "poor", "triangle"),
)


def _trajectory(chapter: Chapter) -> Chart | None:
    """Best so far, every candidate, promotions and what people said."""
    timed = [point for point in chapter.candidates if point.level]
    if not chapter.rounds or not (timed or any(r.best is not None for r in chapter.rounds)):
        return None
    last = chapter.rounds[-1].order
    # What is drawn last is on top.
    series = [
        *(
            Series(name, role, tuple(_placed(timed, outcome)), marker)
            for outcome, name, role, marker in _OUTCOMES
        ),
        Series("wrong", "poor", tuple(_wrong(chapter)), "cross"),
        *_best_lines(chapter),
        Series("promoted", "candidate", tuple(_promotions(chapter)), "square"),
    ]
    counts = (
        counted(len(chapter.rounds), "round"),
        counted(len(chapter.candidates), "candidate"),
        counted(sum(point.applied for point in chapter.rounds), "promotion"),
    )
    said = _said(chapter.steers) if last <= MANY_ROUNDS else ()
    return Chart(
        id="trajectory",
        title="Trajectory",
        caption=(
            f"{', '.join(counts)}. The line is "
            "the time of the incumbent over that of the first one; a point is a candidate, judged "
            "by its interval. Wrong candidates have no time and stand at the top edge. Lower is "
            "faster."
        ),
        x=Axis("round", include=(0.5, last + 0.5), is_whole=True),
        y=Axis("time / first incumbent", "log", include=(1.0,)),
        series=tuple(each for each in series if each.points),
        marks=said,
    )


def _best_lines(chapter: Chapter) -> Iterator[Series]:
    """One line for each chain of incumbents."""
    segments: dict[int, list[Point]] = {}
    for r in chapter.rounds:
        if r.best is not None:
            start = segments.setdefault(
                r.segment, [Point(r.order - 0.5, _before(chapter, r.order))]
            )
            label = f"round {r.order}: {r.incumbent.name}, {r.best:.3g} of the first"
            start += [Point(r.order, r.best, label=label), Point(r.order + 0.5, r.best)]
    for number, points in segments.items():
        name = "best so far" if number == 1 else f"best so far, {number}. start"
        yield Series(name, "candidate", tuple(points), "none", "step")


def _before(chapter: Chapter, order: int) -> float:
    before = [r for r in chapter.rounds if r.order < order]
    same = before and before[-1].segment == chapter.rounds[order - 1].segment
    return (before[-1].best or 1.0) if same else 1.0


def _placed(points: Iterable[CandidatePoint], outcome: str) -> Iterator[Point]:
    for point in points:
        if point.outcome == outcome and not point.promoted and point.level:
            yield Point(_across(point), point.level, label=_named(point))


def _promotions(chapter: Chapter) -> Iterator[Point]:
    for point in chapter.candidates:
        if point.promoted and point.level:
            yield Point(point.order, point.level, label=f"promoted: {_named(point)}")


def _wrong(chapter: Chapter) -> Iterator[Point]:
    """At the level of 1 or of the slowest: what is wrong has no time."""
    levels = [point.level for point in chapter.candidates if point.level]
    top = max([1.0, *levels]) * 1.1
    for point in chapter.candidates:
        if point.outcome == "wrong":
            yield Point(_across(point), top, label=f"{_named(point)}: {point.detail[:120]}")


def _across(point: CandidatePoint) -> float:
    """Beside its round, by its content, so that equal times do not hide each other."""
    return point.order + (int(point.sha256[:4] or "0", 16) / 0xFFFF - 0.5) * 0.5


def _named(point: CandidatePoint) -> str:
    return f"{point.name}, round {point.order}: {point.verdict}, {interval(point.ratio, point.ci)}"


def _said(steers: Iterable[SteerPoint]) -> tuple[Mark, ...]:
    by_order: dict[int, list[str]] = {}
    for steer in steers:
        if steer.order:
            by_order.setdefault(steer.order, []).append(f"{steer.kind} {steer.value}".strip())
    return tuple(Mark(order - 0.5, "; ".join(texts)) for order, texts in by_order.items())


def _latency(chapter: Chapter) -> Chart | None:
    """Times over the first axis, log on both sides, with what limits them below."""
    axis = chapter.subject.primary_axis
    rows = [row for row in chapter.workloads if axis and row.axes.get(axis)]
    if not rows or chapter.headline is None or axis is None:
        return None
    baselines = sorted({name for row in rows for name in row.baselines_us})
    head = chapter.headline
    times: list[tuple[str, Role, Marker, list[float | None]]] = [
        (head.candidate.name, "candidate", "circle", [row.candidate_us for row in rows]),
        (head.incumbent.name, "incumbent", "square", [row.incumbent_us for row in rows]),
    ]
    times += [
        (name, "baseline", "triangle", [row.baselines_us.get(name) for row in rows])
        for name in baselines
    ]
    times.append(("least possible time", "floor", "none", [row.floor_us for row in rows]))
    places = [float(row.axes[axis]) for row in rows]
    sizes = [row.size for row in rows]
    series = [_curve(each, places, sizes) for each in times]
    has_floor = any(row.floor_us for row in rows)
    source = f" Floor: {'; '.join(chapter.hardware.sources)}." if has_floor else ""
    return Chart(
        id="latency",
        title=f"Latency by {axis}",
        caption=(
            f"Median time of each workload, and lines through the median at each {axis}."
            f"{source}{'' if has_floor else ' No floor: the bandwidth of the target is not known.'}"
        ),
        x=Axis(axis, "log"),
        y=Axis("us", "log"),
        series=tuple(each for each in series if each.points),
    )


def _curve(
    told: tuple[str, Role, Marker, list[float | None]], places: list[float], sizes: list[str]
) -> Series:
    """Every workload as a point, in the order of the axis."""
    name, role, marker, times = told
    points = [
        Point(place, value, label=f"{name}, {size}: {us(value)}")
        for place, size, value in zip(places, sizes, times, strict=True)
        if value
    ]
    ordered = tuple(sorted(points, key=lambda point: (point.x, point.y)))
    return Series(name, role, ordered, marker, "dashed" if role == "floor" else "solid")


def _roofline(chapter: Chapter) -> Chart | None:
    """Attained arithmetic over intensity, under what memory and arithmetic allow."""
    hardware, head = chapter.hardware, chapter.headline
    rows = [row for row in chapter.workloads if row.bytes and row.flops and row.candidate_us]
    if not rows or head is None or hardware.copy_gbps is None:
        return None
    intensity = [(row.flops or 0) / (row.bytes or 1) for row in rows]
    peak = None if hardware.peak_tflops is None else hardware.peak_tflops * 1e3
    roof = _roof(min(intensity) / 4, max(intensity) * 4, hardware.copy_gbps, peak)
    series = (
        Series(head.candidate.name, "candidate", _attained(rows, [r.candidate_us for r in rows])),
        Series(
            head.incumbent.name,
            "incumbent",
            _attained(rows, [r.incumbent_us for r in rows]),
            "square",
        ),
        Series("roof", "floor", roof, "none", "dashed"),
    )
    return Chart(
        id="roofline",
        title="Roofline",
        caption=(
            "Operations of the cost model over measured time, against operations over compulsory "
            f"bytes. The roof: {'; '.join(hardware.sources)}."
        ),
        x=Axis("flop / byte", "log"),
        y=Axis("GFLOP/s", "log"),
        series=tuple(each for each in series if each.points),
    )


def _roof(low: float, high: float, gbps: float, peak_gflops: float | None) -> tuple[Point, ...]:
    ridge = math.inf if peak_gflops is None else peak_gflops / gbps
    places = [low, *([ridge] if low < ridge < high else []), high]
    return tuple(
        Point(x, min(gbps * x, peak_gflops or math.inf), label=f"roof at {x:.3g} flop/byte")
        for x in places
    )


def _attained(rows: Sequence[WorkloadRow], times: Sequence[float | None]) -> tuple[Point, ...]:
    points = []
    for row, value in zip(rows, times, strict=True):
        if value:
            flops = row.flops or 0
            gflops = flops / value / 1e3
            label = f"{row.size}: {gflops:.3g} GFLOP/s, {us(value)}"
            points.append(Point(flops / (row.bytes or 1), gflops, label=label))
    return tuple(points)


def _samples(chapter: Chapter) -> Chart | None:
    """How far each timed call lies from the median of its own solution, on some workloads."""
    if not chapter.samples or chapter.headline is None:
        return None
    head = chapter.headline
    rows: list[str] = []
    candidate: list[Point] = []
    incumbent: list[Point] = []
    for each in chapter.samples:
        size = _short(", ".join(f"{n}={v}" for n, v in each.axes.items()))
        for found, name, values in (
            (candidate, head.candidate.name, each.candidate_ns),
            (incumbent, head.incumbent.name, each.incumbent_ns),
        ):
            if values:
                found.extend(_strip(len(rows), name, values))
                rows.append(f"{size} \u00b7 {us(median(values) / 1e3)}")
    axis = ", ".join(chapter.samples[0].axes) or "workload"
    return Chart(
        id="samples",
        title="Samples of the pair",
        caption=(
            f"Every timed call on one workload of each regime ({axis}, median), as a deviation "
            "from the median of its own solution. Two groups in a row are two modes. Calls beyond "
            f"{FAR_PERCENT:.0f} % stand at the edge."
        ),
        x=Axis("deviation from own median, %", include=(-5.0, 5.0)),
        y=Axis("", "category", tuple(rows)),
        series=(
            Series(head.candidate.name, "candidate", tuple(candidate)),
            Series(head.incumbent.name, "incumbent", tuple(incumbent), "square"),
        ),
        marks=(Mark(0.0, "median"),),
        is_sideways=True,
    )


def _strip(row: int, name: str, values_ns: Sequence[int]) -> Iterator[Point]:
    """Points of one row, moved up and down a little in the order in which they were taken."""
    middle = median(values_ns)
    for number, value in enumerate(values_ns):
        percent = 100 * (value / middle - 1)
        shown = max(-FAR_PERCENT, min(FAR_PERCENT, percent))
        offset = ((number * 7) % 11 / 10 - 0.5) * 0.5
        label = f"{name}: call {number + 1}, {us(value / 1e3)}, {percent:+.1f} %"
        yield Point(shown, row + offset, label=label)
