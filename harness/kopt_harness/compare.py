"""Is B faster than A: paired blocks under one lease, until the answer is clear.

A block is four slots, A B B A or B A A B, of ``calls_per_slot`` timed and checked calls each,
on the same input sets. Of two blocks that follow each other one has either order, which comes
first being drawn by the operating system: what the first slot of a block suffers hits both
solutions alike. Each block is one ledger unit: it is taken whole or not at all. After
``blocks_min`` blocks of every workload the data is looked at; while the interval still
straddles a boundary, the workloads that add most to its variance get further blocks, and once
B is faster those on which it may be slower. ``bench.sequence`` decides all of this.

On a GPU blocks are taken in *rounds*: the n-th block of every workload comes from two processes
that were started for it, now the one first and now the other. A process keeps for its life where
its code and its tables lie, and with it several per cent of a short kernel's time; blocks of one
pair of processes agree on that, whatever the solutions. So a round, not a block, is what says
something new, and the interval is that of the rounds. For the same reason a round times one
workload of each shape, in turn, and so there are more rounds in the same time: workloads of one
shape have equal axes, and their inputs are drawn from the same distributions. A sweep has timed
every workload before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kopt_harness.bench.sequence import Rule, next_order
from kopt_harness.conclusion import (
    PairFailure,
    Shape,
    conclude_comparison,
    open_workloads,
    shape_of,
)
from kopt_harness.conditions import disturbance, own_processes, read_conditions
from kopt_harness.evaluate import build, refusal
from kopt_harness.lease import device_lease
from kopt_harness.ledger import Ledger
from kopt_harness.noise import Margin, recorded_margin
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.own_kernels import kernel_flags
from kopt_harness.schema import (
    BlockOrder,
    BuildResult,
    Comparison,
    Flag,
    PairedBlock,
    Reason,
    Solution,
    Verdict,
    Workload,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.timed import TimedCalls

__all__ = ["BlockProgress", "Pair", "PairFailure", "compare_pair", "conclude_comparison"]

SINGLE_MOVES = 1
"""Tensors that move alone on each workload: over a sweep each has its turn several times."""
BLOCK_TRIES = 3
"""How often a block is measured that something else on the device has spoilt."""
ONCE = frozenset({"batch-disagrees", "kernels-missing", "pointer-bound"})
"""Flags that only the first block of a workload can raise."""
BlockProgress = Callable[[Workload, int], None]


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
    rounds: dict[str, list[int]] = field(default_factory=dict)
    """Round of each of the blocks, by workload uuid."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a workload is not timed, by uuid."""
    flush_bytes: int = 0
    """Written before each timed call, as the blocks say."""
    peers: frozenset[str] = frozenset()
    """SHA-256 of those that are a library's, and held to the contest's rule alone."""
    deviations: dict[str, Reason] = field(default_factory=dict)
    """What the tiers have against these although they are timed, by name."""
    batched: bool = False
    """Whether the first block of each workload ends with calls of B back to back: some ten
    milliseconds, too many for every workload of a sweep."""
    _warm: set[tuple[str, str]] = field(default_factory=set)
    _timed: set[str] = field(default_factory=set)
    """SHA-256 of those whose processes of this round have had a timed call that does not count."""
    _round: int = 0
    _opened: int | None = None
    """Round that the processes were started for, if any were."""
    _planned: int = 0
    """Rounds until the data is looked at."""
    _margin: Margin | None = None
    _own: set[int] = field(default_factory=set)
    """Processes of kopt, when they were last looked for."""

    @classmethod
    def of(
        cls,
        setting: Setting,
        session: Session,
        ledger: Ledger,
        a: Solution,
        b: Solution,
        *,
        peers: frozenset[str] = frozenset(),
    ) -> Pair:
        """A pair of which nothing has been measured in this process.

        Where the sources of one are refused, nothing is built and the comparison has failed.
        """
        for each in (a, b):
            refused = refusal(setting, each)
            if refused is not None:
                failure = PairFailure(each.sha256, refused.verdict, refused.reasons[0])
                return cls(setting, session, ledger, a, b, {}, failure=failure, peers=peers)
        session.keep_caches(peers)
        built = {each.sha256: build(setting, each) for each in (a, b)}
        return cls(setting, session, ledger, a, b, built, peers=peers)

    @property
    def names(self) -> str:
        """Part of the ledger keys."""
        return f"{self.a.sha256[:12]}-{self.b.sha256[:12]}"

    @property
    def margin(self) -> Margin:
        """Of the decision; found when first asked, and the same in a run that goes on."""
        if self._margin is None:
            definition = self.setting.catalog.resolve(self.a.definition)
            key = f"margin/{self.names}"
            self._margin = recorded_margin(self.setting, definition, self.ledger, key)
        return self._margin

    @property
    def rule(self) -> Rule:
        """By which it is decided."""
        setting, options = self.setting, self.setting.options
        margin = self.margin.value
        rule = Rule(setting.blocks_min, setting.blocks_max, options.confidence, margin)
        return rule._replace(rounds=setting.rounds)

    @property
    def flags(self) -> dict[str, Flag]:
        """Flags of B that most blocks of a workload raised, by code.

        A solution that lies does so in every block; on a busy machine one block of an honest
        one may look like it. What only the first block looks at is looked at again there.
        """
        found: dict[str, Flag] = {}
        for uuid, raised in self.raised.items():
            for flag in raised:
                times = sum(other.code == flag.code for other in raised)
                if flag.code in ONCE or 2 * times > len(self.blocks.get(uuid, ())):
                    found[flag.code] = flag
        return found

    def take_rounds(
        self,
        workloads: Sequence[Workload],
        count: int,
        progress: BlockProgress | None = None,
    ) -> None:
        """Brings all shapes to ``count`` rounds, each from processes of its own.

        Each round has a block of one workload of each shape, in turn.

        Args:
            workloads: all that are compared.
            count: of rounds.
            progress: called after each workload.
        """
        shapes: dict[Shape, list[Workload]] = {}
        for workload in workloads:
            shapes.setdefault(shape_of(workload), []).append(workload)
        self._planned = count
        try:
            for number in range(count):
                self._round = number
                for position, shape in enumerate(shapes.values()):
                    self._take_turn(shape, number)
                    if self.failure is not None:
                        return
                    if progress is not None:
                        progress(shape[0], position)
        finally:
            self.session.discard_ready()

    def _take_turn(self, shape: Sequence[Workload], number: int) -> None:
        """A block of one workload of a shape, the next one where it is too slow."""
        while timed := [w for w in shape if w.uuid not in self.skipped]:
            workload = timed[number % len(timed)]
            taken = self.rounds.setdefault(workload.uuid, [])
            if not taken or taken[-1] < number:
                self.measure(workload, len(taken) + 1)
            # Tensors have moved on one workload of the shape; a sweep moves them on each.
            self._warm.update((w.uuid, "moved") for w in shape)
            if self.failure is not None or (taken and taken[-1] >= number):
                return

    def _start_round(self) -> None:
        """Sets the processes of another round aside, and starts those of this one.

        The first round takes those of a sweep that has checked a solution before.
        """
        if not self._planned or self._round == self._opened:
            return
        order = (self.a, self.b) if self._round % 2 == 0 else (self.b, self.a)
        if self._opened is not None:
            self.session.set_aside(*(each.sha256 for each in order))
        self._warm = {key for key in self._warm if key[1] == "moved"}
        self._timed.clear()
        self._opened = self._round
        left = max(0, self._planned - self._round - 1)
        ahead = min(left, self.setting.rounds_ahead - 1)
        opened = [(each, self.built[each.sha256].path) for each in order]
        self.session.open_all(opened, ahead=ahead, timed=True)
        if not ahead and self._round + 1 < self.rule.blocks_max:
            for each in order:
                self.session.prepare(each, self.built[each.sha256].path)

    def measure(self, workload: Workload, count: int) -> None:
        """Brings a workload to ``count`` blocks, from the ledger where it has them."""
        known = self.blocks.setdefault(workload.uuid, [])
        while len(known) < count and self.failure is None and workload.uuid not in self.skipped:
            key = f"block/{self.names}/{workload.uuid}/{len(known)}"
            record = self.ledger.get(key)
            if record is None:
                record = self._quiet_block(workload, next_order(known))
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
        for name, reason in record.get("deviations", {}).items():
            self.deviations[name] = Reason.model_validate(reason)
        for flag in record["flags"]:
            self.raised.setdefault(workload.uuid, []).append(Flag.model_validate(flag))
        self.flush_bytes = record["flush_bytes"]
        block = PairedBlock(
            a_ns=record["a_ns"], b_ns=record["b_ns"], order=record.get("order", "abba")
        )
        self.blocks[workload.uuid].append(block)
        self.rounds.setdefault(workload.uuid, []).append(self._round)

    def _quiet_block(self, workload: Workload, order: BlockOrder) -> dict[str, Any]:
        """A block in which the device was left alone; the last try is flagged if none was."""
        for _ in range(BLOCK_TRIES):
            with self.session.held_to_contest(self.peers):
                record = self._block(workload, order)
            if not record.get("disturbed"):
                return record
        flag = Flag(code="disturbed-device", detail=record["disturbed"])
        return record | {"flags": [*record["flags"], flag.model_dump(mode="json")]}

    def _block(self, workload: Workload, order: BlockOrder) -> dict[str, Any]:
        """Measures one block; a fault of a solution is the record."""
        current = self.a
        try:
            self._start_round()
            self.session.bind(workload)
            calls = TimedCalls(self.setting, self.session, workload)
            for current in (self.a, self.b):
                if reason := calls.too_slow(self._warm_up(current, workload)):
                    return {"skipped": f"{current.name}: {reason}"}
            numbers = calls.sets(self.setting.calls_per_slot)
            samples: dict[str, list[int]] = {"a": [], "b": []}
            uuid = self.setting.target.present().uuid
            before = read_conditions(uuid)
            for label in order:
                current = self.a if label == "a" else self.b
                samples[label] += calls.slot(current.sha256, len(numbers), numbers=numbers)
            after = read_conditions(uuid)
            for current in (self.a, self.b):
                self.session.require_still(current.sha256)
                calls.require_possible(current.sha256)
            current = self.b
            if (workload.uuid, "moved") not in self._warm:
                calls.new_contents(current.sha256)
                calls.moved_pointers(current.sha256, singles=SINGLE_MOVES)
                if self.batched:
                    calls.back_to_back(current.sha256)
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
            "order": order,
            "flush_bytes": self.session.flush_bytes,
            "flags": [flag.model_dump(mode="json") for flag in self._flags(calls)],
            "census": {
                "a": calls.census(self.a.sha256),
                "b": calls.census(self.b.sha256),
            },
            "conditions": {"before": before, "after": after},
            "disturbed": self._disturbance(uuid, before, after),
            **self._deviating(),
        }

    def _flags(self, calls: TimedCalls) -> tuple[Flag, ...]:
        """Of B in this block."""
        sha = self.b.sha256
        return (*calls.flags(sha), *kernel_flags(self.b, self.built[sha], calls.census(sha)))

    def _disturbance(self, uuid: str, before: dict[str, Any], after: dict[str, Any]) -> str:
        """What spoilt a block; where an unknown process is listed, ours are looked for anew."""
        listed = {*before.get("processes", ()), *after.get("processes", ())}
        if not listed <= self._own:
            self._own = own_processes(uuid)
        return disturbance(before, after, own=self._own)

    def _deviating(self) -> dict[str, Any]:
        found = {each.name: self.session.deviation(each.sha256) for each in (self.a, self.b)}
        dumped = {name: r.model_dump(mode="json") for name, r in found.items() if r is not None}
        return {"deviations": dumped} if dumped else {}

    def _warm_up(self, solution: Solution, workload: Workload) -> int:
        """Checked calls, so that compilation for new shapes is not timed.

        Returns:
            Wall time of the last of them in nanoseconds; 0 where it has been called before, in
            this round or in another one.
        """
        if (workload.uuid, solution.sha256) in self._warm:
            return 0
        self.session.open(solution, self.built[solution.sha256].path)
        number = self.session.sets(next(iter(self.session.generators)), 1)[0]

        def called(*, timed: bool = False) -> int:
            sha = solution.sha256
            return self.session.call(sha, number, phase="check", timed=timed, full=False).wall_ns

        wall_ns, limit_ns = 0, self.setting.options.timed_call_s * 1e9
        for _ in range(2 if self._round == 0 else 1):
            wall_ns = called()
            if wall_ns <= limit_ns:
                break
        if self.setting.rounds and wall_ns <= limit_ns and solution.sha256 not in self._timed:
            # The first timed call of a process takes longer than its others.
            called(timed=True)
            self._timed.add(solution.sha256)
        self._warm.add((workload.uuid, solution.sha256))
        return wall_ns if self._round == 0 else 0


def compare_pair(
    pair: Pair,
    workloads: Sequence[Workload],
    *,
    progress: BlockProgress | None = None,
    thorough: bool = False,
) -> Comparison:
    """Measures until the comparison is decided, every workload is full, or time is up.

    Args:
        pair: two solutions, and what is known of them.
        workloads: those to compare on.
        progress: called after each workload.
        thorough: whether a B that is faster is measured on until no estimate beside the mean,
            which a promotion asks for, is above the margin by chance alone.
    """
    options = pair.setting.options
    started = time.monotonic()
    wanted = {workload.uuid: pair.setting.blocks_min for workload in workloads}
    look = 0
    with device_lease(pair.setting.device_id):
        while True:
            _advance(pair, workloads, wanted, progress)
            look += 1
            comparison = conclude_comparison(pair, workloads, look)
            if pair.failure is not None:
                return comparison
            open_ = open_workloads(pair, workloads, comparison.decision, thorough=thorough)
            if not open_ or time.monotonic() - started > options.budget_s:
                return comparison
            for uuid in open_:
                wanted[uuid] = pair.rule.grown(wanted[uuid])


def _advance(
    pair: Pair,
    workloads: Sequence[Workload],
    wanted: dict[str, int],
    progress: BlockProgress | None,
) -> None:
    """Measures what is wanted, until one of the two fails."""
    if pair.setting.rounds:
        pair.take_rounds(workloads, max(wanted.values(), default=0), progress)
        return
    for position, workload in enumerate(workloads):
        pair.measure(workload, wanted[workload.uuid])
        if pair.failure is not None:
            return
        if progress is not None:
            progress(workload, position)
