"""Official scores and the ratio of means: pure arithmetic over latencies.

The official score of a definition is the mean over its workloads of baseline over solution,
and 0 if one of them fails or is missing. The score of a track is the sum over its definitions
divided by their expected number, so an absent one counts 0. The ratio of means is the mean
baseline latency over the mean solution latency: another number, which weighs a workload by
its time. Above 1, the solution is faster in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

__all__ = [
    "TRACKS",
    "DefinitionScore",
    "Measured",
    "Track",
    "TrackScore",
    "definition_score",
    "track_scores",
]


class Track(NamedTuple):
    """Definitions that are scored together."""

    name: str
    definitions: tuple[str, ...]
    """Ids; their number is the expected one."""


TRACKS = (
    Track(
        "fused_moe",
        ("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048",),
    ),
    Track(
        "sparse_attention",
        (
            "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64",
            "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64",
        ),
    ),
    Track(
        "gated_delta_net",
        ("gdn_decode_qk4_v8_d128_k_last", "gdn_prefill_qk4_v8_d128_k_last"),
    ),
)
"""The contest's. The expected number is fixed, not what some root happens to hold."""


class Measured(NamedTuple):
    """A solution and its baseline on one workload."""

    passed: bool
    solution_us: float | None
    """None where it was not timed: the workload counts as failed."""
    baseline_us: float | None


class DefinitionScore(NamedTuple):
    """Both numbers of one definition."""

    score: float
    """Mean of the ratios baseline / solution; 0 if a workload failed or is missing."""
    ratio_of_means: float | None
    """Mean baseline / mean solution; None if a workload failed or is missing."""
    workloads: int
    """How many count."""
    failed: tuple[str, ...]
    """uuids that did not pass or have no time."""
    missing: tuple[str, ...]
    """uuids of which nothing is known."""


class TrackScore(NamedTuple):
    """One track."""

    name: str
    score: float
    expected: int
    absent: tuple[str, ...]
    """Definitions without a score, counted as 0."""


def definition_score(expected: Sequence[str], measured: Mapping[str, Measured]) -> DefinitionScore:
    """The official score and the ratio of means of one definition.

    Args:
        expected: uuids of all its workloads; at least one.
        measured: By uuid; uuids that are not expected do not count.

    Raises:
        ValueError: If nothing is expected, if a workload that passed has no baseline time, or
            if a time is not positive.
    """
    if not expected:
        raise ValueError("a definition without workloads has no score")
    missing = tuple(uuid for uuid in expected if uuid not in measured)
    present = {uuid: measured[uuid] for uuid in expected if uuid in measured}
    failed = tuple(u for u, m in present.items() if not m.passed or m.solution_us is None)
    if missing or failed:
        return DefinitionScore(0.0, None, len(expected), failed, missing)
    solutions = [_positive(uuid, m.solution_us) for uuid, m in present.items()]
    baselines = [_positive(uuid, m.baseline_us) for uuid, m in present.items()]
    ratios = [base / ours for base, ours in zip(baselines, solutions, strict=True)]
    return DefinitionScore(
        score=fmean(ratios),
        ratio_of_means=fmean(baselines) / fmean(solutions),
        workloads=len(expected),
        failed=(),
        missing=(),
    )


def track_scores(
    scores: Mapping[str, float], tracks: Iterable[Track] = TRACKS
) -> tuple[TrackScore, ...]:
    """The score of each track, in the order of ``tracks``.

    Args:
        scores: Official score by definition id; of a definition in no track it does not count.
        tracks: With the definitions that are expected in each.
    """
    return tuple(
        TrackScore(
            name=track.name,
            score=sum(scores.get(name, 0.0) for name in track.definitions) / len(track.definitions),
            expected=len(track.definitions),
            absent=tuple(name for name in track.definitions if name not in scores),
        )
        for track in tracks
    )


def _positive(uuid: str, time_us: float | None) -> float:
    if time_us is None or not time_us > 0:
        raise ValueError(f"the time of the workload {uuid!r} is {time_us}, not positive")
    return time_us
