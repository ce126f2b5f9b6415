"""Saying something to a run: what ``kopt steer`` and the form of the dashboard both do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kopt_harness.archive import Archive
from kopt_harness.errors import InvalidInputError, NotFoundError, UsageError

from .agents import get_agent
from .config import RunConfig
from .directions import load_directions
from .history import RunView, find_run
from .reverify import user
from .seating import require_ready
from .steering import STEER_FILE, Steer, append_steers, read_steers

__all__ = ["Said", "known_languages", "say"]


class Said(NamedTuple):
    """What a run has been told, this time included."""

    view: RunView
    added: tuple[Steer, ...]
    steers: tuple[Steer, ...]
    """All, oldest first."""


def say(archive: Archive, run: str | None, options: Mapping[str, object]) -> Said:
    """Adds steers to a run, on disk when this returns; its next round takes them.

    Args:
        archive: Of this machine.
        run: Id or an unambiguous part of it; None: the newest that is running, else the newest.
        options: By kind of a steer: a value, a list of values, or None; nothing at all only reads.

    Raises:
        NotFoundError: If there is no such campaign, direction, agent or language.
        InvalidInputError: If a value is not one that a round could follow.
        UnavailableError: If the agent cannot be asked on this machine.
        UsageError: If the run is finished.
    """
    view = find_run(archive, run)
    if not isinstance(view, RunView):
        raise NotFoundError(
            "no campaign to steer" if view is None else f"{view.run.id!r} is no campaign",
            hint="kopt history lists the runs; kopt round starts one",
        )
    given = _steers(options, view.manifest.config)
    path = view.run.folder / STEER_FILE
    added: tuple[Steer, ...] = ()
    if given:
        if view.state == "finished":
            raise UsageError(
                f"the run {view.run.id!r} is finished", hint="kopt round starts another one"
            )
        added = append_steers(path, given)
    return Said(view, added, read_steers(path))


def known_languages() -> tuple[str, ...]:
    """Languages that directions speak of."""
    return tuple(sorted({name for each in load_directions().values() for name in each.languages}))


def _steers(options: Mapping[str, object], config: RunConfig) -> list[Steer]:
    by, found = user() or "", []
    for kind, option in options.items():
        values = option if isinstance(option, list) else [] if option is None else [option]
        for value in values:
            _check(kind, str(value), config)
            found.append(Steer.model_validate({"kind": kind, "value": str(value), "by": by}))
    return found


def _check(kind: str, value: str, config: RunConfig) -> None:
    """Refuses at once what a round could not follow."""
    if kind in ("block", "recommend") and value not in load_directions():
        known = ", ".join(load_directions())
        raise NotFoundError(f"unknown direction {value!r}", hint=f"directions are {known}")
    if kind == "agent":
        require_ready(value, get_agent(value), config)
    if kind == "language" and value not in known_languages():
        known = ", ".join(known_languages())
        raise NotFoundError(f"unknown language {value!r}", hint=f"languages are {known}")
    if kind == "budget":
        _check_budget(value)


def _check_budget(value: str) -> None:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    # A number that is none (nan) fails this too.
    if not 0 <= seconds < float("inf"):
        raise InvalidInputError(f"{value!r} is no budget", hint="give seconds, such as 3600")
