"""What a call has used, out of what its program said, and what it may still use."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

from ...agent_settings import AgentSettings
from ...costs import Allowance, Usage
from ..protocol import AgentTask
from .dialect import Observed

__all__ = ["Account", "beyond", "left_of", "priced", "tightest", "uses_of"]


class Account(NamedTuple):
    """What the costs of a call are noted under."""

    agent: str
    role: str = "author"
    sub_agent: str = ""

    @classmethod
    def of(cls, agent: str, task: AgentTask) -> Account:
        """Of a task."""
        return cls(agent, task.role, task.sub_agent)


def uses_of(
    account: Account, observed: Observed, settings: AgentSettings, *, wall_s: float, device_s: float
) -> list[Usage]:
    """By model and sub-agent; one that says nothing has still taken its time.

    Args:
        account: To note it under.
        observed: What the program said.
        settings: With the prices.
        wall_s: Of the attempt.
        device_s: That its helpers have used.
    """
    nothing = Usage(agent=account.agent, model=observed.model)
    found = observed.final or _summed(observed.turns) or [nothing]
    uses = [
        priced(usage, settings).model_copy(
            update={
                "agent": account.agent,
                "role": account.role,
                "sub_agent": usage.sub_agent or account.sub_agent,
            }
        )
        for usage in found
    ]
    times = {"wall_s": round(wall_s, 3), "device_s": round(device_s, 3)}
    return [uses[0].model_copy(update=times), *uses[1:]]


def beyond(totals: Sequence[Usage], before: Sequence[Usage]) -> list[Usage]:
    """What totals of a session have in them beyond what earlier attempts have accounted for.

    Args:
        totals: One, of the whole session.
        before: Of earlier attempts in it.
    """
    names = ("tokens_in", "tokens_cached", "tokens_out")
    known = {name: sum(getattr(usage, name) for usage in before) for name in names}
    return [
        usage.model_copy(
            update={name: max(0, getattr(usage, name) - known[name]) for name in names}
        )
        for usage in totals
    ]


def _summed(turns: Sequence[Usage]) -> list[Usage]:
    groups: dict[tuple[str, str], list[Usage]] = {}
    for usage in turns:
        groups.setdefault((usage.model, usage.sub_agent), []).append(usage)
    return [
        Usage(
            agent=group[0].agent,
            model=model,
            sub_agent=sub_agent,
            tokens_in=sum(usage.tokens_in for usage in group),
            tokens_cached=sum(usage.tokens_cached for usage in group),
            tokens_out=sum(usage.tokens_out for usage in group),
            is_partial=any(usage.is_partial for usage in group),
        )
        for (model, sub_agent), group in groups.items()
    ]


def priced(usage: Usage, settings: AgentSettings) -> Usage:
    """With dollars, where the settings have prices and nobody has said the sum.

    Args:
        usage: As it was said.
        settings: With the prices.
    """
    price_in, price_out = settings.dollars_per_mtok_in, settings.dollars_per_mtok_out
    if usage.dollars is not None or price_in is None or price_out is None:
        return usage
    cached = settings.dollars_per_mtok_cached
    dollars = (
        usage.tokens_in * price_in
        + usage.tokens_cached * (price_in if cached is None else cached)
        + usage.tokens_out * price_out
    ) / 1e6
    return usage.model_copy(update={"dollars": dollars})


def left_of(allowance: Allowance, uses: Sequence[Usage]) -> Allowance:
    """What of dollars and tokens is left after some uses."""
    dollars = fsum(usage.dollars or 0.0 for usage in uses)
    tokens = sum(usage.tokens for usage in uses)
    return allowance.model_copy(
        update={
            "dollars": None if allowance.dollars is None else max(0, allowance.dollars - dollars),
            "tokens": None if allowance.tokens is None else max(0, allowance.tokens - tokens),
        }
    )


def tightest(*values: float | None) -> float | None:
    """The least of those that are limits; None where none is."""
    return min((value for value in values if value is not None), default=None)
