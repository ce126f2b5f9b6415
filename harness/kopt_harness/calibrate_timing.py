"""Is the decision right: a solution against itself, many times (``kopt calibrate --timing``).

Each live comparison opens new processes, gives one of them the same code under another hash,
and is decided with a margin of zero: the hardest case, in which every ``faster`` is false.
Its workloads are then filled up with blocks, so that thousands of further comparisons can be
drawn out of the recordings (``bench.resample``). What comes out:

* how often noise decides, with exact bounds, at a margin of zero and at the noise floor;
* the noise floor, kept for this epoch (``noise``);
* the least effect that is found in 95 of 100 comparisons;
* and, live, how often a solution with a known share of extra work is found slower.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from kopt_harness.bench.detection import failure_rate_upper
from kopt_harness.bench.resample import (
    Drawn,
    Recording,
    detectable_effect,
    process_spread,
    redraw,
    steadied,
)
from kopt_harness.bench.sequence import Rule, run_sequence
from kopt_harness.calibrate import definition_digest
from kopt_harness.compare import Pair, compare_pair
from kopt_harness.conclusion import levels_of
from kopt_harness.errors import InvalidInputError
from kopt_harness.evaluate import solution_ref
from kopt_harness.lease import device_lease
from kopt_harness.ledger import Ledger
from kopt_harness.noise import NoiseFloor, NoiseKey
from kopt_harness.schema import Comparison, Solution, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.timing_report import Decisions, Slowdown, TimingCalibration
from kopt_harness.variants import slowed, twin

__all__ = ["FILLED", "LiveProgress", "calibrate_timing"]

FILLED = 8
"""Blocks that every workload of a recording has at least, or as many as it may have: the
comparison itself stops at fewer where a workload adds nothing to the noise."""
POWER_RESAMPLES = 400
"""Comparisons for each effect that is tried; 95 % of them is known to within 2 points."""
_FLOOR = 0.95
"""Share of comparisons that the noise floor holds."""
_PROCESSES = 2.58
"""So many times the spread between processes it is at least. What a comparison's interval
does not know of must be in the margin, and 99 of 100 processes are within this, half of the
others on the side that would promote."""

LiveProgress = Callable[[int], None]
"""Gets the number of live comparisons that are done."""


def calibrate_timing(
    setting: Setting,
    solution: Solution,
    workloads: Sequence[Workload],
    ledger: Ledger,
    *,
    comparisons: int,
    resamples: int,
    slowdowns: Sequence[float] = (),
    slow_comparisons: int = 0,
    filled: int = FILLED,
    progress: LiveProgress | None = None,
) -> TimingCalibration:
    """Compares a solution with itself, and with slower ones.

    Args:
        setting: catalog, target and options; its margin is not used.
        solution: right on all the workloads.
        workloads: of its definition.
        ledger: completed blocks are taken from it and added to it.
        comparisons: live ones of the solution with itself.
        resamples: further ones, drawn out of their blocks.
        slowdowns: shares of extra work.
        slow_comparisons: live ones for each of them.
        filled: least blocks of each workload in a recording.
        progress: called after each live comparison.

    Raises:
        InvalidInputError: the solution is wrong in a timed call, or on no workload fast enough.
        UnavailableError: a slowdown of a solution that cannot be slowed.
    """
    definition = setting.catalog.resolve(solution.definition)
    strict = _with_margin(setting, 0.0)
    slow = [slowed(solution, share) for share in slowdowns]
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done)

    live = []
    digest = definition_digest(setting.catalog, definition)
    for number in range(comparisons):
        scope = ledger.scoped(f"aa/{digest}/{number}")
        live.append(_live(strict, solution, twin(solution), workloads, scope, filled=filled))
        step()
    found = _conclude(strict, solution, workloads, live, resamples=resamples)
    usual = _with_margin(setting, found.margin)
    rows = []
    for share, slower in zip(slowdowns, slow, strict=True):
        results = []
        for number in range(slow_comparisons):
            scope = ledger.scoped(f"slow/{digest}/{share:g}/{number}")
            results.append(_live(usual, solution, slower, workloads, scope))
            step()
        rows.append(_slowdown(share, [each.comparison for each in results]))
    return found.model_copy(update={"slowdowns": tuple(rows)})


class _Live:
    """One live comparison and its blocks."""

    def __init__(
        self,
        comparison: Comparison,
        pair: Pair,
        workloads: Sequence[Workload],
        seconds: float | None,
    ) -> None:
        self.comparison = comparison
        self.blocks = {uuid: each for uuid, each in levels_of(pair, workloads).items() if len(each)}
        self.seconds = seconds


def _live(
    setting: Setting,
    a: Solution,
    b: Solution,
    workloads: Sequence[Workload],
    ledger: Ledger,
    *,
    filled: int = 0,
) -> _Live:
    """In processes of its own; all workloads get ``filled`` blocks at least."""
    definition = setting.catalog.resolve(a.definition)
    with Session(setting, definition, workloads) as session:
        pair = Pair.of(setting, session, ledger, a, b)
        begin = time.monotonic()
        comparison = compare_pair(pair, workloads)
        known = ledger.get("wall")
        if known is None:
            known = {"s": time.monotonic() - begin}
            ledger.put("wall", known)
        if filled and pair.failure is None:
            with device_lease(setting.device_id):
                _fill(pair, workloads, min(filled, setting.blocks_max))
    if pair.failure is not None:
        reason = comparison.reason or pair.failure.reason.detail
        raise InvalidInputError(
            f"{a.name!r} cannot be compared with itself: {reason}", hint="kopt check says more"
        )
    if len(pair.skipped) == len(workloads):
        raise InvalidInputError(
            f"{a.name!r} is too slow to be timed: {comparison.reason}",
            hint="give other workloads with --workload",
        )
    return _Live(comparison, pair, workloads, known["s"])


def _fill(pair: Pair, workloads: Sequence[Workload], count: int) -> None:
    """Gives all workloads so many blocks."""
    if pair.setting.rounds:
        pair.take_rounds(workloads, count)
        return
    for workload in workloads:
        pair.measure(workload, count)


def _conclude(
    setting: Setting,
    solution: Solution,
    workloads: Sequence[Workload],
    live: Sequence[_Live],
    *,
    resamples: int,
) -> TimingCalibration:
    """What the live comparisons and those drawn from them say."""
    options = setting.options
    timed = [w for w in workloads if all(w.uuid in each.blocks for each in live)]
    recorded = [tuple(each.blocks[w.uuid] for w in timed) for each in live]
    # Rounds are drawn out of all recordings: how these differ is in what is drawn.
    steady = recorded if setting.rounds else steadied(recorded)
    rule = Rule(setting.blocks_min, setting.blocks_max, options.confidence, 0.0, setting.rounds)
    names = setting.catalog.regimes(setting.catalog.resolve(solution.definition))
    regimes: dict[str, list[int]] = {}
    for place, workload in enumerate(timed):
        regimes.setdefault(names[workload.uuid], []).append(place)
    drawn = redraw(steady, rule, resamples, groups=list(regimes.values()))
    floor = _noise_floor(setting, solution, recorded, drawn, list(regimes))
    margin = max(options.margin_min, floor.floor)
    usual = rule._replace(margin=margin)
    again = redraw(steady, usual, resamples)
    tried = min(resamples, POWER_RESAMPLES)
    return TimingCalibration(
        floor=floor,
        margin=margin,
        confidence=options.confidence,
        workloads=tuple(w.uuid for w in timed),
        live=_decisions([each.comparison.decision for each in live]),
        live_at_margin=_decisions([_replayed(usual, each) for each in recorded]),
        resampled=_decisions([each.ended.look.decision for each in drawn]),
        resampled_at_margin=_decisions([each.ended.look.decision for each in again]),
        detectable=detectable_effect(steady, usual, tried),
        detectable_without_margin=detectable_effect(steady, rule, tried),
        seconds=tuple(each.seconds for each in live if each.seconds is not None),
        ratios=tuple(each.comparison.ratio or 1.0 for each in live),
        environment=setting.environment,
    )


def _noise_floor(
    setting: Setting,
    solution: Solution,
    recorded: Sequence[Recording],
    drawn: Sequence[Drawn],
    regimes: Sequence[str],
) -> NoiseFloor:
    """Of comparisons that were drawn with a margin of zero, and so have all their blocks."""
    spread = process_spread(recorded, rounds=setting.rounds)
    seen = _floor([each.log_ratio for each in drawn])
    return NoiseFloor(
        key=NoiseKey.of(setting, setting.catalog.resolve(solution.definition)),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        solution=solution_ref(solution),
        comparisons=len(recorded),
        resamples=len(drawn),
        floor=max(seen, -math.expm1(-_PROCESSES * spread)),
        half_width=float(np.median([each.half_width for each in drawn])),
        process_spread=spread,
        regimes={
            name: _floor([each.groups[place] for each in drawn])
            for place, name in enumerate(regimes)
        },
        blocks_max=setting.blocks_max,
    )


def _replayed(rule: Rule, recording: Recording) -> str:
    """What a live comparison would have decided by another rule."""
    ended = run_sequence(rule, len(recording), lambda position, count: recording[position][:count])
    return ended.look.decision


def _floor(log_ratios: Sequence[float]) -> float:
    """The share that 95 of 100 comparisons stay within, of the slower one's time."""
    widest = float(np.quantile(np.abs(log_ratios), _FLOOR))
    return float(-np.expm1(-widest))


def _decisions(decisions: Sequence[str]) -> Decisions:
    counts = Counter(decisions)
    return Decisions(
        comparisons=len(decisions),
        faster=counts["faster"],
        slower=counts["slower"],
        same=counts["same"],
        ambiguous=counts["ambiguous"],
        faster_upper_95=failure_rate_upper(len(decisions), counts["faster"]),
    )


def _slowdown(share: float, results: Sequence[Comparison]) -> Slowdown:
    ratios = [each.ratio for each in results if each.ratio is not None]
    return Slowdown(
        extra_work=share,
        decisions=_decisions([each.decision for each in results]),
        median_ratio=float(np.median(ratios)) if ratios else None,
        ratios=tuple(ratios),
    )


def _with_margin(setting: Setting, margin: float) -> Setting:
    options = setting.options.model_copy(update={"margin": margin})
    return replace(setting, options=options)
