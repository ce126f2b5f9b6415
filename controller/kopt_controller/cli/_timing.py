"""``kopt calibrate --timing``: is the decision of a comparison right."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kopt_harness.errors import NotFoundError

from ..shown import counted
from ._common import AppState, emit, load_solution, note, print_table, progress

if TYPE_CHECKING:
    from kopt_harness.schema import Definition, Solution, Workload
    from kopt_harness.setting import Setting
    from kopt_harness.timing_report import Decisions, TimingCalibration
    from rich.console import Console

__all__ = ["TimingRun", "calibrate_timing", "print_timing", "timing_folder"]


class TimingRun(NamedTuple):
    """What was asked for."""

    solution: Path | None
    comparisons: int
    resamples: int
    slowdowns: tuple[float, ...]
    """Per cent."""
    slow_comparisons: int
    folder: Path


def calibrate_timing(
    state: AppState,
    setting: Setting,
    definition: Definition,
    workloads: list[Workload],
    run: TimingRun,
) -> None:
    """Measures, keeps the noise floor, and prints."""
    from kopt_harness.calibrate_timing import calibrate_timing as calibrate
    from kopt_harness.journal import Journal
    from kopt_harness.noise import store_floor

    from ..campaign import interruptible

    solution = _solution(state, setting, definition, run.solution)
    total = run.comparisons + len(run.slowdowns) * run.slow_comparisons
    again = f"kopt calibrate with the same arguments, --out-dir {run.folder} and --resume"
    with (
        Journal(run.folder / "journal.jsonl") as journal,
        interruptible("the calibration", again),
        progress(state, f"compare {solution.name} with itself", total) as bar,
    ):
        found = calibrate(
            setting,
            solution,
            workloads,
            journal.scoped(_scope(setting, solution)),
            comparisons=run.comparisons,
            resamples=run.resamples,
            slowdowns=[each / 100 for each in run.slowdowns],
            slow_comparisons=run.slow_comparisons,
            progress=bar.update,
        )
    note(state, f"journal: {run.folder / 'journal.jsonl'}")
    note(state, f"noise floor: {store_floor(state.root, found.floor)}")
    emit(state, found.document(), lambda console: print_timing(console, found))


def timing_folder(state: AppState, definition: Definition) -> Path:
    """Where a calibration is kept whose user names no place."""
    name = f"{definition.kopt.alias}-timing-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    return state.root.local / "calibrations" / name


def print_timing(console: Console, found: TimingCalibration) -> None:
    """How often noise decides, how large it is, and what shows through it."""
    floor = found.floor
    console.print(
        f"{floor.solution.name} ({floor.solution.sha256[:12]}) against itself on "
        f"{floor.key.target}, {counted(len(found.workloads), 'workload')}, epoch {floor.key.epoch}"
    )
    rows = [
        ["live", "0", *_cells(found.live)],
        ["live", _percent(found.margin), *_cells(found.live_at_margin)],
        ["resampled", "0", *_cells(found.resampled)],
        ["resampled", _percent(found.margin), *_cells(found.resampled_at_margin)],
    ]
    rows += [
        [
            f"{each.extra_work:.1%} more work, ratio {_number(each.median_ratio)}",
            _percent(found.margin),
            *_cells(each.decisions),
        ]
        for each in found.slowdowns
    ]
    counts = ["comparisons", "faster", "95 % below", "slower", "same", "ambiguous"]
    print_table(console, ["B", "margin", *counts], rows, numeric=counts)
    console.print(
        f"noise floor {_percent(floor.floor)}, the margin from now on in this epoch: "
        f"{_percent(found.margin)}; half width of the interval {_percent(floor.half_width)}; "
        f"between processes {_percent(floor.process_spread)}",
        soft_wrap=True,
    )
    for regime, value in floor.regimes.items():
        console.print(f"  {regime}: {_percent(value)}")
    console.print(
        f"found in 95 of 100 comparisons: {_percent(found.detectable)} slower, "
        f"{_percent(found.detectable_without_margin)} with a margin of zero"
    )


def _scope(setting: Setting, solution: Solution) -> str:
    """Beginning of the keys of samples that may stand beside each other."""
    options = setting.options
    parts = [setting.target.name, setting.environment["epoch"], setting.timer, options.cache]
    parts += [str(setting.calls_per_slot), f"{setting.blocks_min}-{setting.blocks_max}"]
    return "/".join(["timing", *map(str, parts), solution.sha256[:12]])


def _solution(
    state: AppState, setting: Setting, definition: Definition, path: Path | None
) -> Solution:
    """What was named, or the incumbent."""
    if path is not None:
        return load_solution(state, path, definition=definition)
    incumbent = state.catalog.incumbent(definition, setting.target.name)
    if incumbent is None:
        raise NotFoundError(
            f"{definition.kopt.alias} has no incumbent on {setting.target.name!r}",
            hint="name a solution folder with --solution",
        )
    return incumbent


def _cells(decisions: Decisions) -> list[object]:
    return [
        decisions.comparisons,
        decisions.faster,
        _percent(decisions.faster_upper_95),
        decisions.slower,
        decisions.same,
        decisions.ambiguous,
    ]


def _percent(value: float | None) -> str:
    return "more than 200%" if value is None else f"{value:.2%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
