"""What people tell a run while it goes on: ``kopt steer`` writes, the next round reads.

Each steer is one line of ``steer.jsonl`` in the run's folder, on disk before the command
returns. A round takes the new lines into the journal when it starts, so that a run that is
resumed is steered in the same rounds as before, and shows all of them to the agent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from kopt_harness.errors import InvalidInputError
from kopt_harness.files import read_text
from kopt_harness.schema import Model
from pydantic import ValidationError

__all__ = ["STEER_FILE", "Steer", "SteerKind", "Steering", "append_steers", "fold", "read_steers"]

STEER_FILE = "steer.jsonl"
"""In the folder of a run."""

SteerKind = Literal[
    "block",
    "recommend",
    "reference",
    "note",
    "agent",
    "model",
    "language",
    "budget",
    "accept-flag",
    "stop",
]


class Steer(Model):
    """One thing that a person has said."""

    kind: SteerKind
    value: str
    """A direction, a text, a name, seconds, a flag code; the reason of a stop."""
    by: str = ""
    time: str = ""
    """UTC, ISO 8601."""

    @property
    def sentence(self) -> str:
        """For people and agents."""
        who = f" ({self.by})" if self.by else ""
        return f"{self.kind} {self.value}".rstrip() + who


class Steering(NamedTuple):
    """All that people have said so far, in its effect."""

    steers: tuple[Steer, ...] = ()
    blocked: dict[str, str] = {}  # a NamedTuple's default, never changed
    """Direction id: why."""
    urged: tuple[str, ...] = ()
    """The last first."""
    references: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    agent: str | None = None
    model: str | None = None
    language: str | None = None
    budget_s: float | None = None
    accepted_flags: tuple[str, ...] = ()
    stop: str | None = None
    """Why; null: go on."""


def fold(steers: Iterable[Steer]) -> Steering:
    """The effect of steers in the order in which they were said; the last word counts.

    To recommend a direction lifts its block, and the other way round.
    """
    given = tuple(steers)
    blocked: dict[str, str] = {}
    urged: dict[str, None] = {}
    last: dict[str, str] = {}
    for steer in given:
        last[steer.kind] = steer.value
        if steer.kind == "block":
            blocked[steer.value] = f"blocked by {steer.by or 'a person'}"
            urged.pop(steer.value, None)
        elif steer.kind == "recommend":
            urged.pop(steer.value, None)
            urged[steer.value] = None
            blocked.pop(steer.value, None)
    budget = last.get("budget")
    return Steering(
        steers=given,
        blocked=blocked,
        urged=tuple(reversed(urged)),
        references=_values(given, "reference"),
        notes=_values(given, "note"),
        agent=last.get("agent"),
        model=last.get("model"),
        language=last.get("language"),
        budget_s=None if budget is None else float(budget),
        accepted_flags=_values(given, "accept-flag"),
        stop=last.get("stop"),
    )


def _values(steers: Iterable[Steer], kind: SteerKind) -> tuple[str, ...]:
    return tuple(dict.fromkeys(steer.value for steer in steers if steer.kind == kind))


def append_steers(path: Path, steers: Iterable[Steer]) -> tuple[Steer, ...]:
    """Adds lines, with the time; on disk when this returns.

    Args:
        path: ``steer.jsonl`` of a run.
        steers: Without a time.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    timed = tuple(steer.model_copy(update={"time": now}) for steer in steers)
    text = "".join(steer.model_dump_json() + "\n" for steer in timed)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, text.encode())
        os.fsync(file)
    finally:
        os.close(file)
    return timed


def read_steers(path: Path) -> tuple[Steer, ...]:
    """All that was said to a run, oldest first; a line that is being written is left out.

    Raises:
        InvalidInputError: If a whole line is no steer.
    """
    if not path.exists():
        return ()
    lines = read_text(path, "steering file").split("\n")[:-1]
    try:
        return tuple(Steer.model_validate(json.loads(line)) for line in lines)
    except (ValidationError, ValueError) as error:
        raise InvalidInputError(
            f"{str(path)!r} has a line that is no steer: {str(error).splitlines()[0]}",
            hint=f"each line has a kind ({', '.join(get_args(SteerKind))}) and a value",
        ) from error
