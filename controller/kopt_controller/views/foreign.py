"""Other people's results as tables: each run over its workloads, beside what its file claims.

Estimates are of the written latencies in the order of nothing: mean, median and both 95th
percentiles (``estimates.py``). A claim of a file is held against them, so that a reader sees by
which definition it was made, or that it does not follow from the entries beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from kopt_harness.catalog import Catalog
from kopt_harness.foreign import ForeignResult, Knowledge
from kopt_harness.foreign.runs import Run, make_runs, ratio_of

from .estimates import Estimates, estimates
from .model import View

__all__ = ["Claim", "ForeignRun", "ForeignWorkload", "foreign_runs"]

SAME = 1e-9
"""Relative difference up to which a claim is the figure itself: files round in the last digit."""
_QUANTITIES = ("latency_ms", "reference_latency_ms", "speedup_factor")


class Claim(View):
    """One figure that a file states of its own entries."""

    name: str
    """As the file names it."""
    stated: float
    found: float | None
    """Of the entries, by the definition that agrees, else by the usual one."""
    by: str
    """Name of that definition."""
    agrees: bool


class ForeignWorkload(View):
    """One entry."""

    uuid: str
    axes: dict[str, int]
    status: str
    latency_us: float | None
    reference_us: float | None
    speedup: float | None
    place: str


class ForeignRun(View):
    """One solution of one file over its workloads."""

    file: str
    """Its name, without folders."""
    reader: str
    solution: str
    """Empty where the file has neither a name nor a hash."""
    definition: str
    """Full id where it is known, else as written."""
    alias: str
    timestamp: str
    workloads: int
    timed: int
    latency_us: Estimates
    reference_us: Estimates
    speedup: Estimates
    """Of the single ratios, as written, else computed."""
    ratio_of_means: float | None
    claims: tuple[Claim, ...]
    rows: tuple[ForeignWorkload, ...]


def foreign_runs(
    results: Sequence[ForeignResult], catalog: Catalog, definition: str | None = None
) -> tuple[ForeignRun, ...]:
    """Runs in the order of their import; evaluations of which only a mean is known are left out.

    Args:
        results: That were imported.
        catalog: For names and axes.
        definition: Full id; None: of all.
    """
    knowledge = Knowledge(catalog)
    runs = [run for run in make_runs(results, knowledge) if not run.is_mean]
    summaries = [result for result in results if result.kind == "summary"]
    return tuple(
        _foreign_run(run, catalog, _summary(run, summaries))
        for run in runs
        if definition in (None, run.definition)
    )


def _foreign_run(run: Run, catalog: Catalog, summary: ForeignResult | None) -> ForeignRun:
    known = [each for each in catalog.definitions() if each.name == run.definition]
    alias = known[0].kopt.alias if known else run.definition
    axes = {w.uuid: dict(w.axes) for each in known for w in catalog.workloads(each)}
    timed = run.timed
    latency = [r.latency_ms * 1e3 for r in timed if r.latency_ms is not None]
    reference = [r.reference_latency_ms * 1e3 for r in timed if r.reference_latency_ms is not None]
    ratios = [ratio for r in timed if (ratio := ratio_of(r)) is not None]
    first = run.results[0]
    both = run.latency_ms and run.reference_ms
    return ForeignRun(
        file=Path(run.file).name,
        reader=first.reader,
        solution="" if run.label == Path(run.file).name else run.label,
        definition=run.definition,
        alias=alias,
        timestamp=first.timestamp or "",
        workloads=len(run.results),
        timed=len(timed),
        latency_us=estimates(latency),
        reference_us=estimates(reference),
        speedup=estimates(ratios),
        ratio_of_means=(run.reference_ms or 0.0) / (run.latency_ms or 1.0) if both else None,
        claims=() if summary is None else tuple(_claims(summary, run)),
        rows=tuple(_row(result, axes) for result in run.results),
    )


def _row(result: ForeignResult, axes: Mapping[str, dict[str, int]]) -> ForeignWorkload:
    reference = result.reference_latency_ms
    return ForeignWorkload(
        uuid=result.workload or "",
        axes=axes.get(result.workload or "") or result.axes,
        status=result.status,
        latency_us=None if result.latency_ms is None else result.latency_ms * 1e3,
        reference_us=None if reference is None else reference * 1e3,
        speedup=ratio_of(result),
        place=result.place.position,
    )


def _summary(run: Run, summaries: Iterable[ForeignResult]) -> ForeignResult | None:
    """What the file of a run says about it; None where it says it of several, or nothing."""
    first = run.results[0]
    same = [
        summary
        for summary in summaries
        if summary.place.file == run.file and summary.definition == first.definition
    ]
    return same[0] if len(same) == 1 else None


def _claims(summary: ForeignResult, run: Run) -> Iterable[Claim]:
    values: dict[str, list[float | None]] = {
        "latency_ms": [r.latency_ms for r in run.timed],
        "reference_latency_ms": [r.reference_latency_ms for r in run.timed],
        "speedup_factor": [ratio_of(r) for r in run.timed],
    }
    means = (summary.latency_ms, summary.reference_latency_ms, summary.speedup)
    stated: dict[str, Any] = {
        **{f"avg_{name}": mean for name, mean in zip(_QUANTITIES, means, strict=True)},
        **summary.extra,
    }
    for name in _QUANTITIES:
        known = [value for value in values[name] if value is not None]
        for kind in ("avg", "median", "p95", "min", "max"):
            claim = stated.get(f"{kind}_{name}")
            if known and isinstance(claim, int | float) and not isinstance(claim, bool):
                yield _claim(f"{kind}_{name}", float(claim), kind, estimates(known))


def _claim(
    name: str, stated: float, kind: Literal["avg", "median", "p95", "min", "max"], found: Estimates
) -> Claim:
    ways: dict[str, tuple[tuple[str, float | None], ...]] = {
        "avg": (("mean", found.mean),),
        "median": (("median", found.median),),
        "p95": (("nearest rank", found.p95_rank), ("nearest place", found.p95_place)),
        "min": (("least", found.least),),
        "max": (("most", found.most),),
    }
    agreeing = [
        (way, value)
        for way, value in ways[kind]
        if value is not None and abs(stated - value) <= SAME * abs(value)
    ]
    way, value = agreeing[0] if agreeing else ways[kind][0]
    by = " and ".join(each for each, _ in agreeing) or way
    return Claim(name=name, stated=stated, found=value, by=by, agrees=bool(agreeing))
