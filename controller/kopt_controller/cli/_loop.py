"""What the commands of the loop share: the real harness, and how rounds are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ._common import AppState, ProgressHandle, note, print_table

if TYPE_CHECKING:
    from kopt_harness.targets import Target
    from rich.console import Console

    from ..config import RunConfig
    from ..harness import Harness
    from ..report import Block

__all__ = ["harness_maker", "notifier", "print_blocks", "print_rounds"]


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


def notifier(state: AppState, bar: ProgressHandle) -> Callable[[str], None]:
    """Shows each line as a note, and the last one in the progress bar."""

    def notify(text: str) -> None:
        bar.update(0, text=text)
        note(state, text)

    return notify


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
