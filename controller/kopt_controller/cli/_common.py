"""What all commands share: state, output, errors, progress, common options.

A command module defines ``register(app)`` and takes ``typer.Context`` first. Data goes to
stdout (one JSON document with ``--json``), everything else to stderr. This module is the only
one of the command line that uses rich, and it loads it when something is shown.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import typer
from kopt_harness.errors import KoptError, NotFoundError, UsageError

if TYPE_CHECKING:
    from kopt_harness.catalog import Catalog
    from kopt_harness.root import Root
    from kopt_harness.schema import Definition, Solution, Workload
    from kopt_harness.targets import Target
    from kopt_harness.tunables import Tunable, TunableValue
    from rich.console import Console
    from rich.table import Table

    from ..report import Block

__all__ = [
    "AGENTS",
    "EVIDENCE",
    "JUDGE",
    "LOOK",
    "LOOP",
    "MAKE",
    "PANELS",
    "AppState",
    "DefinitionArgument",
    "ProgressHandle",
    "SeedOption",
    "SolutionArgument",
    "StoppedEarlyError",
    "TargetOption",
    "TrialsOption",
    "WorkloadOption",
    "discard_stdout",
    "emit",
    "examples",
    "live_blocks",
    "live_lines",
    "load_solution",
    "note",
    "only_group",
    "parse_settings",
    "pick_target",
    "pick_workloads",
    "print_table",
    "progress",
    "report_error",
    "shows_live",
    "state_of",
]

LOOK, MAKE, JUDGE, LOOP, EVIDENCE, AGENTS = PANELS = (
    "look",
    "make",
    "judge",
    "loop",
    "evidence",
    "agents",
)
"""Groups of ``kopt --help``, in its order; the ``rich_help_panel`` of each command."""

SCHEMA = 1
_PIPE_WIDTH = 200
"""Columns where the output is no terminal: wide enough that few table rows wrap."""
_LEAST_WORDS = 12
"""Columns of a cell of words below which a table is not worth reading: a short hash fits."""
_GAP = 3
"""Between two columns of a table."""

SolutionArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Solution folder, or solution JSON.")
]
DefinitionArgument = Annotated[
    str, typer.Argument(metavar="DEF", help="Definition: alias, id, or unambiguous prefix.")
]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="T", help="Hardware; default: the best target here."),
]
WorkloadOption = Annotated[
    list[str] | None,
    typer.Option("--workload", metavar="W", help="uuid, index, rep or all; may be repeated."),
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", metavar="S", help="Fixed public seed, for debugging: bars promotion."),
]
TrialsOption = Annotated[
    int | None,
    typer.Option("--trials", metavar="N", min=1, help="Input sets per workload; default: 3."),
]


@dataclass(frozen=True)
class AppState:
    """The global options, and what follows from them."""

    root_option: Path | None = None
    json: bool = False
    config_option: Path | None = None
    verbosity: int = 0
    """Number of ``-v`` less number of ``-q``."""

    @cached_property
    def root(self) -> Root:
        """Where ``kernels/`` is; looked for when first asked."""
        from kopt_harness.root import find_root

        return find_root(self.root_option)

    @cached_property
    def catalog(self) -> Catalog:
        """The definitions of ``root``."""
        from kopt_harness.catalog import Catalog

        return Catalog(self.root)

    @cached_property
    def config(self) -> Path | None:
        """The file of ``--config``: a path, or a name in ``configs/``; None without it.

        Raises:
            NotFoundError: If there is neither.
        """
        given = self.config_option
        if given is None or given.is_file():
            return given
        named = self.root.configs / f"{given.name}.toml"
        if given.parent == Path() and named.is_file():
            return named
        names = ", ".join(sorted(path.stem for path in self.root.configs.glob("*.toml")))
        raise NotFoundError(
            f"no run configuration {str(given)!r}",
            hint=f"give a file, or one of configs/: {names or 'it is empty'}",
        )


class StoppedEarlyError(Exception):
    """A limit has ended the work; its result so far was shown, and only the exit code is left."""

    exit_code = 130


def state_of(ctx: typer.Context) -> AppState:
    """The state that the global options made."""
    state = ctx.find_object(AppState)
    assert state is not None, "the callback of the app sets the state"
    return state


def only_group(ctx: typer.Context) -> None:
    """Callback of a group of commands: without one of them, its help and exit code 2.

    Raises:
        UsageError: With ``--json``, where help would be no document.
    """
    if ctx.invoked_subcommand is not None:
        return
    if state_of(ctx).json:
        path = ctx.command_path
        raise UsageError(f"{path} needs a command", hint=f"{path} --help lists its commands")
    sys.stdout.write(ctx.get_help() + "\n")
    raise typer.Exit(2)


def emit(state: AppState, document: Mapping[str, Any], human: Callable[[Console], None]) -> None:
    """Print the result on stdout: the document with ``--json``, else what ``human`` prints.

    Args:
        state: Of the command.
        document: JSON-able; ``schema`` is put first.
        human: Prints the same for a person.
    """
    try:
        if state.json:
            whole = {"schema": SCHEMA, **document}
            indent = 2 if sys.stdout.isatty() else None
            sys.stdout.write(_json(whole, indent=indent) + "\n")
        else:
            human(_console(sys.stdout))
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()


def _json(document: Mapping[str, Any], indent: int | None = None) -> str:
    text = json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # a terminal's encoding, or bytes of a path that are no UTF-8
        return json.dumps(document, indent=indent)
    return text


def discard_stdout() -> None:
    """Write nothing more: whoever reads the output, as ``head``, has enough of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(state: AppState, text: str, *, level: int = 0) -> None:
    """One line on stderr, for a person.

    Args:
        state: Of the command.
        text: What to say.
        level: Least verbosity at which it is said; ``-q`` hides level 0.
    """
    if state.verbosity >= level:
        sys.stderr.write(f"{text}\n")


def report_error(error: KoptError, *, as_json: bool) -> None:
    """Say what went wrong and what to do next: on stderr, or as a document on stdout."""
    message = " ".join(error.message.split())
    hint = " ".join(error.hint.split()) or "kopt --help lists the commands"
    if as_json:
        document = {"schema": SCHEMA, "error": message, "hint": hint}
        sys.stdout.write(_json(document) + "\n")
    else:
        sys.stderr.write(f"error: {message}\nhint: {hint}\n")


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numeric: Sequence[str] = (),
) -> None:
    """A plain table; None shows as ``-``. Where it would not fit, one row below the other.

    Args:
        console: As ``emit`` gives it.
        columns: Headings.
        rows: Cells, as long as ``columns``.
        numeric: Headings of the columns to align to the right.
    """
    if _least_width(columns, rows, numeric) <= console.width:
        console.print(_table(columns, rows, numeric))
        return
    for number, row in enumerate(rows):
        if number:
            console.print()
        console.print(_record(columns, row))


class ProgressHandle(Protocol):
    """What ``progress`` yields."""

    def update(self, done: int, total: int | None = None, *, text: str = "") -> None:
        """Show how far it is.

        Args:
            done: Steps that are complete.
            total: All steps, where known.
            text: Replaces the description.
        """
        ...


class _Silent:
    def update(self, done: int, total: int | None = None, *, text: str = "") -> None:
        """Shows nothing."""


@contextmanager
def progress(
    state: AppState, description: str, total: int | None = None
) -> Iterator[ProgressHandle]:
    """A progress bar on stderr while the block runs; nothing where that is no terminal.

    Args:
        state: Of the command; ``-q`` hides the bar.
        description: Of the work.
        total: Number of steps, where known.
    """
    if state.verbosity < 0 or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.progress import Progress

    with Progress(console=_console(sys.stderr), transient=True) as bar:
        task = bar.add_task(description, total=total)

        class _Bar:
            def update(self, done: int, total: int | None = None, *, text: str = "") -> None:
                bar.update(task, completed=done, total=total, description=text or None)

        yield _Bar()


@contextmanager
def live_lines(state: AppState, lines: Callable[[], list[str]]) -> Iterator[None]:
    """Lines on stderr, kept up to date while the block runs; none where that is no terminal.

    Args:
        state: Of the command; ``-q`` hides them.
        lines: Makes them, as often as they are shown.
    """
    with live_blocks(state, lines):
        yield


@contextmanager
def live_blocks(state: AppState, blocks: Callable[[], Sequence[Block]]) -> Iterator[None]:
    """The same with tables among the lines.

    Args:
        state: Of the command; ``-q`` hides them.
        blocks: Makes them, as often as they are shown.
    """
    if not shows_live(state):
        yield
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    def shown() -> Group:
        found = blocks()
        return Group(*(Text(e) if isinstance(e, str) else _table(*e) for e in found))

    with Live(
        get_renderable=shown,
        console=_console(sys.stderr),
        refresh_per_second=2,
        transient=True,
    ):
        yield


def shows_live(state: AppState) -> bool:
    """Whether somebody looks at stderr."""
    return state.verbosity >= 0 and sys.stderr.isatty()


def examples(*lines: str) -> str:
    """An epilog that shows command lines, one a line."""
    # Typer joins lines and keeps blank ones; a square bracket would be markup.
    shown = [line.replace("[", r"\[") for line in lines]
    return "\n\n".join(["Examples:", *(f"  {line}" for line in shown)])


def pick_target(name: str | None) -> Target:
    """The target of ``--target``; without it the best one here."""
    from kopt_harness.targets import best_target, get_target

    return best_target() if name is None else get_target(name)


def load_solution(state: AppState, path: Path, *, definition: Definition | None = None) -> Solution:
    """A solution that the user named: a folder, a JSON file, or the hash of an archived one.

    Args:
        state: Of the command; notes of the packing go to stderr.
        path: What the user gave.
        definition: Which it must implement, where the command says.

    Raises:
        NotFoundError: If there is nothing of this name.
        InvalidInputError: If it is no valid solution, or one of another definition.
    """
    from kopt_harness.archive import MIN_PREFIX, Archive
    from kopt_harness.errors import InvalidInputError
    from kopt_harness.pack import load

    if not path.exists() and re.fullmatch(rf"[0-9a-f]{{{MIN_PREFIX},64}}", str(path)):
        solution = Archive(state.root.local).get(str(path))
    else:
        packed = load(path, known=state.catalog)
        solution = packed.solution
        for text in packed.notes:
            note(state, f"note: {text}")
    if definition is not None and solution.definition != definition.name:
        raise InvalidInputError(
            f"{solution.name!r} implements {solution.definition!r}, not {definition.name!r}",
            hint=f"give a solution for {definition.kopt.alias}",
        )
    return solution


def parse_settings(
    settings: Sequence[str] | None, declared: Mapping[str, Tunable]
) -> dict[str, TunableValue]:
    """The values of ``--set NAME=VALUE`` options, each as the declared value it spells.

    Raises:
        InvalidInputError: If one is not of that form, or spells no declared value.
    """
    from kopt_harness.errors import InvalidInputError
    from kopt_harness.tunables import choose

    chosen: dict[str, TunableValue] = {}
    for setting in settings or ():
        name, separator, text = setting.partition("=")
        if not separator or not name:
            raise InvalidInputError(f"{setting!r} is not a setting", hint="write NAME=VALUE")
        values = declared[name].values if name in declared else ()
        chosen[name] = next((v for v in values if text in (str(v), str(v).lower())), text)
    choose(declared, chosen)
    return chosen


def pick_workloads(
    state: AppState, definition: Definition, selectors: Sequence[str] | None, default: str = "rep"
) -> list[Workload]:
    """The workloads of ``--workload``.

    Args:
        state: Of the command.
        definition: Whose workloads.
        selectors: Values of the option; several may stand in one, separated by commas.
        default: Selector used without the option.
    """
    given = [part.strip() for value in selectors or [default] for part in value.split(",")]
    return state.catalog.select(definition, given)


def _text(cell: object) -> str:
    return "-" if cell is None else str(cell)


def _least_width(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[str]
) -> int:
    """What a table needs to be read: numbers whole, and of words no column of single letters."""
    widths = []
    for number, column in enumerate(columns):
        cells = [_text(row[number]) for row in rows]
        longest = max([len(column), *map(len, cells)])
        heading = max(map(len, column.split()), default=0)
        widths.append(longest if column in numeric else min(longest, max(_LEAST_WORDS, heading)))
    return sum(widths) + _GAP * (len(widths) - 1)


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[str] = ()
) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        is_number = column in numeric
        justify: Literal["left", "right"] = "right" if is_number else "left"
        # A number that is cut in two is another number.
        table.add_column(column, justify=justify, overflow="fold", no_wrap=is_number)
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _record(columns: Sequence[str], row: Sequence[object]) -> Table:
    """One row of a table, a line for each cell."""
    from rich.table import Table

    grid = Table.grid(padding=(0, _GAP))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for column, cell in zip(columns, row, strict=True):
        grid.add_row(column, _text(cell))
    return grid


def _console(file: Any) -> Console:
    from rich.console import Console

    width = None if file.isatty() else _PIPE_WIDTH
    # Names and messages are data: square brackets in them are no markup.
    return Console(file=file, width=width, markup=False, highlight=False, emoji=False)
