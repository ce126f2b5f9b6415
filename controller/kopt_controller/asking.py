"""Asking for an answer in words, within what the campaign may still spend."""

from __future__ import annotations

from typing import Protocol

from kopt_harness.ledger import Ledger

from .agents import Answer, Question
from .metering import Meter

__all__ = ["Answering", "Metered", "metered"]


class Answering(Protocol):
    """Whoever answers in words; a ``Writer`` is one."""

    name: str

    def ask(self, question: Question, ledger: Ledger) -> Answer:
        """An answer, without a worktree and without tools."""
        ...


class Metered:
    """Somebody who is asked nothing once a limit is reached, and told what is left before."""

    def __init__(self, asked: Answering, meter: Meter) -> None:
        self.name = asked.name
        self._asked = asked
        self._meter = meter

    def ask(self, question: Question, ledger: Ledger) -> Answer:
        """An answer.

        Raises:
            LimitReachedError: If nothing is left; nobody is asked.
        """
        self._meter.check()
        return self._asked.ask(question._replace(allowance=self._meter.left()), ledger)


def metered(asked: Answering, meter: Meter | None) -> Answering:
    """Somebody with the limits of a campaign; without a meter, as they are.

    Args:
        asked: Who answers.
        meter: Of the campaign.
    """
    return asked if meter is None else Metered(asked, meter)
