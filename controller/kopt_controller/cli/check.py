"""``kopt check``: is a solution right."""

from __future__ import annotations

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
from ._judging import exit_code, measure_options, open_setting, print_evaluation


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=JUDGE,
        epilog=examples(
            "kopt check kernels/gdn_decode_qk4_v8_d128_k_last/solutions/cpp-recurrent",
            "kopt check my-solution --workload all --trials 10",
        ),
    )(check)


def check(
    ctx: typer.Context,
    solution: SolutionArgument,
    target: TargetOption = None,
    workload: WorkloadOption = None,
    seed: SeedOption = None,
    trials: TrialsOption = None,
) -> None:
    """Check a solution on secret inputs; names the first wrong element."""
    from kopt_harness.evaluate import evaluate
    from kopt_harness.ledger import DictLedger

    state = state_of(ctx)
    packed = load_solution(state, solution)
    workloads = pick_workloads(state, state.catalog.resolve(packed.definition), workload)
    options = measure_options(state, trials=trials, seed=seed)
    setting = open_setting(state, target, options)
    with progress(state, f"check {packed.name}", len(workloads)) as bar:
        count = iter(range(1, len(workloads) + 1))
        evaluation = evaluate(
            setting,
            packed,
            workloads,
            DictLedger(),
            progress=lambda _workload, _result: bar.update(next(count)),
        )
    emit(state, evaluation.document(), lambda console: print_evaluation(console, evaluation))
    raise typer.Exit(exit_code(evaluation.verdict))
