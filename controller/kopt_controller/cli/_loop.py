"""What the commands of the loop share: the real harness, and how rounds are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._common import AppState, ProgressHandle, note, print_table

if TYPE_CHECKING:
    from kopt_harness.targets import Target
    from kopt_harness.watch import Watch
    from rich.console import Console

    from ..config import RunConfig
    from ..harness import Harness
    from ..report import Block

__all__ = ["Notifier", "harness_maker", "notifier", "print_blocks", "print_rounds"]


def harness_maker(
    state: AppState, notify: Callable[[str], None]
) -> Callable[[Target, RunConfig], Harness]:
    """What makes the harness of this machine, when something has to be measured."""

    def make(target: Target, config: RunConfig) -> Harness:
        from kopt_harness.local import LocalHarness

        return LocalHarness(
            state.root,
            state.catalog,
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


def print_rounds(console: Console, document: Mapping[str, Any]) -> None:
    """All rounds of a run, for a person."""
    from ..report import round_blocks

    console.print(f"Run {document['run']}")
    for each in document["rounds"]:
        print_blocks(console, round_blocks(each))


def print_blocks(console: Console, blocks: tuple[Block, ...]) -> None:
    """Lines and tables, in order."""
    for block in blocks:
        if isinstance(block, str):
            console.print(block, soft_wrap=True)
        else:
            print_table(console, block.columns, block.rows, numeric=block.numeric)
