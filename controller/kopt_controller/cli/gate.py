"""``kopt gate``: the representative gate against the incumbent."""

from __future__ import annotations

import typer
from kopt_harness.errors import NotFoundError

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
from .compare import print_comparison


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=JUDGE, epilog=examples("kopt gate my-solution --json"))(gate)


def gate(
    ctx: typer.Context,
    solution: SolutionArgument,
    target: TargetOption = None,
    workload: WorkloadOption = None,
    seed: SeedOption = None,
    trials: TrialsOption = None,
) -> None:
    """Check a solution on representative workloads and compare it with the incumbent.

    Exits 1 where the solution is wrong or shown to be slower.
    """
    from kopt_harness.gate import gate as run_gate
    from kopt_harness.ledger import DictLedger

    state = state_of(ctx)
    packed = load_solution(state, solution)
    definition = state.catalog.resolve(packed.definition)
    workloads = pick_workloads(state, definition, workload)
    setting = open_setting(state, target, measure_options(state, trials=trials, seed=seed))
    incumbent = state.catalog.incumbent(definition, setting.target.name)
    if incumbent is None:
        raise NotFoundError(
            f"{definition.kopt.alias} has no incumbent on {setting.target.name!r}",
            hint=f"add [{setting.target.name}] to the definition's retained.toml",
        )
    with progress(state, f"gate {packed.name}", 2 * len(workloads)) as bar:
        count = iter(range(1, len(workloads) + 1))
        result = run_gate(
            setting,
            packed,
            incumbent,
            workloads,
            DictLedger(),
            progress=lambda _workload, _result: bar.update(next(count)),
            block_progress=lambda _workload, position: bar.update(len(workloads) + position + 1),
        )
    document = {
        **result.evaluation.document(),
        "passed": result.passed,
        "gate": result.reason.model_dump(mode="json"),
        "comparison": result.comparison and result.comparison.document(),
    }

    def human(console: object) -> None:
        print_evaluation(console, result.evaluation)  # type: ignore[arg-type]
        if result.comparison is not None:
            print_comparison(console, result.comparison)  # type: ignore[arg-type]

    emit(state, document, human)
    code = exit_code(result.evaluation.verdict)
    raise typer.Exit(code if code or result.passed else 1)
