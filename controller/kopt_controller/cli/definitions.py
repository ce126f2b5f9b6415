"""``kopt definitions``: the operators that this root defines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ._common import LOOK, emit, examples, note, print_table, state_of

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=LOOK,
        epilog=examples("kopt definitions", "kopt definitions --json"),
    )(definitions)


def definitions(ctx: typer.Context) -> None:
    """List the definitions: alias, id, operator type, number of workloads."""
    state = state_of(ctx)
    catalog = state.catalog
    rows = [
        {
            "id": definition.name,
            "alias": definition.kopt.alias,
            "op_type": definition.op_type,
            "workloads": len(catalog.workloads(definition)),
            "solutions": catalog.solution_names(definition),
            "description": definition.description,
        }
        for definition in catalog.definitions()
    ]

    def human(console: Console) -> None:
        cells = [(r["alias"], r["op_type"], r["workloads"], r["id"]) for r in rows]
        print_table(console, ("alias", "op_type", "workloads", "id"), cells, numeric=("workloads",))

    emit(state, {"definitions": rows}, human)
    if not rows:
        note(state, f"note: {str(state.root.kernels)!r} has no definition; see --root")
