"""Is B faster than A: paired ABBA blocks under one lease, until the answer is clear.

A block is four slots, A B B A, of ``calls_per_slot`` timed and checked calls each, on the
same input sets. Each block is one ledger unit: it is taken whole or not at all. After
``blocks_min`` blocks of every workload the data is looked at; while the interval still
straddles a boundary, the workloads that add most to its variance get another block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kopt_harness.bench.stats import decide, look_confidence, ratio_interval, spread
from kopt_harness.conditions import disturbance, own_processes, read_conditions
from kopt_harness.evaluate import build, refusal, solution_ref
from kopt_harness.lease import device_lease
from kopt_harness.ledger import Ledger
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.schema import (
    BuildResult,
    Comparison,
    ComparisonDecision,
    Flag,
    PairedBlock,
    Reason,
    Solution,
    Verdict,
    Workload,
    WorkloadComparison,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.timed import TimedCalls

__all__ = ["BlockProgress", "Pair", "PairFailure", "compare_pair", "conclude_comparison"]

SINGLE_MOVES = 1
"""Tensors that move alone on each workload: over a sweep each has its turn several times."""
BLOCK_TRIES = 3
"""How often a block is measured that something else on the device has spoilt."""
BlockProgress = Callable[[Workload, int], None]


@dataclass(frozen=True)
class PairFailure:
    """One of the two was wrong in a timed call; its comparison ends."""

    sha256: str
    verdict: Verdict
    reason: Reason


@dataclass
class Pair:
    """Two solutions and what has been measured of them."""

    setting: Setting
    session: Session
    ledger: Ledger
    a: Solution
    b: Solution
    built: dict[str, BuildResult]
    """By SHA-256."""
    blocks: dict[str, list[PairedBlock]] = field(default_factory=dict)
    """By workload uuid."""
    raised: dict[str, list[Flag]] = field(default_factory=dict)
    """Flags of B in each block, by workload uuid."""
    failure: PairFailure | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a workload is not timed, by uuid."""
    flush_bytes: int = 0
    """Written before each timed call, as the blocks say."""
    _warm: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def of(
        cls, setting: Setting, session: Session, ledger: Ledger, a: Solution, b: Solution
    ) -> Pair:
        """A pair of which nothing has been measured in this process.

        Where the sources of one are refused, nothing is built and the comparison has failed.
        """
        for each in (a, b):
            refused = refusal(setting, each)
            if refused is not None:
                failure = PairFailure(each.sha256, refused.verdict, refused.reasons[0])
                return cls(setting, session, ledger, a, b, {}, failure=failure)
        built = {each.sha256: build(setting, each) for each in (a, b)}
        return cls(setting, session, ledger, a, b, built)

    @property
    def flags(self) -> dict[str, Flag]:
        """Flags of B that most blocks of a workload raised, by code.

        A solution that lies does so in every block; on a busy machine one block of an honest
        one may look like it.
        """
        found: dict[str, Flag] = {}
        for uuid, raised in self.raised.items():
            for flag in raised:
                times = sum(other.code == flag.code for other in raised)
                if 2 * times > len(self.blocks.get(uuid, ())):
                    found[flag.code] = flag
        return found

    def measure(self, workload: Workload, count: int) -> None:
        """Brings a workload to ``count`` blocks, from the ledger where it has them."""
        known = self.blocks.setdefault(workload.uuid, [])
        while len(known) < count and self.failure is None and workload.uuid not in self.skipped:
            key = f"block/{self.a.sha256[:12]}-{self.b.sha256[:12]}/{workload.uuid}/{len(known)}"
            record = self.ledger.get(key)
            if record is None:
                record = self._quiet_block(workload)
                self.ledger.put(key, record)
            self._take(workload, record)

    def _take(self, workload: Workload, record: dict[str, Any]) -> None:
        if failed := record.get("failed"):
            self.failure = PairFailure(
                failed["sha256"],
                Verdict(failed["verdict"]),
                Reason.model_validate(failed["reason"]),
            )
            return
        if skipped := record.get("skipped"):
            self.skipped[workload.uuid] = skipped
            return
        for flag in record["flags"]:
            self.raised.setdefault(workload.uuid, []).append(Flag.model_validate(flag))
        self.flush_bytes = record["flush_bytes"]
        block = PairedBlock(a_ns=record["a_ns"], b_ns=record["b_ns"])
        self.blocks[workload.uuid].append(block)

    def _quiet_block(self, workload: Workload) -> dict[str, Any]:
        """A block in which the device was left alone; the last try is flagged if none was."""
        for _ in range(BLOCK_TRIES):
            record = self._block(workload)
            if not record.get("disturbed"):
                return record
        flag = Flag(code="disturbed-device", detail=record["disturbed"])
        return record | {"flags": [*record["flags"], flag.model_dump(mode="json")]}

    def _block(self, workload: Workload) -> dict[str, Any]:
        """Measures one block; a fault of a solution is the record."""
        current = self.a
        try:
            self.session.bind(workload)
            calls = TimedCalls(self.setting, self.session, workload)
            for current in (self.a, self.b):
                if reason := calls.too_slow(self._warm_up(current, workload)):
                    return {"skipped": f"{current.name}: {reason}"}
            numbers = calls.sets(self.setting.calls_per_slot)
            samples: dict[str, list[int]] = {"a": [], "b": []}
            uuid = self.setting.target.present().uuid
            before = read_conditions(uuid)
            for label in "abba":
                current = self.a if label == "a" else self.b
                samples[label] += calls.slot(current.sha256, len(numbers), numbers=numbers)
            after = read_conditions(uuid)
            for current in (self.a, self.b):
                calls.require_possible(current.sha256)
            current = self.b
            if (workload.uuid, "moved") not in self._warm:
                calls.new_contents(current.sha256)
                calls.moved_pointers(current.sha256, singles=SINGLE_MOVES)
                self._warm.add((workload.uuid, "moved"))
        except CandidateFailedError as error:
            return {
                "failed": {
                    "sha256": current.sha256,
                    "verdict": error.verdict.value,
                    "reason": error.reason.model_dump(mode="json"),
                }
            }
        return {
            "a_ns": samples["a"],
            "b_ns": samples["b"],
            "flush_bytes": self.session.flush_bytes,
            "flags": [flag.model_dump(mode="json") for flag in calls.flags(self.b.sha256)],
            "census": {
                "a": calls.census(self.a.sha256),
                "b": calls.census(self.b.sha256),
            },
            "conditions": {"before": before, "after": after},
            "disturbed": disturbance(before, after, own=own_processes()),
        }

    def _warm_up(self, solution: Solution, workload: Workload) -> int:
        """Checked calls, so that compilation for new shapes is not timed.

        Returns:
            Wall time of the last of them in nanoseconds; 0 where it has been called before.
        """
        if (workload.uuid, solution.sha256) in self._warm:
            return 0
        self.session.open(solution, self.built[solution.sha256].path)
        number = self.session.sets(next(iter(self.session.generators)), 1)[0]
        wall_ns = 0
        for _ in range(2):
            outcome = self.session.call(
                solution.sha256, number, phase="check", timed=False, full=False
            )
            wall_ns = outcome.wall_ns
            if wall_ns <= self.setting.options.timed_call_s * 1e9:
                break
        self._warm.add((workload.uuid, solution.sha256))
        return wall_ns


def compare_pair(
    pair: Pair,
    workloads: Sequence[Workload],
    *,
    progress: BlockProgress | None = None,
) -> Comparison:
    """Measures until the comparison is decided, every workload is full, or time is up."""
    options = pair.setting.options
    started = time.monotonic()
    wanted = {workload.uuid: options.blocks_min for workload in workloads}
    look = 0
    with device_lease(pair.setting.device_id):
        while True:
            for position, workload in enumerate(workloads):
                pair.measure(workload, wanted[workload.uuid])
                if pair.failure is not None:
                    return conclude_comparison(pair, workloads, look + 1)
                if progress is not None:
                    progress(workload, position)
            look += 1
            comparison = conclude_comparison(pair, workloads, look)
            if comparison.decision != "ambiguous":
                return comparison
            open_ = _most_uncertain(pair, workloads, comparison.ratio or 1.0)
            if not open_ or time.monotonic() - started > options.budget_s:
                return comparison
            for uuid in open_:
                wanted[uuid] += 1


def conclude_comparison(pair: Pair, workloads: Sequence[Workload], look: int) -> Comparison:
    """The decision from recorded blocks alone; the same blocks give the same one."""
    options = pair.setting.options
    blocks = [pair.blocks.get(workload.uuid, []) for workload in workloads]
    confidence = look_confidence(options.confidence, look)
    decision: ComparisonDecision = "ambiguous"
    ratio, ci, reason = None, None, ""
    if pair.failure is not None:
        name = pair.a.name if pair.failure.sha256 == pair.a.sha256 else pair.b.name
        reason = f"{name}: {pair.failure.verdict.value}: {pair.failure.reason.detail}"
    elif (timed := _timed(pair, workloads)) and all(len(each) >= 2 for each in timed):
        interval = ratio_interval(timed, confidence)
        ratio, ci = interval.ratio, (interval.lo, interval.hi)
        decision = decide(interval, options.margin)
        reason = "" if decision != "ambiguous" else "the interval straddles the margin"
        reason = "; ".join(filter(None, [reason, *pair.skipped.values()]))
    else:
        reason = "; ".join(pair.skipped.values()) or "fewer than two blocks of a workload"
    rows = [_row(w, b, confidence) for w, b in zip(workloads, blocks, strict=True)]
    return Comparison(
        a=solution_ref(pair.a),
        b=solution_ref(pair.b),
        target=pair.setting.target.name,
        epoch=str(pair.setting.environment["epoch"]),
        ratio=ratio,
        ci=ci,
        confidence=options.confidence,
        margin=options.margin,
        decision=decision,
        reason=reason,
        a_mean_us=_mean(rows, "a_median_us"),
        b_mean_us=_mean(rows, "b_median_us"),
        workloads=tuple(rows),
    )


def _timed(pair: Pair, workloads: Sequence[Workload]) -> list[list[PairedBlock]]:
    """Blocks of the workloads that are not skipped."""
    return [pair.blocks.get(w.uuid, []) for w in workloads if w.uuid not in pair.skipped]


def _row(
    workload: Workload, blocks: Sequence[PairedBlock], confidence: float
) -> WorkloadComparison:
    if len(blocks) < 2:
        nothing: dict[str, Any] = {"a_median_us": None, "b_median_us": None, "ratio": None}
        return WorkloadComparison(
            uuid=workload.uuid, axes=workload.axes, ci=None, n=len(blocks), **nothing
        )
    interval = ratio_interval([blocks], confidence)
    a_ns = sorted(ns for block in blocks for ns in block.a_ns)
    b_ns = sorted(ns for block in blocks for ns in block.b_ns)
    return WorkloadComparison(
        uuid=workload.uuid,
        axes=workload.axes,
        a_median_us=_median_us(a_ns),
        b_median_us=_median_us(b_ns),
        ratio=interval.ratio,
        ci=(interval.lo, interval.hi),
        n=len(blocks),
    )


def _median_us(ordered_ns: Sequence[int]) -> float:
    middle = len(ordered_ns) // 2
    return (ordered_ns[middle] + ordered_ns[~middle]) / 2e3


def _mean(rows: Sequence[WorkloadComparison], name: str) -> float | None:
    values = [getattr(row, name) for row in rows]
    return sum(values) / len(values) if values and None not in values else None


def _most_uncertain(pair: Pair, workloads: Sequence[Workload], ratio: float) -> list[str]:
    """The workloads that make up most of the variance and are not full.

    None where what is left to gain is small: another look would cost more than it tells.
    """
    open_ = [workload for workload in workloads if workload.uuid not in pair.skipped]
    blocks = _timed(pair, workloads)
    shares = spread(blocks, ratio)
    ranked = sorted(zip(shares, open_, blocks, strict=True), key=lambda x: -x[0])
    most, gathered, chosen = sum(shares) * 0.8, 0.0, []
    reducible = 0.0
    for share, workload, taken in ranked:
        if len(taken) < pair.setting.options.blocks_max:
            chosen.append(workload.uuid)
            reducible += share
        gathered += share
        if gathered >= most and chosen:
            break
    return chosen if reducible >= 0.1 * sum(shares) else []
