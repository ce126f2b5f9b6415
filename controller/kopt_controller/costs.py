"""What agents cost: tokens, dollars, wall time and seconds of the device.

Every call of an agent leaves ``Usage`` records in the journal, in a round below
``r<n>/agent/<call>``, and a policy's questions below names of its own:
``usage/<attempt>/<i>`` when an attempt has ended, and until then ``turn/<attempt>/<k>`` for each
answer of the model, which count only where the attempt was killed. A sum of uses is a ``Cost``.
Nobody's estimate stands for a bill: dollars are null where neither the other side nor a configured
price says them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple, TypeVar

from kopt_harness.errors import InvalidInputError
from kopt_harness.ledger import Ledger
from kopt_harness.schema import Model
from pydantic import Field, ValidationError

__all__ = [
    "Allowance",
    "Cost",
    "CostReport",
    "DeviceUse",
    "Limits",
    "RoundUse",
    "Usage",
    "by",
    "check_limits",
    "cost_document",
    "cost_report",
    "device_uses_in",
    "dollars_per_percent",
    "least",
    "note_turn",
    "note_usage",
    "spent_of",
    "total_of",
    "uses_in",
]

_USE = re.compile(r"r(?P<round>\d+)/(?P<call>.+)/(?P<kind>usage|turn)/(?P<n>\d+)/\d+")
"""Of a call, wherever in the round it was made."""
_M = TypeVar("_M", bound=Model)
_PROPOSALS = re.compile(r"r(?P<round>\d+)/proposals/(?P<call>.+)")
_DEVICE = re.compile(r"device/\d+")


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
    is_partial: bool = False
    """Whether a number was said that cannot be and was left out: the rest is a lower bound."""

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
    """Uses of which nobody has said the whole price; ``dollars`` is then a lower bound."""
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


def check_limits(limits: Mapping[str, float | None]) -> None:
    """Refuses a limit under which nothing could be done, before there is a run.

    Args:
        limits: Fields of ``Limits``.

    Raises:
        InvalidInputError: If one is 0.
    """
    for name, value in limits.items():
        if value is not None and value <= 0:
            option = f"--{name.replace('_', '-')}"
            raise InvalidInputError(
                f"a limit of {value!r} for {option} lets nothing be done",
                hint="give more than 0, or leave it out for no limit",
            )


class Allowance(Model):
    """What one call may spend; null: no limit of its own."""

    dollars: float | None = None
    tokens: int | None = None
    device_s: float | None = None
    wall_s: float | None = None


class DeviceUse(Model):
    """One measurement of the harness."""

    round: int
    what: str
    """``profile``, ``gate``, ``sweep``, ``validate``."""
    candidate: str
    """SHA-256 of what was measured."""
    device_s: float = Field(ge=0)


class RoundUse(NamedTuple):
    """A use, and the round that it was for."""

    round: int
    usage: Usage


class CostReport(Model):
    """What a round or a run has cost, by who and for what."""

    total: Cost
    """Of agents."""
    harness_device_s: float = 0.0
    """Seconds of the device that the harness itself has measured."""
    by_agent: dict[str, Cost] = {}
    by_model: dict[str, Cost] = {}
    by_role: dict[str, Cost] = {}
    """Sub-agents under their own name."""
    by_candidate: dict[str, Cost] = {}
    """By SHA-256; a call's cost in equal parts for all that it led to."""

    @property
    def device_s(self) -> float:
        """Of the harness, and of what agents asked for."""
        return self.harness_device_s + self.total.device_s


def note_turn(ledger: Ledger, attempt: int, index: int, usage: Usage) -> None:
    """Keeps what one answer of a model has used, for the case that the attempt is killed.

    Args:
        ledger: Of the call.
        attempt: From 0.
        index: Of the answer, from 0.
        usage: Of this answer alone.
    """
    ledger.put(f"turn/{attempt}/{index}", usage.model_dump(mode="json"))


def note_usage(ledger: Ledger, attempt: int, uses: Sequence[Usage]) -> None:
    """Keeps what an attempt that has ended has used; it takes the place of its turns.

    Args:
        ledger: Of the call.
        attempt: From 0.
        uses: Of its models and sub-agents; at least one.
    """
    for index, usage in enumerate(uses):
        ledger.put(f"usage/{attempt}/{index}", usage.model_dump(mode="json"))


def uses_in(records: Mapping[str, dict[str, Any]]) -> tuple[RoundUse, ...]:
    """All uses of a journal, each once.

    Args:
        records: Values by key.

    Raises:
        InvalidInputError: If one was written by a version that recorded something else.
    """
    found = [(match, value) for key, value in records.items() if (match := _USE.fullmatch(key))]
    ended = {match.group("round", "call", "n") for match, _ in found if match["kind"] == "usage"}
    candidates = _candidates_in(records)
    return tuple(
        RoundUse(
            int(match["round"]),
            _parse(Usage, value).model_copy(
                update={"candidates": _led_to(candidates, match["round"], match["call"])}
            ),
        )
        for match, value in found
        if match["kind"] == "usage" or match.group("round", "call", "n") not in ended
    )


def _candidates_in(records: Mapping[str, dict[str, Any]]) -> dict[tuple[str, str], tuple[str, ...]]:
    """What was proposed, by round and call: proposals have the name of the call behind them."""
    return {
        (match["round"], match["call"]): tuple(each["sha256"] for each in value["candidates"])
        for key, value in records.items()
        if (match := _PROPOSALS.fullmatch(key))
    }


def _led_to(
    candidates: Mapping[tuple[str, str], tuple[str, ...]], number: str, call: str
) -> tuple[str, ...]:
    """A call of a sub-agent is named below the call that it is a part of."""
    parts = call.removeprefix("agent/").split("/")
    names = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((candidates[number, name] for name in names if (number, name) in candidates), ())


def device_uses_in(records: Mapping[str, dict[str, Any]]) -> tuple[DeviceUse, ...]:
    """All measurements of a journal.

    Args:
        records: Values by key.

    Raises:
        InvalidInputError: If one was written by a version that recorded something else.
    """
    return tuple(
        _parse(DeviceUse, value) for key, value in records.items() if _DEVICE.fullmatch(key)
    )


def _parse(model: type[_M], value: dict[str, Any]) -> _M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInputError(
            f"a record of costs cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            hint="read it with the version of kopt that wrote it",
        ) from error


def cost_report(uses: Sequence[Usage], measured: Sequence[DeviceUse]) -> CostReport:
    """The sums that people ask for.

    Args:
        uses: Of agents.
        measured: Of the harness.
    """
    return CostReport(
        total=spent_of(uses),
        harness_device_s=fsum(each.device_s for each in measured),
        by_agent=by(uses, lambda use: use.agent),
        by_model=by(uses, lambda use: use.model or "unknown"),
        by_role=by(uses, lambda use: f"{use.role}/{use.sub_agent}" if use.sub_agent else use.role),
        by_candidate=_by_candidate(uses, measured),
    )


def total_of(reports: Sequence[CostReport]) -> CostReport:
    """The sum of several rounds."""
    groups = ("by_agent", "by_model", "by_role", "by_candidate")
    sums = {
        group: {
            name: _sum(
                [getattr(each, group)[name] for each in reports if name in getattr(each, group)]
            )
            for name in dict.fromkeys(name for each in reports for name in getattr(each, group))
        }
        for group in groups
    }
    return CostReport(
        total=_sum([each.total for each in reports]),
        harness_device_s=fsum(each.harness_device_s for each in reports),
        **sums,
    )


def _sum(costs: Sequence[Cost]) -> Cost:
    return Cost(**{name: sum(getattr(each, name) for each in costs) for name in Cost.model_fields})


def cost_document(report: CostReport) -> dict[str, Any]:
    """For JSON: the report, with all seconds of the device together."""
    return {**report.model_dump(mode="json"), "device_s": report.device_s}


def _by_candidate(uses: Sequence[Usage], measured: Sequence[DeviceUse]) -> dict[str, Cost]:
    parts: dict[str, list[Usage]] = {}
    for use in uses:
        for sha256 in use.candidates:
            parts.setdefault(sha256, []).append(_part(use, len(use.candidates)))
    costs = {sha256: spent_of(each) for sha256, each in parts.items()}
    return {
        sha256: cost.model_copy(
            update={
                "device_s": cost.device_s
                + fsum(each.device_s for each in measured if each.candidate == sha256)
            }
        )
        for sha256, cost in costs.items()
    }


def _part(use: Usage, parts: int) -> Usage:
    tokens = {name: getattr(use, name) for name in ("tokens_in", "tokens_cached", "tokens_out")}
    return use.model_copy(
        update={
            **{name: round(count / parts) for name, count in tokens.items()},
            "dollars": None if use.dollars is None else use.dollars / parts,
            "wall_s": use.wall_s / parts,
            "device_s": use.device_s / parts,
        }
    )


def least(*allowances: Allowance) -> Allowance:
    """The tightest of several, each kind for itself."""
    found = {}
    for name in Allowance.model_fields:
        values = [getattr(each, name) for each in allowances if getattr(each, name) is not None]
        found[name] = min(values, default=None)
    return Allowance(**found)


def spent_of(uses: Iterable[Usage]) -> Cost:
    """The sum of uses."""
    known = tuple(uses)
    return Cost(
        calls=len(known),
        tokens_in=sum(use.tokens_in for use in known),
        tokens_cached=sum(use.tokens_cached for use in known),
        tokens_out=sum(use.tokens_out for use in known),
        dollars=fsum(use.dollars for use in known if use.dollars is not None),
        unpriced=sum(use.dollars is None or use.is_partial for use in known),
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
