"""``kopt evidence``: what was tried, and what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._common import EVIDENCE, TargetOption, emit, examples, print_table, state_of

if TYPE_CHECKING:
    from rich.console import Console

DefinitionOption = Annotated[
    str | None, typer.Option("--definition", metavar="DEF", help="Only of this definition.")
]
DirectionOption = Annotated[
    str | None, typer.Option("--direction", metavar="ID", help="Only of this direction.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=EVIDENCE,
        epilog=examples(
            "kopt evidence --definition gdn_decode --target cpu", "kopt evidence --direction tiling"
        ),
    )(evidence)


def evidence(
    ctx: typer.Context,
    definition: DefinitionOption = None,
    target: TargetOption = None,
    direction: DirectionOption = None,
) -> None:
    """List what each technique did in each regime, over all runs, rejected probes included.

    With --json also the single candidates.
    """
    from kopt_harness.archive import Archive

    from ..evidence import collect, pool
    from ..shown import ratio_text

    state = state_of(ctx)
    name = None if definition is None else state.catalog.resolve(definition).name
    rows = [
        row
        for row in collect(Archive(state.root.local), name, target)
        if direction in (None, row.direction)
    ]
    pooled = pool(rows)

    def human(console: Console) -> None:
        if not pooled:
            console.print("Nothing was tried yet: kopt round --definition DEF runs a round.")
            return
        columns = ("definition", "target", "regime", "direction", "technique")
        numbers = ("tried", "faster", "slower", "wrong")
        table = [
            (
                *each.key,
                each.tried,
                each.faster,
                each.slower,
                each.wrong,
                None if each.ratio is None or each.ci is None else ratio_text(each.ratio, each.ci),
            )
            for each in pooled
        ]
        print_table(console, (*columns, *numbers, "time / incumbent"), table, numeric=numbers)

    document = {
        "techniques": [{**each.key._asdict(), **_numbers(each._asdict())} for each in pooled],
        "candidates": [row.model_dump(mode="json") for row in rows],
    }
    emit(state, document, human)


def _numbers(pooled: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in pooled.items() if name != "key"}
