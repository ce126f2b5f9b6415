"""What a search policy is made with, and what it may decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from kopt_harness.archive import Archive
from kopt_harness.schema import SweepResult

from ..config import RunConfig
from ..result import Decision, RoundResult
from ..world import Turn, World

__all__ = ["PlainPolicy", "SearchContext", "SearchFactory", "SearchPolicy"]


class SearchContext(NamedTuple):
    """What a policy is made with, once in each process of a campaign."""

    config: RunConfig
    seed: int
    """Of choices that are left open."""
    start: Mapping[str, Any]
    """What the manifest has of it, from ``SearchFactory.start``."""
    folder: Path | None = None
    """Of the run, for what a policy keeps beside the journal; null: nothing is written."""


@runtime_checkable
class SearchPolicy(Protocol):
    """Steers the rounds of one campaign.

    What it remembers it has from the rounds alone, in order: a resumed campaign goes through
    them again, with everything out of the journal, and comes to the same.
    """

    name: str

    def world(self, world: World) -> World:
        """The campaign as its agent is to see it; once."""
        ...

    def begin(self, world: World, turn: Turn) -> Turn:
        """Before a round: from where it starts, and what is asked for."""
        ...

    def commits(self, sweep: SweepResult, decision: Decision) -> bool:
        """Whether the next round starts from a candidate that was not promoted."""
        ...

    def end(self, world: World, turn: Turn, result: RoundResult) -> None:
        """After a round."""
        ...


class PlainPolicy:
    """Changes nothing; what a policy leaves out is as here."""

    name = "plain"

    def world(self, world: World) -> World:
        """The same."""
        return world

    def begin(self, world: World, turn: Turn) -> Turn:
        """The same."""
        del world
        return turn

    def commits(self, sweep: SweepResult, decision: Decision) -> bool:
        """Never: only a promotion moves the incumbent."""
        del sweep, decision
        return False

    def end(self, world: World, turn: Turn, result: RoundResult) -> None:
        """Keeps nothing."""
        del world, turn, result


def _nothing(config: RunConfig, archive: Archive, definition: str) -> dict[str, Any]:
    del config, archive, definition
    return {}


class SearchFactory(NamedTuple):
    """What a module of this package defines as ``POLICY``."""

    create: Callable[[SearchContext], SearchPolicy]
    start: Callable[[RunConfig, Archive, str], dict[str, Any]] = _nothing
    """What the manifest of a new run keeps for it, out of configuration, archive and the
    definition's name; sources go into the archive."""
