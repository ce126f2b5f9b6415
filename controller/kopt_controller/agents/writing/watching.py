"""Reading what a program prints as it comes, and ending the program where a limit is passed."""

from __future__ import annotations

import json
from math import fsum
from pathlib import Path
from typing import NamedTuple

from kopt_harness.proc import Completed

from ...agent_settings import AgentSettings
from ...costs import Allowance
from ...shown import counted
from ..protocol import Ending
from .calls import CallLedger
from .charging import Account, priced, tightest
from .dialect import Dialect, Observed

__all__ = ["Limits", "Place", "Stopped", "Watcher"]

_MOST_LINE_BYTES = 8 << 20


class Stopped(NamedTuple):
    """Why a program was ended."""

    ending: Ending
    why: str


class Limits(NamedTuple):
    """Of one attempt."""

    settings: AgentSettings
    left: Allowance


class Place(NamedTuple):
    """Which attempt it is."""

    attempt: int
    top: Path
    """Of the worktree."""
    account: Account


class Watcher:
    """Keeps sessions and costs in the ledger of the call as soon as they are known."""

    def __init__(self, call: CallLedger, place: Place, dialect: Dialect, limits: Limits) -> None:
        self._call = call
        self._place = place
        self._dialect = dialect
        self._limits = limits
        self._buffer = b""
        self._observed = Observed()
        self._kept_turns = 0
        self._stopped: Stopped | None = None

    def feed(self, data: bytes) -> bool:
        """Takes what was printed; false where the program must end."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._buffer) > _MOST_LINE_BYTES:
            self._stopped = Stopped("broken", f"a line of more than {_MOST_LINE_BYTES} bytes")
        return self._stopped is None

    def end(self, done: Completed) -> tuple[Observed, Stopped | None]:
        """What was observed, and for what the program was ended."""
        if self._buffer.strip() and self._stopped is None:
            self._line(self._buffer)
        if done.timed_out:
            self._stopped = Stopped("timeout", f"it was ended after {done.seconds:.0f} s")
        return self._observed, self._stopped

    def _line(self, line: bytes) -> None:
        if not line.strip() or self._stopped is not None:
            return
        observed = self._observed
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            observed.unread += 1
            return
        self._dialect.read(event, observed)
        if observed.session is not None:
            self._call.note_session(self._place.attempt, observed.session, str(self._place.top))
        for usage in observed.turns[self._kept_turns :]:
            account = self._place.account
            named = {"agent": account.agent, "role": account.role}
            cost = priced(usage, self._limits.settings).model_copy(update=named)
            self._call.note_turn(self._place.attempt, cost)
        self._kept_turns = len(observed.turns)
        self._stopped = self._passed()

    def _passed(self) -> Stopped | None:
        settings, left = self._limits
        observed = self._observed
        if observed.ending is not None:
            return None
        if observed.steps > settings.max_turns:
            return Stopped("turns", f"it was ended after {counted(settings.max_turns, 'turn')}")
        tokens = sum(usage.tokens for usage in observed.turns)
        if left.tokens is not None and tokens > left.tokens:
            return Stopped(
                "budget", f"it was ended after {counted(tokens, 'token')}; {left.tokens} were left"
            )
        dollars = fsum(priced(usage, settings).dollars or 0.0 for usage in observed.turns)
        most = tightest(settings.max_dollars, left.dollars)
        if most is not None and dollars > most:
            return Stopped("budget", f"it was ended after {dollars:.2f} dollars")
        return None
