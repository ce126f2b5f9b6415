"""One result out of batches that several machines have checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kopt_harness.errors import InfraError
from kopt_harness.schema import SweepResult, Verdict

from .protocol import Work

__all__ = ["merged"]


def merged(work: Work, found: Sequence[SweepResult]) -> SweepResult:
    """The sweep of a solution.

    Verdicts may come from several machines, times may not: what was timed is one result.

    Args:
        work: What was to be done.
        found: Of its batches, at least one.

    Raises:
        InfraError: Times of more than one machine would stand in one result.
    """
    if len(found) == 1:
        return found[0]
    if any(each.comparison is not None or each.baselines for each in found):
        raise InfraError(
            f"{work.candidate.name!r} was timed on more than one machine",
            hint="this is a defect of kopt: report it",
        )
    order = {workload.uuid: place for place, workload in enumerate(work.workloads)}
    evaluations = [each.evaluation for each in found]
    rows = sorted(
        (row for each in evaluations for row in each.workloads), key=lambda row: order[row.uuid]
    )
    verdict = Verdict.combine(each.verdict for each in evaluations)
    deciding = next(each for each in evaluations if each.verdict == verdict)
    flags = {flag.code: flag for each in evaluations for flag in each.flags}
    evaluation = deciding.model_copy(
        update={
            "flags": tuple(flags.values()),
            "workloads": tuple(rows),
            "environment": _environment([each.environment for each in evaluations]),
        }
    )
    complete = all(each.complete for each in found) and len(rows) == len(work.workloads)
    return SweepResult(evaluation=evaluation, comparison=None, complete=complete)


def _environment(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """That of the one machine; of several the first, and all of them under ``nodes``."""
    nodes = {each.get("epoch"): each for each in found}
    first = dict(next(iter(nodes.values())))
    if len(nodes) > 1:
        first["nodes"] = [
            {k: v for k, v in each.items() if k != "rules"} for each in nodes.values()
        ]
    return first
