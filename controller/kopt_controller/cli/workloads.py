"""``kopt workloads``: the workloads of a definition, and its regimes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._common import LOOK, DefinitionArgument, emit, examples, print_table, state_of

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=LOOK,
        epilog=examples("kopt workloads gdn_decode", "kopt workloads moe_fp8 --regimes"),
    )(workloads)


def workloads(
    ctx: typer.Context,
    definition: DefinitionArgument,
    regimes: Annotated[
        bool, typer.Option("--regimes", help="Show the derived regimes instead.")
    ] = False,
) -> None:
    """List the workloads of a definition, with the regime and the least work of each."""
    state = state_of(ctx)
    catalog = state.catalog
    resolved = catalog.resolve(definition)
    regime_of = catalog.regimes(resolved)
    rows: list[dict[str, Any]] = []
    for workload in catalog.workloads(resolved):
        cost = catalog.cost(resolved, workload.axes)
        rows.append(
            {
                "index": workload.index,
                "uuid": workload.uuid,
                "axes": workload.axes,
                "regime": regime_of[workload.uuid],
                "bytes": cost.bytes,
                "flops": cost.flops,
            }
        )
    chosen = {workload.uuid for workload in catalog.representatives(resolved)}
    regime_rows = [
        {
            "name": regime.name,
            "workloads": len(regime.workloads),
            "representatives": [w.index for w in regime.workloads if w.uuid in chosen],
            "bytes": _range([r["bytes"] for r in rows if r["regime"] == regime.name]),
            "flops": _range([r["flops"] for r in rows if r["regime"] == regime.name]),
        }
        for regime in catalog.regime_list(resolved)
    ]

    def human(console: Console) -> None:
        if regimes:
            _print_regimes(console, regime_rows)
        else:
            _print_workloads(console, rows)

    document = {"definition": resolved.name, "workloads": rows, "regimes": regime_rows}
    emit(state, document, human)


def _print_workloads(console: Console, rows: list[dict[str, Any]]) -> None:
    cells = [
        (
            row["index"],
            row["uuid"],
            " ".join(f"{name}={extent}" for name, extent in row["axes"].items()),
            row["regime"],
            _short(row["bytes"]),
            _short(row["flops"]),
        )
        for row in rows
    ]
    columns = ("index", "uuid", "axes", "regime", "bytes", "flops")
    print_table(console, columns, cells, numeric=("index", "bytes", "flops"))


def _print_regimes(console: Console, rows: list[dict[str, Any]]) -> None:
    cells = [
        (
            row["name"],
            row["workloads"],
            ", ".join(map(str, row["representatives"])),
            " to ".join(dict.fromkeys(map(_short, row["bytes"]))),
            " to ".join(dict.fromkeys(map(_short, row["flops"]))),
        )
        for row in rows
    ]
    columns = ("regime", "workloads", "rep", "bytes", "flops")
    print_table(console, columns, cells, numeric=("workloads",))


def _range(values: list[int]) -> list[int]:
    return [min(values), max(values)]


def _short(value: int) -> str:
    """Three significant digits with a decimal prefix."""
    scaled = float(value)
    for prefix in ("", "k", "M", "G"):
        if scaled < 1000:
            return f"{scaled:.3g}{prefix}"
        scaled /= 1000
    return f"{scaled:.3g}T"
