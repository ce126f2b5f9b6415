"""The workloads of the gate, each with the regime that it stands for and its floor."""

from __future__ import annotations

from collections.abc import Mapping

from kopt_harness.catalog import Catalog
from kopt_harness.schema import Definition
from kopt_harness.targets import Target

from .rederive import rederive
from .state import Floor, floor_of
from .world import Representative

__all__ = ["floors_of", "regrouped", "representatives_of"]


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
        alone = per_regime.count(regime) == 1
        members = tuple(uuid for uuid, name in regimes.items() if alone and name == regime)
        found.append(
            Representative(workload, regime, weight, cost.bytes, cost.flops, floor, members=members)
        )
    return tuple(found)


def regrouped(
    catalog: Catalog, definition: Definition, target: Target, latency_us: Mapping[str, float]
) -> tuple[Representative, ...]:
    """One workload of median latency for each regime that measured latencies show.

    Args:
        catalog: Of the definition.
        definition: Whose workloads were swept.
        target: On which.
        latency_us: Of the incumbent, by uuid.
    """
    work = _least_work(catalog, definition, target)
    axes = definition.kopt.regime_axes
    regimes = rederive(catalog.regime_list(definition), latency_us, work, axes)
    found = []
    for regime in regimes:
        ordered = sorted(regime.workloads, key=lambda w: (latency_us[w.uuid], w.index))
        chosen = ordered[(len(ordered) - 1) // 2]
        cost = catalog.cost(definition, chosen.axes)
        floor = floor_of(cost.bytes, cost.flops, target)
        found.append(
            Representative(
                chosen,
                regime.name,
                len(regime.workloads),
                cost.bytes,
                cost.flops,
                floor,
                regime.origin,
                tuple(workload.uuid for workload in regime.workloads),
            )
        )
    return tuple(found)


def _least_work(catalog: Catalog, definition: Definition, target: Target) -> dict[str, float]:
    """The floor of every workload where the target's figures are known, else its bytes."""
    floors = {uuid: floor.us for uuid, floor in floors_of(catalog, definition, target).items()}
    if all(us is not None for us in floors.values()):
        return {uuid: us for uuid, us in floors.items() if us is not None}
    return {
        workload.uuid: float(max(1, catalog.cost(definition, workload.axes).bytes))
        for workload in catalog.workloads(definition)
    }


def floors_of(catalog: Catalog, definition: Definition, target: Target) -> dict[str, Floor]:
    """The floor of every workload, by uuid."""
    floors = {}
    for workload in catalog.workloads(definition):
        cost = catalog.cost(definition, workload.axes)
        floors[workload.uuid] = floor_of(cost.bytes, cost.flops, target)
    return floors
