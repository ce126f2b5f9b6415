"""``kopt calibrate``: can workloads tell right from wrong, and comparisons fast from slow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kopt_harness.errors import NotFoundError, UsageError

from ._common import (
    JUDGE,
    DefinitionArgument,
    SeedOption,
    TargetOption,
    WorkloadOption,
    emit,
    examples,
    note,
    pick_workloads,
    print_table,
    progress,
    state_of,
)
from ._judging import exit_code, measure_options, open_setting
from ._timing import TimingRun, calibrate_timing, timing_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kopt_harness.calibrate import Calibration
    from kopt_harness.schema import Definition, Workload
    from kopt_harness.setting import Setting
    from rich.console import Console

    from ._common import AppState


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=JUDGE,
        epilog=examples(
            "kopt calibrate gdn_decode",
            "kopt calibrate dsa_topk --workload all --out-dir calibration",
            "kopt calibrate dsa_topk --workload all --out-dir calibration --resume",
            "kopt calibrate gdn_decode --timing --comparisons 30 --slowdown 5",
        ),
    )(calibrate)


def calibrate(
    ctx: typer.Context,
    definition: DefinitionArgument,
    target: TargetOption = None,
    workload: WorkloadOption = None,
    generator: Annotated[
        list[str] | None,
        typer.Option("--generator", metavar="G", help="Only this one; may be repeated."),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out-dir", metavar="D", help="Where the journal is kept.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the journal there.")] = False,
    seed: SeedOption = None,
    timing: Annotated[
        bool, typer.Option("--timing", help="Compare a solution with itself instead.")
    ] = False,
    solution: Annotated[
        Path | None,
        typer.Option("--solution", metavar="DIR", help="With --timing; default: the incumbent."),
    ] = None,
    comparisons: Annotated[
        int | None,
        typer.Option(
            "--comparisons", metavar="N", min=1, help="Live comparisons with itself; default: 20."
        ),
    ] = None,
    resamples: Annotated[
        int | None,
        typer.Option(
            "--resamples", metavar="M", min=1, help="More, out of their blocks; default: 2000."
        ),
    ] = None,
    slowdown: Annotated[
        list[float] | None,
        typer.Option("--slowdown", metavar="P", help="Also P % more work; may be repeated."),
    ] = None,
    slow_comparisons: Annotated[
        int | None,
        typer.Option(
            "--slow-comparisons", metavar="N", min=1, help="Of each --slowdown; default: 10."
        ),
    ] = None,
) -> None:
    """Run null kernels on the workloads of a definition; none may pass.

    Exits 3 where the strict tier accepts one on any workload. With --timing, a solution is
    compared with itself: how often noise decides, how large it is, and what shows through it.
    """
    _require_timing(
        timing,
        {
            "--solution": solution,
            "--comparisons": comparisons,
            "--resamples": resamples,
            "--slowdown": slowdown,
            "--slow-comparisons": slow_comparisons,
        },
    )
    if timing and generator:
        raise UsageError("--generator has no meaning with --timing", hint="leave it out")
    state = state_of(ctx)
    resolved = state.catalog.resolve(definition)
    workloads = pick_workloads(state, resolved, workload)
    setting = open_setting(state, target, measure_options(state, seed=seed))
    if timing:
        folder = out_dir or timing_folder(state, resolved)
        _require_fresh(folder, resume=resume)
        asked = TimingRun(
            solution=solution,
            comparisons=comparisons or 20,
            resamples=resamples or 2000,
            slowdowns=tuple(slowdown or ()),
            slow_comparisons=slow_comparisons or 10,
            folder=folder,
        )
        calibrate_timing(state, setting, resolved, workloads, asked)
        return
    name = f"{resolved.kopt.alias}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    folder = out_dir or state.root.local / "calibrations" / name
    _require_fresh(folder, resume=resume)
    _null_kernels(state, setting, resolved, workloads, folder, generators=generator)


def _null_kernels(
    state: AppState,
    setting: Setting,
    definition: Definition,
    workloads: Sequence[Workload],
    folder: Path,
    *,
    generators: list[str] | None,
) -> None:
    """Runs what the journal in the folder does not have, and prints all."""
    from kopt_harness.calibrate import calibrate as run
    from kopt_harness.journal import Journal

    from ..campaign import interruptible

    alias = definition.kopt.alias
    again = f"kopt calibrate with the same arguments, --out-dir {folder} and --resume"
    with (
        Journal(folder / "journal.jsonl") as journal,
        interruptible("the calibration", again),
        progress(state, f"calibrate {alias}", len(workloads)) as bar,
    ):
        count = iter(range(1, len(workloads) + 1))
        result = run(
            setting,
            definition,
            workloads,
            journal.scoped(f"{setting.target.name}/{setting.environment['epoch']}"),
            generators=generators,
            progress=lambda _workload, _result: bar.update(next(count)),
        )
    note(state, f"journal: {folder / 'journal.jsonl'}")
    emit(state, result.document(), lambda console: print_calibration(console, result))
    raise typer.Exit(exit_code(result.verdict))


def _require_timing(timing: bool, given: Mapping[str, Any]) -> None:
    """Refuses options of --timing without it, and slowdowns that are none."""
    if not timing:
        for name, value in given.items():
            if value is not None:
                raise UsageError(f"{name} needs --timing", hint="add --timing, or leave it out")
    for share in given["--slowdown"] or ():
        if not 0 < share <= 1000:
            raise UsageError(f"--slowdown {share!r} is no slow-down", hint="5 is 5 % more work")


def _require_fresh(folder: Path, *, resume: bool) -> None:
    there = (folder / "journal.jsonl").is_file()
    if there and not resume:
        raise UsageError(f"{str(folder)!r} has a journal already", hint="add --resume")
    if resume and not there:
        raise NotFoundError(
            f"no journal in {str(folder)!r}",
            hint="give --out-dir with the folder of a calibration",
        )


def print_calibration(console: Console, result: Calibration) -> None:
    """A row for each workload, then what passed where."""
    console.print(f"{result.verdict.value}: {result.definition} on {result.target}")
    rows = [
        [
            found.uuid[:12],
            " ".join(f"{axis}={extent}" for axis, extent in found.axes.items()),
            "valid" if found.verdict.value == "pass" else found.verdict.value,
            len(found.generators),
            found.count("strict", "fail"),
            found.count("strict", "not-applicable"),
            found.count("strict", "pass"),
            found.count("contest", "pass"),
        ]
        for found in result.workloads
    ]
    numbers = ["generators", "recognised", "not applicable", "strict passes", "contest passes"]
    print_table(console, ["workload", "axes", "verdict", *numbers], rows, numeric=numbers)
    for found in result.workloads:
        for reason in found.reasons:
            console.print(f"  {found.uuid[:12]}: {reason.code}: {reason.detail}", soft_wrap=True)
    for title, accepted in (
        ("precision that the strict tier accepts", result.precision()),
        ("null kernels that the contest tier accepts", result.contest_accepts()),
    ):
        if accepted:
            console.print(f"{title}:")
        for kernel, generators in accepted.items():
            console.print(f"  {kernel} on {', '.join(generators)}", soft_wrap=True)
    if result.without_influence():
        names = ", ".join(result.without_influence())
        console.print(f"inputs that changed no answer here: {names}", soft_wrap=True)
