"""What the commands of the loop share: the real harness, and how rounds are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import AppState, ProgressHandle, note, print_table

if TYPE_CHECKING:
    from kopt_harness.root import Root
    from kopt_harness.targets import Target
    from kopt_harness.watch import Watch
    from rich.console import Console

    from ..config import RunConfig
    from ..harness import Harness
    from ..report import Block

__all__ = [
    "DeviceLimitOption",
    "DollarLimitOption",
    "Notifier",
    "TokenLimitOption",
    "WallLimitOption",
    "harness_maker",
    "harness_maker_in",
    "notifier",
    "print_blocks",
    "print_rounds",
    "with_costs",
]

DollarLimitOption = Annotated[
    float | None,
    typer.Option(metavar="D", min=0, help="Stop, to be resumed, once agents have cost so much."),
]
TokenLimitOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="The same for tokens of all kinds.")
]
DeviceLimitOption = Annotated[
    float | None,
    typer.Option(metavar="S", min=0, help="The same for seconds of the device, kopt's own too."),
]
WallLimitOption = Annotated[
    float | None, typer.Option(metavar="S", min=0, help="The same for seconds of wall time.")
]


def harness_maker(
    state: AppState, notify: Callable[[str], None]
) -> Callable[[Target, RunConfig], Harness]:
    """What makes the harness of this machine, when something has to be measured."""
    make = harness_maker_in(notify)
    return lambda target, config: make(state.root, target, config)


def harness_maker_in(
    notify: Callable[[str], None],
) -> Callable[[Root, Target, RunConfig], Harness]:
    """The same for any root."""

    def make(root: Root, target: Target, config: RunConfig) -> Harness:
        from kopt_harness.catalog import Catalog
        from kopt_harness.local import LocalHarness

        return LocalHarness(
            root,
            Catalog(root),
            target.name,
            config.measure,
            profiler=config.profiler,
            notify=notify,
        )

    return make


class Notifier:
    """Shows each line as a note, the last one in the progress bar, and both to other terminals."""

    def __init__(self, state: AppState, bar: ProgressHandle) -> None:
        self._state = state
        self._bar = bar
        self._watch: Watch | None = None

    def keep(self, folder: Path) -> None:
        """From here on, what is being done lies beside the journal: ``progress.json``."""
        from kopt_harness.watch import PROGRESS_FILE, Watch

        self._watch = Watch(0, folder / PROGRESS_FILE)

    def __call__(self, text: str) -> None:
        """Says what is done now."""
        self._bar.update(0, text=text)
        note(self._state, text)
        if self._watch is not None:
            self._watch.work("worker 1", text, now=True)


def notifier(state: AppState, bar: ProgressHandle) -> Notifier:
    """What a command of the loop is told."""
    return Notifier(state, bar)


def with_costs(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The document of a run with what it and each of its rounds have cost.

    Args:
        document: Of ``kopt round``.
        folder: Of the run.
    """
    from ..costs import cost_document
    from ..metering import read_costs

    costs = read_costs(folder)
    for each in document["rounds"]:
        report = costs.rounds.get(each["round"])
        each["cost"] = None if report is None else cost_document(report)
    return {**document, "cost": costs.document()}


def print_rounds(console: Console, document: Mapping[str, Any]) -> None:
    """All rounds of a run, for a person."""
    from ..report import retained_after, round_blocks

    console.print(f"Run {document['run']}")
    rounds = document["rounds"]
    for each, retained in zip(rounds, retained_after(rounds), strict=True):
        print_blocks(console, round_blocks(each, retained))
    if document.get("cost") is not None:
        from ..report import cost_line

        console.print(cost_line(document["cost"]), soft_wrap=True)


def print_blocks(console: Console, blocks: tuple[Block, ...]) -> None:
    """Lines and tables, in order."""
    for block in blocks:
        if isinstance(block, str):
            console.print(block, soft_wrap=True)
        else:
            print_table(console, block.columns, block.rows, numeric=block.numeric)
