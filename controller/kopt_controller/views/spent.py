"""What campaigns have spent: their ledgers of costs as rows."""

from __future__ import annotations

from collections.abc import Sequence

from ..costs import Cost as Spent
from ..costs import CostReport, total_of
from ..history import RunView
from ..metering import read_costs
from .model import Cost

__all__ = ["cost_rows"]


def cost_rows(views: Sequence[RunView]) -> tuple[Cost, ...]:
    """The sum of all campaigns that kept a ledger; nothing where none did.

    Args:
        views: Campaigns.

    Raises:
        InvalidInputError: If a ledger is damaged.
    """
    found = [costs for view in views if (costs := read_costs(view.run.folder)).rounds]
    if not found:
        return ()
    report = total_of([each for costs in found for each in costs.rounds.values()])
    rows = [
        Cost(what="wall time of the campaigns", amount=sum(c.wall_s for c in found), unit="s"),
        Cost(what="device, by the harness", amount=report.harness_device_s, unit="s"),
        *_agents(report),
    ]
    return tuple(rows)


def _agents(report: CostReport) -> list[Cost]:
    rows = []
    groups = {"agents": report.total, **{f"agent {n}": c for n, c in report.by_agent.items()}}
    groups |= {f"model {name}": cost for name, cost in report.by_model.items()}
    for name, cost in groups.items():
        if cost.calls:
            rows += _of(name, cost)
    return rows


def _of(name: str, cost: Spent) -> list[Cost]:
    rows = [
        Cost(what=f"{name}: calls", amount=cost.calls, unit=""),
        Cost(what=f"{name}: tokens read", amount=cost.tokens_in, unit="tokens"),
        Cost(what=f"{name}: tokens out of a cache", amount=cost.tokens_cached, unit="tokens"),
        Cost(what=f"{name}: tokens written", amount=cost.tokens_out, unit="tokens"),
        Cost(what=f"{name}: device", amount=cost.device_s, unit="s"),
        Cost(what=f"{name}: wall time", amount=cost.wall_s, unit="s"),
    ]
    unit = "USD, at least" if cost.unpriced else "USD"
    if cost.dollars or cost.unpriced < cost.calls:
        rows.append(Cost(what=f"{name}: price", amount=cost.dollars, unit=unit))
    return rows
