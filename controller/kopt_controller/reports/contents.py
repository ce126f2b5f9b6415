"""The tables of a chapter, in the order of the report."""

from __future__ import annotations

from typing import Any

from ..views import Chapter, DecisionView
from .tabular import Column, Form, Table

__all__ = ["conditions_table", "evaluations_table", "tables_of"]

SHORT = 12


def tables_of(chapter: Chapter) -> dict[str, Table]:
    """By id; the conditions of single decisions are apart (``conditions_table``)."""
    makers = (
        _asked,
        _environment,
        _efficiency,
        _regimes,
        _workloads,
        _rounds,
        _candidates,
        _decisions,
        _directions,
        _costs,
        _steers,
    )
    tables = [make(chapter) for make in makers]
    return {table.id: table for table in tables}


def _asked(chapter: Chapter) -> Table:
    rows = tuple(
        (
            asked.run,
            asked.created,
            asked.agent,
            asked.policy,
            asked.mode,
            f"{asked.rounds_closed} of {asked.rounds_planned}",
            asked.state,
            asked.incumbent,
            _settings(asked.conditions | asked.measure),
        )
        for asked in chapter.runs
    )
    columns = (
        Column("run", "code"),
        Column("began", "time"),
        Column("agent"),
        Column("policy"),
        Column("promotion", help="auto moves the incumbent, ask leaves it to a person"),
        Column("rounds closed"),
        Column("state"),
        Column("first incumbent"),
        Column("settings", help="options of measuring and deciding that are not the defaults"),
    )
    caption = "One campaign a row, oldest first."
    return Table("asked", "What was asked", caption, columns, rows, "No campaign here.")


def _settings(changed: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changed.items()) or "defaults"


def _environment(chapter: Chapter) -> Table:
    rows = tuple(
        (environment.epoch, name, text)
        for environment in chapter.environments
        for name, text in environment.fields.items()
        if name != "epoch"
    )
    columns = (Column("epoch", "code"), Column("what"), Column("value"))
    caption = (
        "An epoch is one state of one device: driver, clocks, boot. Times of two epochs are not "
        "compared."
    )
    return Table("environment", "Environment and epoch", caption, columns, rows)


def _efficiency(chapter: Chapter) -> Table:
    rows = tuple(
        (
            row.role,
            row.name,
            row.mean_us,
            row.median_us,
            row.p95_us,
            (row.speedup, row.ci),
            row.x_floor,
            row.gbps,
            row.workloads,
        )
        for row in chapter.efficiency
    )
    columns = (
        Column("role"),
        Column("solution"),
        Column("mean", "us", "mean_us", "over workloads of each one's median"),
        Column("median", "us", "median_us"),
        Column("P95", "us", "p95_us", "nearest rank, over workloads"),
        Column(
            "time / candidate",
            "speedup",
            "time_over_candidate",
            "from paired blocks, with its interval; above 1 the candidate is faster",
        ),
        Column("x floor", "number", "times_floor", "mean over the mean of the floors"),
        Column("GB/s", "number", "gbps", "compulsory bytes over time"),
        Column("workloads", "count"),
    )
    caption = (
        "Each solution over all workloads. Means of medians and the paired ratio are different "
        "estimates; the ratio decides."
    )
    return Table("efficiency", "Efficiency", caption, columns, rows, "Nothing was swept yet.")


def _regimes(chapter: Chapter) -> Table:
    rows = tuple(
        (
            row.regime,
            row.workloads,
            row.time_share,
            row.bottleneck,
            row.basis,
            _dominant(row.dominant_kernel, row.dominant_share),
            row.launches,
            row.x_floor,
            row.diagnosis,
        )
        for row in chapter.regimes
    )
    columns = (
        Column("regime"),
        Column("workloads", "count"),
        Column("time", "percent", "time_share", "share of all workloads"),
        Column("limited by"),
        Column("from", help="what that was derived from"),
        Column("dominant kernel"),
        Column("launches", "count"),
        Column("x floor", "number", "times_floor"),
        Column("diagnosis"),
    )
    caption = "What limited the incumbent of the last round, regime by regime."
    return Table("regimes", "Where the time goes", caption, columns, rows)


def _dominant(kernel: str | None, share: float | None) -> str | None:
    if kernel is None:
        return None
    plain = kernel.removeprefix("void ").partition("<")[0].partition("(")[0] or kernel
    return plain if share is None else f"{plain} {share:.0%}"


def _workloads(chapter: Chapter) -> Table:
    names = sorted({name for row in chapter.workloads for name in row.baselines_us})
    axes = list(dict.fromkeys(axis for row in chapter.workloads for axis in row.axes))
    rows = tuple(
        (
            row.index,
            *(row.axes.get(axis) for axis in axes),
            row.verdict,
            row.candidate_us,
            row.incumbent_us,
            (row.ratio, row.ci),
            *(row.baselines_us.get(name) for name in names),
            row.floor_us,
            row.x_floor,
            row.blocks or None,
            "slower" if row.slower else "",
            row.regime,
            row.uuid,
        )
        for row in chapter.workloads
    )
    columns = (
        Column("#", "count", "index"),
        *(Column(axis, "count", axis) for axis in axes),
        Column("verdict", "state"),
        Column("candidate", "us", "candidate_us", "median of its timed calls"),
        Column("incumbent", "us", "incumbent_us"),
        Column("time / incumbent", "ratio", "time_over_incumbent", "below 1 is faster"),
        *(Column(name, "us", f"{name}_us") for name in names),
        Column("floor", "us", "floor_us", "least possible time"),
        Column("x floor", "number", "times_floor"),
        Column(
            "blocks",
            "count",
            "blocks",
            "paired blocks; of all workloads of its size where rounds time one of them in turn",
        ),
        Column("note", help="slower: beyond the margin, corrected for the number of workloads"),
        Column("regime"),
        Column("uuid", "code"),
    )
    caption = (
        "Medians of timed calls, cold caches unless the environment says otherwise. [wide]: the "
        "interval spans more than a factor of 20, as two blocks alone can give."
    )
    return Table("workloads", "Every workload", caption, columns, rows, "Nothing was swept yet.")


def _rounds(chapter: Chapter) -> Table:
    rows = tuple(
        (
            row.order,
            row.label,
            (row.ratio, row.ci),
            (row.best, None),
            row.direction,
            row.regime,
            row.bottleneck,
            f"{row.passed} of {row.candidates}",
            row.refused or None,
            "yes" if row.applied else "no",
            row.incumbent.name,
            row.time,
            f"{row.run}/{row.round}",
        )
        for row in chapter.rounds
    )
    columns = (
        Column("#", "count", "order"),
        Column("decision", "state"),
        Column("time / incumbent", "ratio", "time_over_incumbent", "of the sweep"),
        Column("best so far", "ratio", "best_so_far", "time over that of the first incumbent"),
        Column("direction"),
        Column("regime"),
        Column("limited by"),
        Column("passed"),
        Column("refused", "count", help="not measured: one like it was rejected before"),
        Column("applied", help="whether the incumbent moved"),
        Column("incumbent after"),
        Column("closed", "time"),
        Column("round", "code"),
    )
    caption = "Rounds in their order; the trajectory is drawn from them."
    return Table("rounds", "Rounds", caption, columns, rows, "No round is closed yet.")


def _candidates(chapter: Chapter) -> Table:
    rows = tuple(
        (
            row.order,
            row.name,
            row.verdict,
            row.outcome,
            (row.ratio, row.ci),
            "promoted" if row.promoted else "swept" if row.swept else "gate",
            row.direction,
            row.technique,
            ", ".join(row.flags),
            row.detail,
            row.sha256[:SHORT],
        )
        for row in chapter.candidates
    )
    columns = (
        Column("round", "count"),
        Column("candidate"),
        Column("verdict", "state"),
        Column("outcome", "state", help="by the interval: undecided where it spans 1"),
        Column("time / incumbent", "ratio", "time_over_incumbent", "of the sweep, else the gate"),
        Column("came to", "state"),
        Column("direction"),
        Column("technique"),
        Column("flags"),
        Column("what"),
        Column("sha256", "code"),
    )
    caption = "Every candidate that was measured, in its order."
    return Table("candidates", "Every candidate", caption, columns, rows, "None was measured yet.")


def _decisions(chapter: Chapter) -> Table:
    rows = tuple(
        (
            row.time,
            row.label,
            None if row.candidate is None else row.candidate.name,
            row.reason,
            ", ".join(row.flags),
            ", ".join(row.overridden),
            row.by,
            "yes" if row.applied else "no",
            row.source,
        )
        for row in chapter.decisions
    )
    columns = (
        Column("when", "time"),
        Column("decision", "state"),
        Column("candidate"),
        Column("because"),
        Column("flags"),
        Column("overridden", help="flags that a person has accepted"),
        Column("by"),
        Column("applied"),
        Column("source", "code"),
    )
    caption = "How every round and every kopt promote was closed."
    return Table("decisions", "Decisions", caption, columns, rows, "Nothing was decided yet.")


def conditions_table(decision: DecisionView) -> Table:
    """The evidence of one decision."""
    rows = tuple(
        ("ok" if each["ok"] else "NOT MET", each["name"], each["measured"], each["required"])
        for each in decision.conditions
    )
    columns = (Column("met", "state"), Column("condition"), Column("measured"), Column("required"))
    return Table("conditions", "Conditions", "", columns, rows, "No condition was looked at.")


def _directions(chapter: Chapter) -> Table:
    rows = tuple(
        (
            row.direction,
            row.rounds,
            row.tried,
            row.faster,
            row.undecided,
            row.slower,
            row.wrong,
            row.not_judged,
            row.refused,
            row.promoted,
            (row.best_ratio, row.best_ci),
            row.title,
        )
        for row in chapter.directions
    )
    counts = ("rounds", "tried", "faster", "undecided", "slower", "wrong", "not judged")
    form: Form = "count"
    columns = (
        Column("direction"),
        *(Column(name, form) for name in (*counts, "refused", "promoted")),
        Column("best", "ratio", "best", "least time over the incumbent of its round"),
        Column("title"),
    )
    caption = "What was tried in each direction, and what came of it."
    return Table("directions", "Directions by outcome", caption, columns, rows, "None was tried.")


def _costs(chapter: Chapter) -> Table:
    rows = tuple((cost.what, cost.amount, cost.unit) for cost in chapter.costs)
    columns = (Column("what"), Column("amount", "number"), Column("unit"))
    empty = "n/a: no ledger of costs was kept for these runs."
    return Table("costs", "Cost ledger", "What the campaigns have spent.", columns, rows, empty)


def _steers(chapter: Chapter) -> Table:
    rows = tuple(
        (row.time, row.kind, row.value, row.by, row.order or None, row.run)
        for row in chapter.steers
    )
    columns = (
        Column("when", "time"),
        Column("kind"),
        Column("what"),
        Column("by"),
        Column("heard in round", "count"),
        Column("run", "code"),
    )
    return Table("steers", "What people said", "By kopt steer.", columns, rows, "Nothing was said.")


def evaluations_table(chapter: Chapter) -> Table:
    """Every evaluated workload: the one table that may have tens of thousands of rows."""
    found = chapter.evaluations
    rows = tuple(
        (
            order or None,
            found.solutions[solution],
            found.uuids[uuid],
            found.verdicts[verdict],
            found.phases[phase],
            median_us,
        )
        for order, solution, uuid, verdict, phase, median_us in found.rows
    )
    columns = (
        Column("round", "count"),
        Column("solution", "code"),
        Column("workload", "code"),
        Column("verdict", "state"),
        Column("phase"),
        Column("median", "us", "median_us"),
    )
    caption = "Every workload that was checked or timed in these campaigns."
    title = "Every evaluation"
    return Table("evaluations", title, caption, columns, rows, "There is none in the archive.")
