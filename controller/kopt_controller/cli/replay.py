"""``kopt replay``: many trials, and what they prove."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kopt_harness.errors import NotFoundError, UsageError

from ._common import (
    JUDGE,
    SeedOption,
    SolutionArgument,
    TargetOption,
    WorkloadOption,
    emit,
    examples,
    load_solution,
    pick_workloads,
    print_table,
    progress,
    state_of,
)
from ._judging import exit_code, measure_options, open_setting, print_evaluation

if TYPE_CHECKING:
    from kopt_harness.ledger import Ledger
    from kopt_harness.setting import Setting
    from kopt_harness.trials import Replay
    from rich.console import Console

SHOWN = 10
"""Failures on a terminal; the document has more of them."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=JUDGE,
        epilog=examples(
            "kopt replay my-solution --trials 500",
            "kopt replay my-solution --workload all --generator ties --generator ragged",
            "kopt replay my-solution --trials 5000 --out-dir results --resume",
        ),
    )(replay)


def replay(
    ctx: typer.Context,
    solution: SolutionArgument,
    trials: Annotated[
        int,
        typer.Option("--trials", metavar="N", min=1, help="Input sets over all workloads."),
    ] = 200,
    workload: WorkloadOption = None,
    generator: Annotated[
        list[str] | None,
        typer.Option(
            "--generator", metavar="G", help="Of inputs; may be repeated. Default: all in turn."
        ),
    ] = None,
    target: TargetOption = None,
    seed: SeedOption = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out-dir", metavar="D", help="Keep a journal there.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the journal there.")] = False,
) -> None:
    """Call a solution on hundreds of distinct inputs; says which faults that would show.

    Every call is compared as a whole. All failures are counted.
    """
    from kopt_harness.replay import replay as run_replay

    state = state_of(ctx)
    if resume and seed is not None:
        raise UsageError(
            f"--seed {seed} would draw the same inputs once more",
            hint="start again without --resume, or leave the seed out",
        )
    packed = load_solution(state, solution)
    workloads = pick_workloads(state, state.catalog.resolve(packed.definition), workload)
    setting = open_setting(state, target, measure_options(state, seed=seed))
    again = f"kopt replay with the same arguments, --out-dir {out_dir} and --resume"
    with (
        _ledger(setting, out_dir, again, resume=resume) as ledger,
        progress(state, f"replay {packed.name}", trials) as bar,
    ):
        result = run_replay(
            setting,
            packed,
            workloads,
            ledger,
            trials=trials,
            generators=generator,
            progress=lambda ran, failed: bar.update(
                ran, text=f"replay {packed.name}, {failed} failed" if failed else ""
            ),
        )
    emit(state, result.document(), lambda console: _print(console, result))
    raise typer.Exit(exit_code(result.evaluation.verdict))


@contextmanager
def _ledger(setting: Setting, folder: Path | None, again: str, *, resume: bool) -> Iterator[Ledger]:
    """In memory, or a journal in ``folder`` that takes an interrupted replay up again."""
    from kopt_harness.journal import Journal
    from kopt_harness.ledger import DictLedger

    from ..campaign import interruptible

    if folder is None:
        if resume:
            raise UsageError("--resume needs a journal", hint="add --out-dir")
        yield DictLedger()
        return
    path = folder / "journal.jsonl"
    if path.is_file() and not resume:
        raise UsageError(f"{str(folder)!r} has a journal already", hint="add --resume")
    if resume and not path.is_file():
        raise NotFoundError(
            f"no journal in {str(folder)!r}", hint="give --out-dir with the folder of a replay"
        )
    same = json.dumps([setting.target.name, setting.environment["epoch"]])
    scope = hashlib.sha256(same.encode()).hexdigest()[:12]
    with Journal(path) as journal, interruptible("the replay", again):
        yield journal.scoped(scope)


def _print(console: Console, result: Replay) -> None:
    """Verdict and workloads as of a check, then trials, failures and what they prove."""
    print_evaluation(console, result.evaluation)
    document = result.document()
    ran, failures, repeats = document["trials"], document["failures"], document["repeats"]
    if not ran:
        return
    rows = [[name, row["trials"], row["failures"]] for name, row in document["generators"].items()]
    print_table(console, ["generator", "trials", "failures"], rows, numeric=["trials", "failures"])
    console.print(
        f"{ran} of {document['planned']} trials, {document['distinct']} distinct inputs, "
        f"{document['moved']} with moved pointers, {repeats['calls']} repeated "
        f"({repeats['different']} with other bits)"
    )
    _print_failures(console, document["failed"][:SHOWN], failures)
    table = [[f"{line['rate']:.1%}", _share(line["probability"])] for line in document["detection"]]
    print_table(console, ["fails on", "would have been seen"], table, numeric=["fails on"])
    console.print(
        f"{failures} failures in {ran} trials: with 95 % confidence it fails on at most "
        f"{document['p_upper_95']:.2%} of such inputs"
    )


def _print_failures(console: Console, shown: list[dict[str, Any]], total: int) -> None:
    for failure in shown:
        how = ", repeated call" * failure["repeated"] + ", moved pointers" * failure["moved"]
        where = f"trial {failure['trial']} ({failure['generator']}{how})"
        console.print(f"  {where}: {_what(failure)}", soft_wrap=True)
    if total > len(shown) > 0:
        console.print(f"  and {total - len(shown)} more")


def _what(failure: dict[str, Any]) -> str:
    """The first wrong element, or why there is none."""
    reason, wrong = failure["reason"], failure["first_wrong"]
    if wrong is None:
        return f"{reason['code']}: {reason['detail']}"
    place = f"{wrong['output']}{list(wrong['index'])}"
    return f"{reason['code']}: {place} is {wrong['actual']}, expected {wrong['expected']}"


def _share(probability: float) -> str:
    """A probability that is not rounded up to certainty."""
    return "over 99.9 %" if probability > 0.999 else f"{100 * probability:.1f} %"
