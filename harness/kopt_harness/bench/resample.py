"""Thousands of comparisons out of the blocks of a few: how often noise decides, and what shows.

Each recording is a comparison of a solution with itself, in processes that were started for
it. A comparison is drawn again in three steps: one recording, which of the two is B, and for
each workload runs of neighbouring blocks, with replacement. A process's own bias therefore
stays in all blocks of a drawn comparison, as it does in a live one, and blocks that follow
each other keep what they have in common.

The mean of few recorded blocks is noise itself, on top of which a bootstrap would put the
noise of a comparison: drawn comparisons would scatter up to sqrt(2) too far. So each
recording's mean is shrunk towards equality, until recordings differ by as much as the
blocks within them do not explain (``process_spread``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .sequence import Ended, Rule, run_sequence
from .stats import Levels, evidence_of, summarise

__all__ = [
    "Drawn",
    "Recording",
    "detectable_effect",
    "draw",
    "power",
    "process_spread",
    "redraw",
    "steadied",
]

RUN = 3
"""Blocks that are drawn together."""
_STEPS = 9
"""Halvings of the interval in which the detectable effect lies: to 0.6 % of itself."""
_EFFECTS = (1e-4, 2.0)

Recording = tuple[Levels, ...]
"""Times of A and B in each block, for each workload, of a solution against itself."""


class Drawn(NamedTuple):
    """One comparison that was drawn, at its end."""

    ended: Ended
    log_ratio: float
    half_width: float
    """Of the interval of the log ratio."""
    groups: tuple[float, ...]
    """Log ratio of the mean latencies of each group of workloads."""


def process_spread(recordings: Sequence[Recording], *, rounds: bool = False) -> float:
    """Standard deviation between recordings of the log ratio that their blocks do not explain."""
    found = [
        summarise([evidence_of(levels) for levels in each], rounds=rounds) for each in recordings
    ]
    seen = float(np.mean([each.log_ratio**2 for each in found]))
    explained = float(np.mean([each.variance / each.inflation for each in found]))
    return math.sqrt(max(0.0, seen - explained))


def steadied(recordings: Sequence[Recording]) -> list[Recording]:
    """Recordings whose means scatter only as their processes do; see the module docstring."""
    logs = [[np.log(levels[:, 1] / levels[:, 0]) for levels in each] for each in recordings]
    kept = [_kept([each[position] for each in logs]) for position in range(len(logs[0]))]
    return [
        tuple(
            _steadied(levels, ratio, share)
            for levels, ratio, share in zip(recording, ratios, kept, strict=True)
        )
        for recording, ratios in zip(recordings, logs, strict=True)
    ]


def draw(
    recordings: Sequence[Recording],
    blocks: int,
    rng: np.random.Generator,
    *,
    rounds: bool = False,
) -> Recording:
    """One comparison with so many blocks of each workload.

    With ``rounds`` each block is one of any recording, the same for every workload, and it is
    drawn for each which of the two is B: what a round says does not depend on those before it.
    """
    if rounds:
        return _drawn_rounds(recordings, blocks, rng)
    chosen = recordings[int(rng.integers(len(recordings)))]
    step = 1 if rng.random() < 0.5 else -1
    drawn = []
    for levels in chosen:
        starts = rng.integers(len(levels), size=-(-blocks // RUN))
        places = (starts[:, None] + np.arange(RUN)).ravel()[:blocks] % len(levels)
        drawn.append(levels[places][:, ::step])
    return tuple(drawn)


def _drawn_rounds(
    recordings: Sequence[Recording], blocks: int, rng: np.random.Generator
) -> Recording:
    counts = [min(len(levels) for levels in each) for each in recordings]
    picked = []
    for _ in range(blocks):
        which = int(rng.integers(len(recordings)))
        picked.append((which, int(rng.integers(counts[which])), 1 if rng.random() < 0.5 else -1))
    # Workloads of one shape share their rounds, and go on doing so.
    drawn: dict[tuple[int, ...], Levels] = {}
    shapes = [tuple(id(each[w]) for each in recordings) for w in range(len(recordings[0]))]
    for w, shape in enumerate(shapes):
        if shape not in drawn:
            drawn[shape] = np.array([recordings[r][w][n][::step] for r, n, step in picked])
    return tuple(drawn[shape] for shape in shapes)


def redraw(
    recordings: Sequence[Recording],
    rule: Rule,
    count: int,
    *,
    groups: Sequence[Sequence[int]] = (),
    seed: int = 0,
) -> list[Drawn]:
    """Comparisons out of recordings that are ``steadied``.

    Args:
        recordings: of a solution against itself.
        rule: how they are decided.
        count: how many.
        groups: positions of the workloads of each group that has a ratio of its own.
        seed: equal seeds draw equal comparisons.
    """
    rng = np.random.default_rng(seed)
    return [
        _ended(draw(recordings, rule.blocks_max, rng, rounds=rule.rounds), rule, groups)
        for _ in range(count)
    ]


def power(
    recordings: Sequence[Recording], rule: Rule, effect: float, count: int, *, seed: int = 0
) -> float:
    """Share of drawn comparisons that find B slower, were it slower by ``effect``."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(count):
        drawn = draw(recordings, rule.blocks_max, rng, rounds=rule.rounds)
        shapes = {id(levels): levels * np.array([1.0, 1.0 + effect]) for levels in drawn}
        scaled = [shapes[id(levels)] for levels in drawn]
        found += _run(scaled, rule, quick=True).look.decision == "slower"
    return found / count


def detectable_effect(
    recordings: Sequence[Recording],
    rule: Rule,
    count: int,
    *,
    wanted: float = 0.95,
    seed: int = 0,
) -> float | None:
    """Least effect that is found with a power of ``wanted``; None where twofold is not enough.

    The same comparisons are drawn for each effect, so that power grows with it.
    """
    low, high = _EFFECTS
    if power(recordings, rule, high, count, seed=seed) < wanted:
        return None
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if power(recordings, rule, middle, count, seed=seed) < wanted:
            low = middle
        else:
            high = middle
    return high


def _run(levels: Sequence[Levels], rule: Rule, *, quick: bool = False) -> Ended:
    parts: dict[tuple[int, int], Levels] = {}

    def take(w: int, count: int) -> Levels:
        return parts.setdefault((id(levels[w]), count), levels[w][:count])

    return run_sequence(rule, len(levels), take, quick=quick)


def _ended(levels: Recording, rule: Rule, groups: Sequence[Sequence[int]]) -> Drawn:
    ended = _run(levels, rule)
    interval = ended.look.interval
    evidence = [evidence_of(each[:count]) for each, count in zip(levels, ended.counts, strict=True)]
    return Drawn(
        ended,
        math.log(interval.ratio),
        math.log(interval.hi / interval.lo) / 2,
        tuple(summarise([evidence[place] for place in group]).log_ratio for group in groups),
    )


def _kept(logs: Sequence[np.ndarray[tuple[int], np.dtype[np.float64]]]) -> float:
    """Share of a recording's mean log ratio that is its processes', for one workload."""
    seen = float(np.mean([each.mean() ** 2 for each in logs]))
    explained = float(np.mean([each.var(ddof=1) / len(each) for each in logs]))
    if len(logs) == 1:
        return 1.0
    return math.sqrt(max(0.0, seen - explained) / seen) if seen > 0 else 0.0


def _steadied(
    levels: Levels, ratios: np.ndarray[tuple[int], np.dtype[np.float64]], kept: float
) -> Levels:
    count = len(ratios)
    # A sample drawn out of n values has the variance of those n, which lacks the factor.
    residual = (ratios - ratios.mean()) * math.sqrt(count / (count - 1))
    half = (kept * ratios.mean() + residual) / 2
    middle = np.sqrt(levels[:, 0] * levels[:, 1])
    return np.stack([middle * np.exp(-half), middle * np.exp(half)], axis=1)
