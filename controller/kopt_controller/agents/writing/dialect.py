"""How a program is spoken to: what each must say of itself, and what was observed of it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kopt_harness import doctor
from kopt_harness.environ import agent_environment, variable
from kopt_harness.errors import UnavailableError
from kopt_harness.proc import Completed

from ...agent_settings import AgentSettings
from ...costs import Usage
from ..protocol import Ending

__all__ = ["Call", "Dialect", "Observed", "find_program", "package_of", "program_status"]

_VERSION_S = 10.0
"""For a program to say its version."""


class Call(NamedTuple):
    """What a program is started with."""

    session: str | None
    """To go on with; null: a new one."""
    model: str | None
    max_turns: int
    max_dollars: float | None
    tools: bool
    """Whether it may write files and run the helper; a question is answered in words."""
    work: Path
    extra: tuple[str, ...] = ()
    """Further arguments."""


@dataclass
class Observed:
    """What a program has said so far, as its dialect has understood it."""

    session: str | None = None
    model: str = ""
    text: str = ""
    """Last answer in words."""
    turns: list[Usage] = field(default_factory=list)
    """Answers of the model, each with its own tokens; grows as they come."""
    pending: tuple[str, Usage] | None = None
    """The answer that is coming, by its id: what it has used is known at its end."""
    steps: int = 0
    """Turns in the sense of the limit."""
    final: list[Usage] = field(default_factory=list)
    """By model and sub-agent, as the program sums them up at its end."""
    ending: Ending | None = None
    """Null: it has not said how it ended."""
    problems: list[str] = field(default_factory=list)
    tools: Counter[str] = field(default_factory=Counter)
    denied: Counter[str] = field(default_factory=Counter)
    """Tools that it wanted and may not use."""
    wait_s: float | None = None
    """After which the other side wants to be asked again."""
    is_stale: bool = False
    """Whether the session that it was to go on with is not there."""
    unread: int = 0
    """Lines that are no event."""
    dropped: dict[str, None] = field(default_factory=dict)
    """Names of numbers that cannot be and were not counted, in the order in which they came."""


class Dialect(Protocol):
    """How one program is spoken to."""

    name: str
    """Of the agent."""
    program: str
    """On the path, where the settings name none."""
    variables: tuple[str, ...]
    """Of the environment that it gets: its key and where its service is."""

    cumulative: bool
    """Whether a session that goes on counts its tokens from its own beginning."""

    def command(self, call: Call) -> list[str]:
        """Arguments after the program; the prompt comes on standard input."""
        ...

    def environment(self, home: Path) -> Mapping[str, str]:
        """Variables that lead it into its private home."""
        ...

    def read(self, event: dict[str, Any], observed: Observed) -> None:
        """Adds one event to what was observed."""
        ...

    def finish(self, done: Completed, observed: Observed) -> None:
        """Says how it ended where the events did not."""
        ...


def find_program(dialect: Dialect, settings: AgentSettings) -> Path:
    """The program of an agent.

    Raises:
        UnavailableError: If it is not on this machine.
    """
    wanted = settings.program or dialect.program
    found = shutil.which(str(Path(wanted).expanduser()))
    if found is None:
        raise UnavailableError(
            f"the agent {dialect.name!r} needs the program {wanted!r}, which is not on the path",
            hint=f"install it, or name it with program in [agents.{dialect.name}]",
        )
    return Path(found).absolute()


def program_status(dialect: Dialect, settings: AgentSettings) -> dict[str, Any]:
    """For ``kopt doctor``: whether the program is there, its version, whether it has a key.

    It is asked for its version in an empty folder, without keys and without this user's home.
    """
    wanted = settings.program or dialect.program
    found = shutil.which(str(Path(wanted).expanduser()))
    path = None if found is None else str(Path(found).absolute())
    hint = f"install {wanted}, or name it with program in [agents.{dialect.name}]"
    with tempfile.TemporaryDirectory(prefix="kopt-version-", ignore_cleanup_errors=True) as folder:
        home = doctor.Home(Path(folder), agent_environment(Path(folder), ()), _VERSION_S)
        tool = doctor.find_program(wanted, kind="agent", hint=hint, path=path, home=home)
    keys = [name for name in dialect.variables if _is_key(name) and variable(name)]
    wanted_keys = ", ".join(name for name in dialect.variables if _is_key(name))
    return {
        "ok": tool.ok and bool(keys),
        "program": path,
        "version": tool.version,
        "key": keys[0] if keys else None,
        "hint": tool.hint or ("" if keys else f"set one of {wanted_keys}"),
    }


def _is_key(name: str) -> bool:
    return name.endswith(("KEY", "TOKEN"))


def package_of(program: Path) -> tuple[str, ...]:
    """What a program needs to be started: itself, and its package where it is one of Node.

    Args:
        program: As it was found; often a link.
    """
    real = program.resolve()
    places = (folder for folder in real.parents[:2] if (folder / "package.json").is_file())
    return (str(program), str(real), *map(str, list(places)[:1]))
