"""What the judging commands share: options, exit codes, tables of verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import AppState, print_table

if TYPE_CHECKING:
    from kopt_harness.options import MeasureOptions
    from kopt_harness.schema import Evaluation, Verdict
    from kopt_harness.setting import Setting
    from rich.console import Console

__all__ = [
    "CacheOption",
    "TimerOption",
    "exit_code",
    "measure_options",
    "open_setting",
    "print_evaluation",
    "verdict_text",
]

TimerOption = Annotated[
    str | None,
    typer.Option("--timer", metavar="NAME", help="cpu, cupti or events; default: the target's."),
]
CacheOption = Annotated[
    str | None, typer.Option("--cache", metavar="STATE", help="cold, cold-clean or warm.")
]


def measure_options(state: AppState, **flags: Any) -> MeasureOptions:
    """Defaults, then ``--config``, then flags that were given."""
    from kopt_controller.config import load_config

    name = None if state.config is None else str(state.config)
    dotted = {f"measure.{field}": value for field, value in flags.items()}
    return load_config(state.root.configs, name, dotted).measure


def open_setting(state: AppState, target: str | None, options: MeasureOptions) -> Setting:
    """The setting for ``--target``, which must be in this machine."""
    from kopt_harness.setting import Setting

    from ._common import pick_target

    return Setting.here(state.catalog, pick_target(target).name, options)


def exit_code(verdict: Verdict) -> int:
    """0 for pass, 3 where nothing was learnt of the solution, else 1."""
    return {"pass": 0, "infra": 3, "invalid": 3}.get(verdict.value, 1)


def verdict_text(evaluation: Evaluation) -> str:
    """One line: verdict, solution, target."""
    name = f"{evaluation.solution.name} ({evaluation.solution.sha256[:12]})"
    where = "" if evaluation.verdict.value == "pass" else f" in phase {evaluation.phase}"
    return f"{evaluation.verdict.value}{where}: {name} on {evaluation.target}"


def print_evaluation(console: Console, evaluation: Evaluation) -> None:
    """Verdict, reasons, flags, and a row for each workload."""
    console.print(verdict_text(evaluation))
    for reason in evaluation.reasons:
        console.print(f"  {reason.code}: {reason.detail}", soft_wrap=True)
    for flag in evaluation.flags:
        console.print(f"  flag {flag.code}: {flag.detail}", soft_wrap=True)
    rows = []
    for result in evaluation.workloads:
        tiers = {name: tier.verdict for name, tier in result.tiers.items()}
        timing = result.timing or {}
        rows.append(
            [
                result.uuid[:12],
                " ".join(f"{axis}={extent}" for axis, extent in result.axes.items()),
                result.verdict.value,
                result.trials,
                tiers.get("contest"),
                tiers.get("strict"),
                _microseconds(timing.get("median_us")),
                _microseconds(timing.get("p95_us")),
                timing.get("n"),
            ]
        )
    columns = ["workload", "axes", "verdict", "trials", "contest", "strict"]
    times = ["median us", "p95 us", "n"]
    if not any(result.timing for result in evaluation.workloads):
        times, rows = [], [row[: len(columns)] for row in rows]
    if rows:
        print_table(console, [*columns, *times], rows, numeric=["trials", *times])


def _microseconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"
