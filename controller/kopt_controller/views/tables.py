"""Tables of one pair: solutions by efficiency, and every workload with its floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from kopt_harness.catalog import Catalog
from kopt_harness.schema import Definition
from kopt_harness.targets import Target

from ..representing import floors_of
from ..state import Floor, State
from .estimates import estimates
from .model import EfficiencyRow, Interval, RegimeView, WorkloadRow
from .sources import Pair

__all__ = ["Work", "efficiency_rows", "regime_views", "work_of", "workload_rows"]


class Work(NamedTuple):
    """What one workload costs at least."""

    position: int
    """In the definition."""
    regime: str
    bytes: int
    flops: int
    floor: Floor


def work_of(catalog: Catalog, definition: Definition, target: Target | None) -> dict[str, Work]:
    """Of every workload of a definition, by uuid.

    Args:
        catalog: Of the definition.
        definition: Whose workloads.
        target: Whose figures make floors; None: there are none.
    """
    regimes = catalog.regimes(definition)
    nothing = Floor(None, None, "the target is not known")
    floors = {} if target is None else floors_of(catalog, definition, target)
    found = {}
    for workload in catalog.workloads(definition):
        cost = catalog.cost(definition, workload.axes)
        floor = floors.get(workload.uuid, nothing)
        regime = regimes[workload.uuid]
        found[workload.uuid] = Work(workload.index, regime, cost.bytes, cost.flops, floor)
    return found


def workload_rows(pair: Pair, work: Mapping[str, Work]) -> tuple[WorkloadRow, ...]:
    """The pair on every workload, in the order of the definition.

    A floor that the evidence carries counts before one that is computed now.
    """
    rows = []
    for row in pair.rows:
        known = work.get(row.uuid)
        floor_us = row.floor_us if known is None or row.floor_us is not None else known.floor.us
        rows.append(
            WorkloadRow(
                uuid=row.uuid,
                index=None if known is None else known.position,
                axes=row.axes,
                regime="" if known is None else known.regime,
                verdict=row.verdict,
                candidate_us=row.candidate_us,
                incumbent_us=row.incumbent_us,
                ratio=row.ratio,
                ci=row.ci,
                blocks=row.blocks,
                slower=row.slower,
                floor_us=floor_us,
                floor_by="" if known is None else known.floor.resource or "",
                bytes=None if known is None else known.bytes,
                flops=None if known is None else known.flops,
                baselines_us=dict(row.baselines_us),
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.index is None, row.index)))


def efficiency_rows(pair: Pair, rows: Sequence[WorkloadRow]) -> tuple[EfficiencyRow, ...]:
    """Candidate, incumbent, baselines and the floor, each over the workloads that it has."""
    ratio, ci = pair.ratio, pair.ci
    inverse = None if ci is None else (1 / ci[1], 1 / ci[0])
    baselines = sorted({name for row in rows for name in row.baselines_us} | set(pair.baselines))
    found = [
        _row("candidate", pair.candidate.name, [r.candidate_us for r in rows], rows),
        _row(
            "incumbent",
            pair.incumbent.name,
            [r.incumbent_us for r in rows],
            rows,
            speedup=None if not ratio else 1 / ratio,
            ci=inverse,
        ),
    ]
    for name in baselines:
        told = pair.baselines.get(name, {})
        times = [row.baselines_us.get(name) for row in rows]
        interval: Interval | None = tuple(told["ci"]) if told.get("ci") else None
        found.append(_row("baseline", name, times, rows, speedup=told.get("ratio"), ci=interval))
    floors = [row.floor_us for row in rows]
    if any(floor is not None for floor in floors):
        found.append(_row("floor", "least possible time", floors, rows))
    return tuple(found)


def _row(
    role: Literal["candidate", "incumbent", "baseline", "floor"],
    name: str,
    times: Sequence[float | None],
    rows: Sequence[WorkloadRow],
    *,
    speedup: float | None = None,
    ci: Interval | None = None,
) -> EfficiencyRow:
    known = [(us, row) for us, row in zip(times, rows, strict=True) if us is not None]
    found = estimates([us for us, _ in known])
    total_us = sum(us for us, _ in known)
    floors = [row.floor_us for _, row in known]
    nbytes = [row.bytes for _, row in known]
    has_floor = bool(known) and None not in floors
    has_bytes = total_us > 0 and None not in nbytes
    return EfficiencyRow(
        role=role,
        name=name,
        mean_us=found.mean,
        median_us=found.median,
        p95_us=found.p95_rank,
        speedup=speedup,
        ci=ci,
        x_floor=total_us / sum(us or 0.0 for us in floors) if has_floor else None,
        gbps=sum(each or 0 for each in nbytes) / total_us / 1e3 if has_bytes else None,
        workloads=len(known),
    )


def regime_views(state: State) -> tuple[RegimeView, ...]:
    """What limited the incumbent, regime by regime."""
    return tuple(
        RegimeView(
            regime=each.regime,
            workloads=each.workloads,
            time_share=each.time_share,
            bottleneck=each.bottleneck,
            basis=each.basis,
            dominant_kernel=each.dominant_kernel,
            dominant_share=each.dominant_share,
            launches=each.launch_count,
            x_floor=each.distance_to_floor,
            diagnosis=each.diagnosis or "",
        )
        for each in state.regimes
    )
