"""The ``kopt`` command.

Every module of this folder without a leading underscore is a command, or a few that belong
together: it defines ``register(app)``. To add a command, add a module.
"""

from __future__ import annotations

import errno
import importlib
import io
import pkgutil
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer
from kopt_harness import __version__
from kopt_harness.errors import InfraError, InvalidInputError, KoptError, UsageError
from typer.core import TyperGroup

from ._common import PANELS, AppState, StoppedEarlyError, discard_stdout, emit, report_error

__all__ = ["build_app", "main"]

_GLOBAL_FLAGS = frozenset({"--json", "--version", "--quiet", "--verbose"})
_GLOBAL_OPTIONS = frozenset({"--root", "--config"})
_INTERRUPTED = 130
_FILE_ERRORS = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Of a path that the user, not the machine, can put right."""

_ParserError: type[Exception] = typer.BadParameter.__mro__[2]
"""``ClickException`` of the parser that typer uses: its own copy of click, or click itself."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Args:
        argv: Arguments without the program name; default: those of this process.
    """
    given = sys.argv[1:] if argv is None else argv
    as_json = "--json" in takewhile(lambda argument: argument != "--", given)
    for stream in (sys.stdout, sys.stderr):
        # A path may hold bytes that are no text, and a terminal may not have every letter.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        arguments = hoist_globals(given)
        result = build_app()(arguments, prog_name="kopt", standalone_mode=False)
        sys.stdout.flush()
    except _ParserError as error:
        return _report_parser_error(error, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _report_interrupt(as_json=as_json)
    except (BrokenPipeError, StoppedEarlyError) as error:
        return _ended(error)
    except (KoptError, OSError) as error:
        problem = error if isinstance(error, KoptError) else _refusal(error)
        report_error(problem, as_json=as_json)
        return problem.exit_code
    if result == _INTERRUPTED:  # what newer parsers make of a KeyboardInterrupt
        return _report_interrupt(as_json=as_json)
    return result if isinstance(result, int) else 0


def build_app() -> typer.Typer:
    """The application, with the commands of all modules of this folder."""
    app = typer.Typer(
        name="kopt",
        cls=_GroupedByPanel,
        help="Make GPU kernels faster, and believe only what was measured.",
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Global options may stand before or after the command.",
    )
    app.callback(invoke_without_command=True)(_globals)
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith("_"):
            importlib.import_module(f"{__name__}.{info.name}").register(app)
    return app


class _GroupedByPanel(TyperGroup):
    """Lists commands panel by panel, in the order of ``PANELS``."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help; commands of one panel stay in module order."""
        del ctx  # the commands do not depend on it
        panel = {
            name: PANELS.index(str(getattr(command, "rich_help_panel", "")))
            for name, command in self.commands.items()
        }
        return sorted(self.commands, key=panel.__getitem__)


def hoist_globals(arguments: Sequence[str]) -> list[str]:
    """Move global options to the front, so that they may stand after the command too.

    Raises:
        UsageError: If one that takes a value has none.
    """
    front: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            rest += [argument, *waiting]
        elif argument in _GLOBAL_OPTIONS:
            value = next(waiting, "--")
            if value.startswith("--"):
                raise UsageError(f"{argument} needs a value", hint=f"write {argument} PATH")
            front += [argument, value]
        elif _is_global(argument):
            front.append(argument)
        else:
            rest.append(argument)
    return [*front, *rest]


def _is_global(argument: str) -> bool:
    name, has_value, _ = argument.partition("=")
    short = argument[:1] == "-" and len(argument) > 1 and set(argument[1:]) <= {"q", "v"}
    return short or argument in _GLOBAL_FLAGS or (has_value == "=" and name in _GLOBAL_OPTIONS)


def _globals(
    ctx: typer.Context,
    *,
    root: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with kernels/; default: see kopt doctor."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run configuration: a file, or a name in configs/."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    quiet: Annotated[
        int, typer.Option("--quiet", "-q", count=True, help="No notes, no progress.")
    ] = 0,
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more.")] = 0,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    ctx.obj = AppState(root, json, config, verbose - quiet)
    if version:
        document = {"version": __version__}
        emit(ctx.obj, document, lambda console: console.print(f"kopt {__version__}"))
        raise typer.Exit
    if config is not None:
        _require_readable(ctx.obj)
    if ctx.invoked_subcommand is None:
        if json:
            raise UsageError("no command was given", hint="kopt --help lists the commands")
        sys.stdout.write(ctx.get_help() + "\n")
        raise typer.Exit


def _ended(error: Exception) -> int:
    """The exit code where all was shown that there is, or that somebody wanted to read."""
    if isinstance(error, StoppedEarlyError):
        return error.exit_code
    discard_stdout()
    return 0


def _require_readable(state: AppState) -> None:
    """A configuration that is no TOML is refused by every command, also one that needs none."""
    from kopt_harness.files import read_toml

    if state.config is not None:
        read_toml(state.config, "run configuration")


def _refusal(error: OSError) -> KoptError:
    """What the operating system refused: a file that the user can put right, or the machine."""
    place = f"{str(error.filename)!r}: " if error.filename else ""
    message = f"{place}{error.strerror or error}"
    if error.errno in _FILE_ERRORS:
        hint = "name a place that can be read and written"
        return InvalidInputError(message, hint=hint)
    return InfraError(message, hint="kopt doctor shows what this machine has")


def _report_interrupt(*, as_json: bool) -> int:
    report_error(KoptError("interrupted", hint="kopt resume continues a run"), as_json=as_json)
    return _INTERRUPTED


def _in_own_words(message: str, error: Exception) -> str:
    """The parser hands on what a validation says of a value; kopt says it with the value."""
    from pydantic import ValidationError

    from ..faults import rule_of

    cause, parameter = error.__cause__, getattr(error, "param", None)
    if not isinstance(cause, ValidationError) or parameter is None:
        return message
    return f"{parameter.opts[0]!r} {rule_of(cause.errors()[0])}"


def _report_parser_error(error: Exception, *, as_json: bool) -> int:
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx is not None else "kopt"
    message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    message = _in_own_words(message, error)
    hint = f"{path} --help shows how it is called"
    report_error(UsageError(message, hint=hint), as_json=as_json)
    return UsageError.exit_code
