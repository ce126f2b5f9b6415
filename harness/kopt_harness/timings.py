"""Puts what a paired comparison measured of a candidate into its evaluation."""

from __future__ import annotations

from kopt_harness.compare import Pair
from kopt_harness.schema import Evaluation, Timing, Verdict, WorkloadResult

__all__ = ["with_pair"]


def with_pair(evaluation: Evaluation, pair: Pair) -> Evaluation:
    """Timings of B by workload, its flags, and its failure if a timed call was wrong."""
    results = tuple(_timed(result, pair) for result in evaluation.workloads)
    flags = {flag.code: flag for flag in (*evaluation.flags, *pair.flags.values())}
    update: dict[str, object] = {"workloads": results, "flags": tuple(flags.values())}
    failure = pair.failure
    if failure is not None and failure.sha256 == pair.b.sha256:
        update |= {
            "verdict": Verdict.combine((evaluation.verdict, failure.verdict)),
            "phase": "bench",
            "reasons": (*evaluation.reasons, failure.reason),
        }
    return evaluation.model_copy(update=update)


def _timed(result: WorkloadResult, pair: Pair) -> WorkloadResult:
    blocks = pair.blocks.get(result.uuid, [])
    samples = tuple(ns for block in blocks for ns in block.b_ns)
    if not samples:
        return result
    timing = Timing(
        timer=pair.setting.timer,
        cache=pair.setting.options.cache,
        samples_ns=samples,
        flush_bytes=pair.flush_bytes,
    )
    return result.model_copy(update={"timing": timing.document()})
