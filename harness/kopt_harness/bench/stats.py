"""The ratio of mean latencies from paired blocks, its interval, and what it decides.

The statistic is ``mean over workloads of B's latency / mean over workloads of A's``.

*Block.* A solution's time in a block is the mean of the medians of its two slots, so that a
linear drift cancels in ABBA and in BAAB, whatever the number of calls. Its logarithm against
the other one's time is the only thing that a block says of the ratio: drift between blocks,
a clock that steps, a neighbour that slows everything, cancel exactly.

*Workload.* Its log ratio is the mean over blocks; from 8 blocks on, one in eight is trimmed
at either end, since a few calls in a hundred take several times as long on a shared machine.
Blocks are kept as pseudo-values, whose mean is the trimmed mean and whose variance is the
winsorised one of Tukey and McLaughlin, so that nothing below needs to know of trimming.
Its latency is a median over blocks. The estimate for (B, A) is 1 / that for (A, B).

*Interval.* Two are computed and the wider one counts, on either side:

* Student's, from the variances of the workloads' log ratios. Degrees of freedom are the
  smaller of Satterthwaite's (from the variances seen) and the same from the shares that the
  workloads have: three blocks that agree by chance must not hide behind quiet short kernels.
* a bootstrap over blocks within each workload (``n - 1`` out of ``n``: Rao and Wu, 1988),
  which knows of skewness. Only its 5 % and 95 % quantiles are used, stretched to the
  confidence by Student's quantile: farther out, few blocks have no quantiles to read.

Neighbouring blocks that err alike say less than their number: where the residuals of all
workloads together are autocorrelated, both are widened by sqrt((1 + r) / (1 - r)), with r
above what is seen by as much again, but no more than its standard error. A correlation of 0.3
is met by that; one of 0.6 is not to be seen in a dozen blocks, and multiplies the error.
Rounds have processes of their own, so that what chance makes look correlated is not believed:
there only a correlation of two standard errors counts, as it is.

*Rounds.* Where the n-th blocks of all workloads come from one pair of processes, what a process
does to times is in all of them. Then the log ratio of each round, over all workloads with their
shares, is one value, and both intervals are those of the rounds: Student's with as many degrees
of freedom as there are rounds less one, never narrower than from the workloads' variances; and
the bootstrap draws rounds, the same for every workload.

*Decision.* Where shares and numbers of blocks allow less than ``MIN_FREEDOM`` degrees of
freedom, nothing within ``FEW_BLOCKS_FACTOR`` is decided: solutions that run in one of two
modes, block by block, agree on a difference in three blocks of one workload in 1 of 64
comparisons, and no interval can know.

Pure numpy; the same samples give the same interval, since the seed is a hash of them.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kopt_harness.schema import ComparisonDecision, PairedBlock

from .student import normal_quantile, student_quantile

__all__ = [
    "FEW_BLOCKS_FACTOR",
    "MIN_FREEDOM",
    "Evidence",
    "Levels",
    "RatioInterval",
    "Summary",
    "block_levels",
    "decide",
    "evidence_of",
    "interval_of",
    "look_confidence",
    "ratio_interval",
    "spread",
    "student_interval",
    "summarise",
]

RESAMPLES = 2000
TRIM = 8
"""One block in so many is trimmed at either end."""
MIN_FREEDOM = 3.0
"""Degrees of freedom of four blocks of one workload."""
FEW_BLOCKS_FACTOR = 2.0
"""Ratio beyond which fewer blocks are enough: solutions that vary so much are another fault."""
MAX_CORRELATION = 0.5
"""More than this is not estimated from a few dozen blocks: it is a trend."""
_CERTAIN_CORRELATION = 2.0
"""Standard errors beyond which a correlation of rounds is believed."""
_LOG_MOST = 300.0
"""Of a ratio. One degree of freedom has quantiles beyond a thousand; their power is no float."""
_BOOTSTRAP_TAIL = 0.05
_EARLY_SHARE = 0.4
"""Of the error, for planned looks after which more blocks may come."""
_LATE_SHARE = 0.1
"""Of the error, for such looks beyond the planned ones."""
_LAST_SHARE = 0.5
"""Of what is left of it, for the last look at blocks that do not come in rounds."""

Levels = NDArray[np.float64]
"""Times of A and of B in each block, in nanoseconds: shape (n, 2)."""
_Array = NDArray[np.float64]


class RatioInterval(NamedTuple):
    """A ratio with a two-sided interval."""

    ratio: float
    lo: float
    hi: float
    freedom: float = math.inf
    """Degrees of freedom that the workloads' shares and blocks allow, whatever was seen."""


class Evidence(NamedTuple):
    """What the blocks of one workload say."""

    level_ns: float
    """Median over blocks of the geometric mean of both solutions' times."""
    values: _Array
    """Pseudo-values of log (B / A), one a block: their mean is the workload's log ratio."""
    freedom: int
    """Degrees of freedom of their variance."""

    @property
    def log_ratio(self) -> float:
        """The workload's."""
        return float(self.values.mean())

    @property
    def variance(self) -> float:
        """Of ``log_ratio``."""
        return float(self.values.var(ddof=1)) / len(self.values)


class Summary(NamedTuple):
    """All workloads together."""

    log_ratio: float
    variance: float
    """Of ``log_ratio``, autocorrelation included."""
    freedom: float
    """Degrees of freedom of ``variance``."""
    allowed: float
    """Degrees of freedom that shares and numbers of blocks allow, whatever was seen."""
    inflation: float
    """By which ``variance`` is larger than of independent blocks."""
    shares: tuple[float, ...]
    """How much the log ratio moves with that of each workload; they sum to 1."""


def block_levels(blocks: Sequence[PairedBlock]) -> Levels:
    """Times of A and B in each block, at least 1 ns."""
    levels = [(_level(block.a_ns), _level(block.b_ns)) for block in blocks]
    return np.maximum(np.array(levels, dtype=np.float64).reshape(-1, 2), 1.0)


def evidence_of(levels: Levels) -> Evidence:
    """What blocks say.

    Raises:
        ValueError: fewer than two.
    """
    count = len(levels)
    if count < 2:
        raise ValueError("a ratio needs at least two paired blocks of each workload")
    logs = np.log(levels)
    values = logs[:, 1] - logs[:, 0]
    cut = count // TRIM
    if cut:
        ordered = np.sort(values)
        middle = ordered[cut : count - cut]
        kept = np.clip(values, middle[0], middle[-1])
        values = middle.mean() + (kept - kept.mean()) / (1 - 2 * cut / count)
    level = math.exp(float(np.median(logs.sum(axis=1))) / 2)
    return Evidence(level, values, count - 1 - 2 * cut)


def summarise(evidence: Sequence[Evidence], *, rounds: bool = False) -> Summary:
    """The log of the ratio of mean latencies, and how well it is known.

    Args:
        evidence: of each workload.
        rounds: whether the n-th blocks of all workloads have something in common.
    """
    level = np.array([each.level_ns for each in evidence])
    half = np.array([each.log_ratio for each in evidence]) / 2
    a_ns, b_ns = level * np.exp(-half), level * np.exp(half)
    shares = (a_ns / a_ns.sum() + b_ns / b_ns.sum()) / 2
    counts = np.array([len(each.values) for each in evidence])
    freedoms = np.array([each.freedom for each in evidence])
    found = shares**2 * np.array([each.variance for each in evidence])
    inflation = _inflation(evidence, shares**2 / counts)
    allowed = _freedom(shares**2 / counts, freedoms)
    freedom = min(_freedom(found, freedoms), allowed)
    variance = float(found.sum())
    if rounds:
        values = _of_rounds(evidence, shares)
        variance = max(variance, float(values.var(ddof=1)) / len(values))
        freedom = allowed = min(allowed, float(freedoms.min()))
        inflation = _inflation_of_rounds(values)
    return Summary(
        log_ratio=math.log(b_ns.sum() / a_ns.sum()),
        variance=variance * inflation,
        freedom=freedom,
        allowed=allowed,
        inflation=inflation,
        shares=tuple(shares.tolist()),
    )


def ratio_interval(workloads: Sequence[Sequence[PairedBlock]], confidence: float) -> RatioInterval:
    """Ratio of mean latencies over workloads.

    Args:
        workloads: Paired blocks of each workload, at least two of each.
        confidence: Two-sided, 0 to 1.

    Raises:
        ValueError: no workload, or a workload with fewer than two blocks.
    """
    return interval_of([block_levels(blocks) for blocks in workloads], confidence)


def interval_of(
    workloads: Sequence[Levels], confidence: float, *, rounds: bool = False
) -> RatioInterval:
    """``ratio_interval`` of levels; with ``rounds``, of blocks that were taken in rounds."""
    evidence = _all_evidence(workloads)
    summary = summarise(evidence, rounds=rounds)
    down, up = _bootstrap(evidence, np.random.default_rng(_seed(workloads)), rounds=rounds)
    # What the quantile of a normal distribution would be, were the bootstrap's its spread.
    unit = math.sqrt(summary.inflation) / normal_quantile(1 - _BOOTSTRAP_TAIL)
    least = math.sqrt(summary.variance)
    quantile = student_quantile((1 + confidence) / 2, summary.freedom)
    half = quantile * max(least, down * unit), quantile * max(least, up * unit)
    return _interval(summary, *half)


def student_interval(
    workloads: Sequence[Levels], confidence: float, *, rounds: bool = False
) -> RatioInterval:
    """Student's interval alone: never wider than ``interval_of``, and a hundred times cheaper."""
    summary = summarise(_all_evidence(workloads), rounds=rounds)
    half = student_quantile((1 + confidence) / 2, summary.freedom) * math.sqrt(summary.variance)
    return _interval(summary, half, half)


def look_confidence(
    confidence: float, look: int, planned: int, *, last: bool, rounds: bool = False
) -> float:
    """Confidence at the ``look``-th look at growing data, counted from 1.

    Four tenths of the error are for the planned looks, in equal parts: less for early ones would
    put large differences off, since few blocks pay for confidence with much width. One tenth is
    for looks beyond them, the ``j``-th of which takes 1 / (j (j + 1)) of it. A look after which
    no more blocks can come, whatever it says, takes all that those before it have left: it sees
    the most, and small differences are found there or nowhere. Whether a look is the last one
    may depend on variances, but not on the ratio. So all looks together never spend more than
    the error.

    Blocks outside of rounds keep half of what is left in reserve: noise that several of them
    share is seen in part only, and workloads that were not chosen for more blocks are quieter
    than they are by chance. Both make the last interval a little too narrow.

    Args:
        confidence: over all looks.
        look: which one.
        planned: how many looks it takes one workload to get all its blocks.
        last: whether there is nothing left to measure for an open decision.
        rounds: whether blocks come in rounds.
    """
    beyond = max(0, look - planned)
    if last:
        early = _EARLY_SHARE * min(look - 1, planned) / planned
        share = 1 - early - (_LATE_SHARE * (1 - 1 / beyond) if beyond else 0.0)
        share *= 1.0 if rounds else _LAST_SHARE
    elif beyond:
        share = _LATE_SHARE / (beyond * (beyond + 1))
    else:
        share = _EARLY_SHARE / planned
    return 1 - (1 - confidence) * share


def decide(interval: RatioInterval, margin: float) -> ComparisonDecision:
    """``faster`` means that B is faster than A by more than the margin.

    The margin is a share of the slower one's time on either side: B is faster beyond 1 -
    margin, and slower beyond 1 / (1 - margin), so that exchanging A and B exchanges the two.
    """
    few = FEW_BLOCKS_FACTOR if interval.freedom < MIN_FREEDOM else 1.0
    lo, hi = min(interval.lo, interval.ratio / few), max(interval.hi, interval.ratio * few)
    if hi < 1 - margin:
        return "faster"
    if lo > 1 / (1 - margin):
        return "slower"
    if lo >= 1 - margin and hi <= 1 / (1 - margin):
        return "same"
    return "ambiguous"


def spread(workloads: Sequence[Levels]) -> list[float]:
    """Each workload's contribution to the variance of the log ratio."""
    evidence = _all_evidence(workloads)
    shares = summarise(evidence).shares
    return [share**2 * each.variance for share, each in zip(shares, evidence, strict=True)]


def _interval(summary: Summary, down: float, up: float) -> RatioInterval:
    """Of the ratio, from how far that of its logarithm goes."""
    lo, hi = summary.log_ratio - down, summary.log_ratio + up
    return RatioInterval(
        math.exp(summary.log_ratio),
        math.exp(max(lo, -_LOG_MOST)),
        math.exp(min(hi, _LOG_MOST)),
        summary.allowed,
    )


def _level(samples_ns: Sequence[int]) -> float:
    """Mean of the medians of two slots; the median where they cannot be told apart."""
    samples = np.asarray(samples_ns, dtype=np.float64)
    if len(samples) % 2:
        return float(np.median(samples))
    return float(np.median(samples.reshape(2, -1), axis=1).mean())


def _all_evidence(workloads: Sequence[Levels]) -> list[Evidence]:
    if not workloads:
        raise ValueError("a ratio needs at least two paired blocks of each workload")
    known: dict[int, Evidence] = {}
    for levels in workloads:
        if id(levels) not in known:
            known[id(levels)] = evidence_of(levels)
    return [known[id(levels)] for levels in workloads]


def _freedom(parts: _Array, freedoms: _Array) -> float:
    """Satterthwaite's, of a sum of independent variances; infinite where they are all zero."""
    squares = float((parts**2 / freedoms).sum())
    return float(parts.sum()) ** 2 / squares if squares else math.inf


def _inflation(evidence: Sequence[Evidence], weights: _Array) -> float:
    """By how much autocorrelation enlarges the variance; 1 where there is none, or negative.

    A correlation that is estimated from few pairs is put higher, by its standard error or by
    itself, whichever is less.
    """
    counts = np.array([len(each.values) for each in evidence])
    squares = weights * np.array([(e.values - e.values.mean()) @ e.values for e in evidence])
    products = weights * np.array([_neighbours(each.values) for each in evidence])
    total = float(squares.sum())
    # Residuals from the mean of n independent blocks have a correlation of -1 / n.
    found = float((products + squares / counts).sum()) / total if total > 0 else 0.0
    if found <= 0.0:
        return 1.0
    pairs = total**2 / float((squares**2 / counts).sum())
    correlation = min(found + min(found, 1 / math.sqrt(pairs)), MAX_CORRELATION)
    return (1 + correlation) / (1 - correlation)


def _neighbours(values: _Array) -> float:
    """Sum of the products of residuals that follow each other."""
    residual = values - values.mean()
    return float(residual[1:] @ residual[:-1])


def _of_rounds(evidence: Sequence[Evidence], shares: _Array) -> _Array:
    """What each round says of all workloads together."""
    count = min(len(each.values) for each in evidence)
    found: _Array = shares @ np.array([each.values[:count] for each in evidence])
    return found


def _inflation_of_rounds(values: _Array) -> float:
    """Of rounds, whose processes are their own: only what is beyond chance counts."""
    residual = values - values.mean()
    squares = float(residual @ residual)
    count = len(values)
    found = _neighbours(values) / squares + 1 / count if squares > 0 else 0.0
    if found <= _CERTAIN_CORRELATION / math.sqrt(count):
        return 1.0
    correlation = min(found, MAX_CORRELATION)
    return (1 + correlation) / (1 - correlation)


def _bootstrap(
    evidence: Sequence[Evidence], rng: np.random.Generator, *, rounds: bool
) -> tuple[float, float]:
    """How far the log ratio's 5 % quantile lies below it, and its 95 % quantile above."""
    a_ns, b_ns = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    a_0, b_0 = 0.0, 0.0
    least = min(len(each.values) for each in evidence)
    drawn = rng.integers(0, least, size=(RESAMPLES, least - 1))
    # Workloads of one shape share their rounds, and then their evidence is one object.
    times = Counter(map(id, evidence)) if rounds else Counter()
    for each in {id(each): each for each in evidence}.values() if rounds else evidence:
        count = len(each.values)
        if not rounds:
            drawn = rng.integers(0, count, size=(RESAMPLES, count - 1))
        half = each.values[drawn].mean(axis=1) / 2
        level_ns = each.level_ns * (times[id(each)] or 1)
        a_ns += level_ns * np.exp(-half)
        b_ns += level_ns * np.exp(half)
        a_0 += level_ns * math.exp(-each.log_ratio / 2)
        b_0 += level_ns * math.exp(each.log_ratio / 2)
    low, high = np.quantile(np.log(b_ns / a_ns), [_BOOTSTRAP_TAIL, 1 - _BOOTSTRAP_TAIL])
    middle = math.log(b_0 / a_0)
    return middle - float(low), float(high) - middle


def _seed(workloads: Sequence[Levels]) -> int:
    digest = hashlib.sha256()
    for levels in workloads:
        digest.update(levels.tobytes() + b";")
    return int.from_bytes(digest.digest()[:8], "little")
