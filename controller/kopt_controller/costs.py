"""What agents cost: tokens, dollars, wall time and seconds of the device.

Every call of an agent leaves ``Usage`` records; a sum of them is a ``Cost``. Nobody's estimate
stands for a bill: dollars are null where neither the other side nor a configured price says them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import fsum

from kopt_harness.schema import Model
from pydantic import Field

__all__ = [
    "Allowance",
    "Cost",
    "Limits",
    "Usage",
    "by",
    "dollars_per_percent",
    "spent_of",
]


class Usage(Model):
    """What one model, or one sub-agent, has used in one call."""

    agent: str
    model: str = ""
    role: str = "author"
    sub_agent: str = ""
    """Empty: the agent itself."""
    tokens_in: int = Field(default=0, ge=0)
    """Read, without those out of a cache."""
    tokens_cached: int = Field(default=0, ge=0)
    """Read out of a cache."""
    tokens_out: int = Field(default=0, ge=0)
    dollars: float | None = Field(default=None, ge=0)
    """Null: nobody has said the price."""
    wall_s: float = Field(default=0.0, ge=0)
    device_s: float = Field(default=0.0, ge=0)
    candidates: tuple[str, ...] = ()
    """SHA-256 of what was made with it; its cost is theirs in equal parts."""

    @property
    def tokens(self) -> int:
        """Of all kinds."""
        return self.tokens_in + self.tokens_cached + self.tokens_out


class Cost(Model):
    """A sum of uses."""

    calls: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    """Uses of which nobody has said the price; ``dollars`` is then a lower bound."""
    wall_s: float = 0.0
    device_s: float = 0.0

    @property
    def tokens(self) -> int:
        """Of all kinds."""
        return self.tokens_in + self.tokens_cached + self.tokens_out


class Limits(Model):
    """What a campaign may spend, all agents and sub-agents together; null: no limit."""

    max_dollars: float | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_device_s: float | None = Field(default=None, ge=0)
    """Seconds of the device, those of the harness and those that agents asked for."""
    max_wall_s: float | None = Field(default=None, ge=0)
    """Of all processes of the campaign together."""


class Allowance(Model):
    """What one call may spend; null: no limit of its own."""

    dollars: float | None = None
    tokens: int | None = None
    device_s: float | None = None
    wall_s: float | None = None


def spent_of(uses: Iterable[Usage]) -> Cost:
    """The sum of uses."""
    known = tuple(uses)
    return Cost(
        calls=len(known),
        tokens_in=sum(use.tokens_in for use in known),
        tokens_cached=sum(use.tokens_cached for use in known),
        tokens_out=sum(use.tokens_out for use in known),
        dollars=fsum(use.dollars for use in known if use.dollars is not None),
        unpriced=sum(use.dollars is None for use in known),
        wall_s=fsum(use.wall_s for use in known),
        device_s=fsum(use.device_s for use in known),
    )


def by(uses: Iterable[Usage], key: Callable[[Usage], str]) -> dict[str, Cost]:
    """Sums by agent, model, role or sub-agent, in order of first use."""
    groups: dict[str, list[Usage]] = {}
    for use in uses:
        groups.setdefault(key(use), []).append(use)
    return {name: spent_of(group) for name, group in groups.items()}


def dollars_per_percent(cost: Cost, ratio: float | None) -> float | None:
    """Dollars for each percent of the time that was won; null where none was, or a price lacks.

    Args:
        cost: Of all that led to it, failures included.
        ratio: Time after over time before.
    """
    if ratio is None or ratio >= 1 or cost.unpriced:
        return None
    return cost.dollars / (100 * (1 - ratio))
