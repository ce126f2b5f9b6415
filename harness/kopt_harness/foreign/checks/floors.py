"""Times that the hardware does not allow."""

from __future__ import annotations

from collections.abc import Iterator

from ...crosscheck import FLOOR_TOLERANCE
from ...schema import Workload
from ..finding import Case, Finding, FindingCode, Severity
from ..knowledge import Floor
from ..record import ForeignResult
from ._text import ms, plural, some

__all__ = ["check"]

LEAST_KERNEL_US = 0.5
"""No kernel is shorter: an empty one of 32 threads takes 0.56 us (H200, driver 580, CUPTI,
2026-11-29)."""


def check(case: Case) -> Iterator[Finding]:
    """Not positive, shorter than an empty kernel, or too short to move the bytes."""
    nothing: list[ForeignResult] = []
    empty: list[ForeignResult] = []
    outputs: list[tuple[ForeignResult, Floor]] = []
    costs: list[tuple[ForeignResult, Floor]] = []
    for result in case.results:
        if result.kind not in ("workload", "mean") or result.latency_ms is None:
            continue
        if result.outcome == "failed":
            continue
        latency_us = result.latency_ms * 1e3
        floor = _floor(result, case)
        if latency_us <= 0:
            nothing.append(result)
        elif latency_us < LEAST_KERNEL_US and not _on_cpu(result):
            empty.append(result)
        elif floor is not None and latency_us < FLOOR_TOLERANCE * floor.outputs_us:
            outputs.append((result, floor))
        elif floor is not None and latency_us < FLOOR_TOLERANCE * floor.cost_us:
            costs.append((result, floor))
    if nothing:
        yield _simple(nothing, "are not positive")
    if empty:
        yield _simple(empty, f"are below {LEAST_KERNEL_US} us, less than an empty kernel takes")
    yield from _below(outputs, certain=True)
    yield from _below(costs, certain=False)


def _on_cpu(result: ForeignResult) -> bool:
    return any("cpu" in str(value).casefold() for value in result.environment.values())


def _floor(result: ForeignResult, case: Case) -> Floor | None:
    definition = case.knowledge.definition(result)
    if definition is None:
        return None
    workload: Workload | None = case.knowledge.workloads(definition).get(result.workload or "")
    if workload is None:
        return None
    return case.knowledge.floor(definition, workload, str(result.environment))


def _simple(results: list[ForeignResult], what: str) -> Finding:
    least = min(results, key=lambda result: result.latency_ms or 0.0)
    least_us = (least.latency_ms or 0.0) * 1e3
    return Finding(
        code=FindingCode.IMPOSSIBLE_LATENCY,
        severity=Severity.WRONG,
        detail=(
            f"{plural(len(results), 'time')} {what}; the least is {least_us:g} us, "
            f"of {least.solution or least.source_sha256 or least.place.file}"
        ),
        evidence=tuple(str(result.place) for result in results),
        figures={"results": len(results)},
    )


def _below(found: list[tuple[ForeignResult, Floor]], *, certain: bool) -> Iterator[Finding]:
    if not found:
        return

    def share(pair: tuple[ForeignResult, Floor]) -> float:
        floor_us = pair[1].outputs_us if certain else pair[1].cost_us
        return (pair[0].latency_ms or 0.0) * 1e3 / floor_us

    worst = min(found, key=share)
    result, floor = worst
    names = sorted({r.solution or r.source_sha256 or r.place.file for r, _ in found})
    need = (
        f"writing the outputs alone takes {ms(floor.outputs_us / 1e3)}"
        if certain
        else f"the least work by the cost model takes {ms(floor.cost_us / 1e3)}"
    )
    yield Finding(
        code=FindingCode.IMPOSSIBLE_LATENCY,
        severity=Severity.WRONG if certain else Severity.DOUBTFUL,
        detail=(
            f"{plural(len(found), 'time')} of {some(names)} are below what the memory allows a "
            f"cold call; the worst is {ms(result.latency_ms or 0.0)} where {need} on "
            f"{floor.hardware}"
        ),
        evidence=tuple(str(r.place) for r, _ in found),
        figures={"results": len(found), "worst_share": share(worst)},
    )
