"""``kopt bench``: checked timing of one solution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import (
    JUDGE,
    SeedOption,
    SolutionArgument,
    TargetOption,
    TrialsOption,
    WorkloadOption,
    emit,
    examples,
    load_solution,
    pick_workloads,
    progress,
    state_of,
)
from ._judging import (
    CacheOption,
    TimerOption,
    exit_code,
    measure_options,
    open_setting,
    print_evaluation,
)

if TYPE_CHECKING:
    from kopt_harness.schema import Evaluation


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=JUDGE,
        epilog=examples(
            "kopt bench my-solution", "kopt bench my-solution --workload 0 --calls 100 --json"
        ),
    )(bench)


def bench(
    ctx: typer.Context,
    solution: SolutionArgument,
    target: TargetOption = None,
    workload: WorkloadOption = None,
    seed: SeedOption = None,
    trials: TrialsOption = None,
    calls: Annotated[
        int | None, typer.Option("--calls", min=1, help="Timed calls per workload.")
    ] = None,
    timer: TimerOption = None,
    cache: CacheOption = None,
) -> None:
    """Time a solution; every timed call is checked."""
    from kopt_harness.evaluate import evaluate
    from kopt_harness.lease import device_lease
    from kopt_harness.ledger import DictLedger

    state = state_of(ctx)
    packed = load_solution(state, solution)
    workloads = pick_workloads(state, state.catalog.resolve(packed.definition), workload)
    options = measure_options(
        state, trials=trials, seed=seed, bench_calls=calls, timer=timer, cache=cache
    )
    setting = open_setting(state, target, options)
    with (
        progress(state, f"bench {packed.name}", len(workloads)) as bar,
        device_lease(setting.device_id),
    ):
        count = iter(range(1, len(workloads) + 1))
        evaluation = evaluate(
            setting,
            packed,
            workloads,
            DictLedger(),
            timed=True,
            progress=lambda _workload, _result: bar.update(next(count)),
        )
    emit(state, bench_document(evaluation), lambda console: print_evaluation(console, evaluation))
    raise typer.Exit(exit_code(evaluation.verdict))


def bench_document(evaluation: Evaluation) -> dict[str, Any]:
    """The document of ``check`` with the timing of each workload beside its axes."""
    document = evaluation.document()
    medians = []
    for row in document["workloads"]:
        timing = row.pop("timing") or {}
        fields = ("median_us", "p95_us", "n", "timer", "cache", "samples_ns", "reason")
        row |= {field: timing.get(field) for field in fields}
        medians.append(row["median_us"])
    whole = bool(medians) and None not in medians
    document["mean_us"] = sum(medians) / len(medians) if whole else None
    return document
