"""Tables of imported results."""

from __future__ import annotations

from collections.abc import Sequence

from ..views import Estimates, ForeignRun
from .tabular import Column, Table

__all__ = ["imported_tables"]


def imported_tables(runs: Sequence[ForeignRun]) -> tuple[Table, ...]:
    """All runs, what their files claim, and every entry; nothing where nothing was imported."""
    if not runs:
        return ()
    return (_runs(runs), _claims(runs), _entries(runs))


def _runs(runs: Sequence[ForeignRun]) -> Table:
    rows = tuple(
        (
            run.alias,
            run.solution or "not named",
            f"{run.timed} of {run.workloads}",
            *_estimates(run.latency_us),
            *_estimates(run.reference_us)[:2],
            *_estimates(run.speedup),
            run.ratio_of_means,
            run.timestamp,
            run.file,
            run.definition,
        )
        for run in runs
    )
    place = "value at the rounded place 0.95 (n - 1): what the files state"
    rank = "nearest rank, as kopt reports its own"
    columns = (
        Column("definition"),
        Column("solution"),
        Column("timed"),
        Column("mean", "us", "mean_us"),
        Column("median", "us", "median_us"),
        Column("P95 place", "us", "p95_place_us", place),
        Column("P95 rank", "us", "p95_rank_us", rank),
        Column("reference mean", "us", "reference_mean_us"),
        Column("reference median", "us", "reference_median_us"),
        Column("mean speed-up", "number", "mean_speedup", "mean of the single ratios"),
        Column("median speed-up", "number", "median_speedup"),
        Column("P95 speed-up place", "number", "p95_place_speedup", place),
        Column("P95 speed-up rank", "number", "p95_rank_speedup", rank),
        Column("ratio of means", "number", "ratio_of_means", "mean reference over mean latency"),
        Column("when", "time"),
        Column("file", "code"),
        Column("definition id", "code"),
    )
    caption = (
        "Over the workloads of each run. Two 95th percentiles are in use: result files state the "
        "value at the rounded place 0.95 (n - 1), kopt reports the nearest rank."
    )
    return Table("runs", "Runs", caption, columns, rows)


def _estimates(found: Estimates) -> tuple[float | None, ...]:
    return (found.mean, found.median, found.p95_place, found.p95_rank)


def _claims(runs: Sequence[ForeignRun]) -> Table:
    rows = tuple(
        (
            run.alias,
            claim.name,
            claim.stated,
            claim.found,
            claim.by,
            "agrees" if claim.agrees else "differs",
            run.file,
        )
        for run in runs
        for claim in run.claims
    )
    columns = (
        Column("definition"),
        Column("figure", "code"),
        Column("stated", "exact"),
        Column("of the entries", "exact", "found"),
        Column("by", help="which definitions of the figure give what was stated"),
        Column("verdict", "state"),
        Column("file", "code"),
    )
    caption = "What each file states, held against its own entries, in the file's units."
    empty = "No file states a figure of its own entries."
    return Table("claims", "What the files state", caption, columns, rows, empty)


def _entries(runs: Sequence[ForeignRun]) -> Table:
    rows = tuple(
        (
            run.alias,
            run.solution or "not named",
            ", ".join(f"{name}={value}" for name, value in row.axes.items()),
            row.status,
            row.latency_us,
            row.reference_us,
            row.speedup,
            row.uuid,
            run.file,
        )
        for run in runs
        for row in run.rows
    )
    columns = (
        Column("definition"),
        Column("solution"),
        Column("size"),
        Column("status", "state", help="as written"),
        Column("latency", "us", "latency_us"),
        Column("reference", "us", "reference_us"),
        Column("speed-up", "number", "speedup", "as written, else computed"),
        Column("uuid", "code"),
        Column("file", "code"),
    )
    return Table("entries", "Every entry", "As the files have them.", columns, rows)
