"""``kopt compare``: is B faster than A."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..shown import bracketed, ratio_text
from ._common import (
    JUDGE,
    SeedOption,
    TargetOption,
    TrialsOption,
    WorkloadOption,
    emit,
    examples,
    load_solution,
    pick_workloads,
    print_table,
    progress,
    state_of,
)
from ._judging import CacheOption, TimerOption, measure_options, open_setting

if TYPE_CHECKING:
    from kopt_harness.schema import Comparison, Definition, Solution
    from rich.console import Console

    from ._common import AppState


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=JUDGE,
        epilog=examples(
            "kopt compare old-solution new-solution --workload all",
            "kopt compare peers/fa3@graph new-solution --exit-code",
        ),
    )(compare)


def compare(
    ctx: typer.Context,
    a: Annotated[Path, typer.Argument(metavar="A", help="Solution that B must beat.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Solution that may be faster.")],
    target: TargetOption = None,
    workload: WorkloadOption = None,
    seed: SeedOption = None,
    trials: TrialsOption = None,
    timer: TimerOption = None,
    cache: CacheOption = None,
    demand: Annotated[
        bool, typer.Option("--exit-code", help="Exit 1 unless the decision is faster.")
    ] = False,
) -> None:
    """Compare two solutions in paired blocks; ``faster`` means that B is faster than A.

    ``@graph`` behind a solution replays each of its calls from a CUDA graph.
    """
    from kopt_harness.baselines import peers_among
    from kopt_harness.compare import Pair, compare_pair
    from kopt_harness.ledger import DictLedger
    from kopt_harness.session import Session

    state = state_of(ctx)
    first = _given(state, a)
    definition = state.catalog.resolve(first.definition)
    second = _given(state, b, definition=definition)
    workloads = pick_workloads(state, definition, workload)
    options = measure_options(state, trials=trials, seed=seed, timer=timer, cache=cache)
    setting = open_setting(state, target, options)
    with (
        Session(setting, definition, workloads) as session,
        progress(state, f"compare {first.name} and {second.name}", len(workloads)) as bar,
    ):
        peers = peers_among(state.catalog, first, second)
        pair = Pair.of(setting, session, DictLedger(), first, second, peers=peers)
        comparison = compare_pair(
            pair, workloads, progress=lambda _workload, position: bar.update(position + 1)
        )
    emit(state, comparison.document(), lambda console: print_comparison(console, comparison))
    raise typer.Exit(1 if demand and comparison.decision != "faster" else 0)


def _given(state: AppState, path: Path, *, definition: Definition | None = None) -> Solution:
    """The solution of an argument, plain or replayed."""
    from kopt_harness.baselines import GRAPH
    from kopt_harness.graphed import graphed

    plain = Path(str(path).removesuffix(GRAPH))
    solution = load_solution(state, plain, definition=definition)
    return solution if plain == path else graphed(solution)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """The decision with its interval, and a row for each workload."""
    console.print(f"A {comparison.a.name} ({comparison.a.sha256[:12]})")
    console.print(f"B {comparison.b.name} ({comparison.b.sha256[:12]})")
    text = f"{comparison.decision} on {comparison.target}"
    if comparison.ratio is not None and comparison.ci is not None:
        shown = ratio_text(comparison.ratio, comparison.ci, 4)
        text += f": mean latency of B / A = {shown}"
        text += f" at {comparison.confidence:.0%} over all looks, "
        text += f"margin {comparison.margin:.2%} ({comparison.margin_source})"
    console.print(text + (f"; {comparison.reason}" if comparison.reason else ""))
    for name, found in comparison.deviations.items():
        console.print(f"{name}: as a candidate it would be refused: {found.detail}", soft_wrap=True)
    rows = [
        [
            row.uuid[:12],
            " ".join(f"{axis}={extent}" for axis, extent in row.axes.items()),
            None if row.a_median_us is None else f"{row.a_median_us:.2f}",
            None if row.b_median_us is None else f"{row.b_median_us:.2f}",
            None if row.ratio is None else f"{row.ratio:.3f}",
            None if row.ci is None else bracketed(row.ci),
            row.n,
        ]
        for row in comparison.workloads
    ]
    if comparison.secondary is not None:
        beside = comparison.secondary
        console.print(
            f"B / A over workloads: median {beside.median:.3f}, P95 {beside.p95:.3f}; "
            f"worst regime {beside.worst_regime}: {beside.worst_regime_ratio:.3f}"
        )
    if slower := comparison.regressions:
        console.print(
            f"slower beyond the margin on {len(slower)} of {len(rows)} workloads (Holm, 5 %): "
            + ", ".join(row.uuid[:12] for row in slower),
            soft_wrap=True,
        )
    columns = ["workload", "axes", "A us", "B us", "B/A", "interval", "blocks"]
    print_table(console, columns, rows, numeric=["A us", "B us", "B/A", "blocks"])
