"""What an external profiler is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["Bracket", "External"]


class Bracket(NamedTuple):
    """What a worker does around a call, so that nothing else is reported."""

    begin: Any
    """Begins to report."""
    mark: Any
    """Launches the marker, the first kernel that is reported of every call."""
    end: Any
    """Reports no more."""


class External(Protocol):
    """One program; members are read-only."""

    @property
    def name(self) -> str:
        """Of the program."""
        ...

    @property
    def device_kind(self) -> str:
        """Kind of the targets that it confirms times of; ``none`` where it only profiles."""
        ...

    @property
    def spread_ns(self) -> float:
        """How much more it adds to some kernels than to others, as far as was seen."""
        ...

    def missing(self) -> str:
        """Why it cannot be started here; empty where it can."""
        ...

    def version(self) -> str:
        """As it says itself; empty where it says nothing."""
        ...

    def folders(self) -> tuple[str, ...]:
        """What it needs to read beside the system."""
        ...

    def command(self, application: Sequence[str]) -> list[str]:
        """The command line that starts an application, report on standard output.

        Args:
            application: program and arguments.
        """
        ...

    def bracket(self) -> Bracket:
        """For the process of the application, whose device is open."""
        ...
