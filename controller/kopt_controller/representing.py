"""The workloads of the gate, each with the regime that it stands for and its floor."""

from __future__ import annotations

from kopt_harness.catalog import Catalog
from kopt_harness.schema import Definition
from kopt_harness.targets import Target

from .state import Floor, floor_of
from .world import Representative

__all__ = ["floors_of", "representatives_of"]


def representatives_of(
    catalog: Catalog, definition: Definition, target: Target, selectors: tuple[str, ...]
) -> tuple[Representative, ...]:
    """The workloads of the gate, each with the share of its regime that it stands for."""
    regimes = catalog.regimes(definition)
    chosen = catalog.select(definition, selectors)
    sizes = list(regimes.values())
    per_regime = [regimes[workload.uuid] for workload in chosen]
    found = []
    for workload, regime in zip(chosen, per_regime, strict=True):
        cost = catalog.cost(definition, workload.axes)
        weight = max(1, round(sizes.count(regime) / per_regime.count(regime)))
        floor = floor_of(cost.bytes, cost.flops, target)
        found.append(Representative(workload, regime, weight, cost.bytes, cost.flops, floor))
    return tuple(found)


def floors_of(catalog: Catalog, definition: Definition, target: Target) -> dict[str, Floor]:
    """The floor of every workload, by uuid."""
    floors = {}
    for workload in catalog.workloads(definition):
        cost = catalog.cost(definition, workload.axes)
        floors[workload.uuid] = floor_of(cost.bytes, cost.flops, target)
    return floors
