"""A harness without hardware: latencies out of a model, with noise; ships with kopt.

What takes hours on a device takes milliseconds here, so that the loop, its memory, its
supervision and its resumption are tested everywhere. Nothing that it says is a measurement,
and it can therefore never stand behind a target of the command line.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kopt_harness.bench.regressions import ERROR, regressions, secondary
from kopt_harness.bench.stats import block_levels, decide, interval_of
from kopt_harness.ledger import Ledger, recorded
from kopt_harness.schema import (
    BuildResult,
    Comparison,
    Confirmation,
    Evaluation,
    Flag,
    GateResult,
    PairedBlock,
    Profile,
    ProfileDiagnosis,
    ProfiledKernel,
    Reason,
    SecondaryRatios,
    Solution,
    SolutionRef,
    SweepResult,
    TierResult,
    Validation,
    Verdict,
    Workload,
    WorkloadComparison,
    WorkloadResult,
)

__all__ = ["SimulatedDevice", "SimulatedHarness", "bowl"]

CONFIDENCE = 0.95
MARGIN = 0.02
TRIALS = 3
"""Input sets that a check takes on a workload."""


_SETTING = re.compile(r"(?:#define KOPT_)?([A-Z][A-Z0-9_]*)\s*=?\s*(\d+)")


def bowl(
    base_us: Mapping[str, float], optimum: Mapping[str, int], *, steepness: float = 0.1
) -> Callable[[Solution, Workload], float]:
    """A latency model: a base for each solution, and a bowl over its knobs.

    Args:
        base_us: Latency with the best settings, by the beginning of the solution's name.
        optimum: Best value of each knob; a factor of two away costs ``steepness``, a factor
            of four costs four times that.
        steepness: See above.
    """

    def latency_us(solution: Solution, workload: Workload) -> float:
        name = max((n for n in base_us if solution.name.startswith(n)), key=len)
        latency = base_us[name] * (1 + 0.05 * sum(workload.axes.values()))
        for source in solution.sources:
            if source.path.startswith("tunables."):
                for knob, value in _SETTING.findall(source.content):
                    away = math.log2((int(value) + 1) / (optimum[knob] + 1))
                    latency *= 1 + steepness * away**2
        return latency

    return latency_us


class SimulatedDevice(NamedTuple):
    """What the simulation pretends."""

    latency_us: Callable[[Solution, Workload], float]
    """The model: true latency of a solution on a workload."""
    launches: Callable[[Solution], int] = lambda _: 1
    verdicts: Mapping[str, Verdict] = {}  # a NamedTuple's default, never changed
    """By solution name, where it is not ``pass``."""
    flags: Mapping[str, str] = {}
    """Flag code by solution name."""
    diagnosis: ProfileDiagnosis | None = None
    """What every profile says of its call."""
    noise: float = 0.01
    """Standard deviation of a sample, relative."""
    seed: int | None = 0
    """Of the noise; None: another one in every process, as real noise is."""
    blocks: int = 6
    """Paired blocks of each workload."""
    unit_s: float = 0.0
    """How long each measured unit takes."""
    epoch: str = "simulated"


class SimulatedHarness:
    """Satisfies ``Harness``; every block is a unit of the ledger."""

    def __init__(self, target: str, device: SimulatedDevice) -> None:
        self.target = target
        self._device = device
        self._run_seed = random.SystemRandom().getrandbits(64)
        self.units = 0
        """Units that were measured, not read from the ledger."""

    @property
    def environment(self) -> dict[str, Any]:
        """Says that nothing here was measured."""
        return {"epoch": self._device.epoch, "device": "simulated"}

    def profile(self, solution: Solution, workload: Workload, ledger: Ledger) -> Profile:
        """As many equal kernels as the model says that there are launches."""
        key = f"profile/{solution.sha256[:12]}/{workload.uuid}"
        return Profile.model_validate(
            recorded(ledger, key, lambda: self._profile(solution, workload))
        )

    def prepare(self, solutions: Sequence[Solution]) -> None:
        """Nothing is built here."""

    def gate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> GateResult:
        """Passes unless the verdict is bad or the comparison says slower."""
        evaluation = self._evaluate(candidate, workloads, ledger, TRIALS)
        if evaluation.verdict is not Verdict.PASS:
            return GateResult(
                evaluation=evaluation, comparison=None, passed=False, reason=evaluation.reasons[0]
            )
        comparison = self._compare(incumbent, candidate, workloads, ledger, "gate")
        reason = Reason(
            code=comparison.decision, detail=f"{comparison.decision}, ratio {comparison.ratio:.3f}"
        )
        return GateResult(
            evaluation=evaluation,
            comparison=comparison,
            passed=comparison.decision != "slower",
            reason=reason,
        )

    def sweep(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
        distinct_inputs: int = 0,
    ) -> SweepResult:
        """All workloads, complete where the verdict is good."""
        trials = max(TRIALS, -(-distinct_inputs // max(1, len(workloads))))
        evaluation = self._evaluate(candidate, workloads, ledger, trials)
        if evaluation.verdict is not Verdict.PASS:
            return SweepResult(evaluation=evaluation, comparison=None, complete=False)
        comparison = self._compare(incumbent, candidate, workloads, ledger, "sweep")
        return SweepResult(
            evaluation=evaluation,
            comparison=comparison,
            complete=True,
            built=_built(candidate, self.target),
        )

    def validate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> Validation:
        """The gate once more, with noise of its own; a build has nothing that could differ."""
        evaluation = self._evaluate(candidate, workloads, ledger, TRIALS)
        comparison = self._compare(incumbent, candidate, workloads, ledger, "validation")
        passed = evaluation.verdict is Verdict.PASS and comparison.decision != "slower"
        reason = Reason(code=comparison.decision, detail=comparison.decision)
        gate = GateResult(
            evaluation=evaluation, comparison=comparison, passed=passed, reason=reason
        )
        confirmation = Confirmation(outcome="not-needed", reason="nothing here was measured")
        return Validation(
            built=_built(candidate, self.target), gate=gate, confirmation=confirmation
        )

    def close(self) -> None:
        """Nothing to end."""

    def _measured(self, ledger: Ledger, key: str, value: Callable[[], dict[str, Any]]) -> Any:
        def measure() -> dict[str, Any]:
            self.units += 1
            time.sleep(self._device.unit_s)
            return value()

        return recorded(ledger, key, measure)

    def _profile(self, solution: Solution, workload: Workload) -> dict[str, Any]:
        total = self._device.latency_us(solution, workload)
        count = self._device.launches(solution)
        kernels = tuple(
            ProfiledKernel(name=f"kernel-{n}", calls=1, total_us=total / count, share=1 / count)
            for n in range(count)
        )
        profile = Profile(
            profiler="simulated",
            solution=_ref(solution),
            target=self.target,
            uuid=workload.uuid,
            axes=workload.axes,
            total_us=total,
            kernels=kernels,
            launches=count,
            diagnosis=self._device.diagnosis,
        )
        return profile.model_dump(mode="json")

    def _evaluate(
        self, solution: Solution, workloads: Sequence[Workload], ledger: Ledger, trials: int
    ) -> Evaluation:
        verdict = self._device.verdicts.get(solution.name, Verdict.PASS)
        results = []
        for workload in workloads:
            key = f"check/{solution.sha256[:12]}/{workload.uuid}"
            found = self._measured(ledger, key, lambda: {"verdict": str(verdict)})
            results.append(_result(workload, Verdict(found["verdict"]), trials))
        code = self._device.flags.get(solution.name)
        reasons = () if verdict is Verdict.PASS else (_bad(verdict),)
        return Evaluation(
            solution=_ref(solution),
            target=self.target,
            verdict=Verdict.combine(result.verdict for result in results),
            phase="check",
            reasons=reasons,
            flags=() if code is None else (Flag(code=code, detail="simulated"),),
            workloads=tuple(results),
            environment=self.environment,
        )

    def _compare(
        self,
        a: Solution,
        b: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
        what: str,
    ) -> Comparison:
        blocks = [self._blocks(a, b, workload, ledger, what) for workload in workloads]
        levels = [block_levels(each) for each in blocks]
        interval = interval_of(levels, CONFIDENCE)
        slower = [test.adjusted_p for test in regressions(levels, MARGIN)]
        regimes = [_regime(workload) for workload in workloads]
        beside = secondary(levels, regimes, [tuple(w.axes.items()) for w in workloads])
        rows = tuple(map(_row, workloads, blocks, slower))
        return Comparison(
            a=_ref(a),
            b=_ref(b),
            target=self.target,
            epoch=self._device.epoch,
            ratio=interval.ratio,
            ci=(interval.lo, interval.hi),
            confidence=CONFIDENCE,
            margin=MARGIN,
            decision=decide(interval, MARGIN),
            a_mean_us=_mean(row.a_median_us for row in rows),
            b_mean_us=_mean(row.b_median_us for row in rows),
            secondary=SecondaryRatios(**beside.fields()),
            workloads=rows,
        )

    def _blocks(
        self, a: Solution, b: Solution, workload: Workload, ledger: Ledger, what: str
    ) -> list[PairedBlock]:
        pair = f"{a.sha256[:12]}-{b.sha256[:12]}"
        found = []
        for number in range(self._device.blocks):
            key = f"block/{pair}/{workload.uuid}/{number}"
            seed = self._run_seed if self._device.seed is None else self._device.seed
            rng = random.Random(f"{seed}/{what}/{key}")
            value = self._measured(ledger, key, partial(self._block, a, b, workload, rng))
            found.append(PairedBlock.model_validate(value))
        return found

    def _block(self, a: Solution, b: Solution, workload: Workload, rng: random.Random) -> Any:
        def sample(solution: Solution) -> int:
            latency_us = self._device.latency_us(solution, workload)
            return max(1, round(latency_us * 1e3 * rng.gauss(1.0, self._device.noise)))

        return {"a_ns": [sample(a), sample(a)], "b_ns": [sample(b), sample(b)]}


def _ref(solution: Solution) -> SolutionRef:
    return SolutionRef(name=solution.name, definition=solution.definition, sha256=solution.sha256)


def _built(solution: Solution, target: str) -> BuildResult:
    """Of one key, whatever it is built in."""
    return BuildResult(solution=_ref(solution), target=target, ok=True, key=solution.sha256)


def _regime(workload: Workload) -> str:
    """Every combination of axes is a regime of its own."""
    return ",".join(f"{name}={extent}" for name, extent in workload.axes.items())


def _bad(verdict: Verdict) -> Reason:
    return Reason(code=f"simulated-{verdict}", detail=f"the simulation says {verdict}")


def _result(workload: Workload, verdict: Verdict, trials: int) -> WorkloadResult:
    ok = verdict is Verdict.PASS
    tiers = {
        name: TierResult(
            tier=name, verdict="pass" if ok else "fail", reason=None if ok else _bad(verdict)
        )
        for name in ("contest", "strict")
    }
    return WorkloadResult(
        uuid=workload.uuid,
        axes=workload.axes,
        verdict=verdict,
        phase="check",
        trials=trials if ok else 1,
        reasons=() if ok else (_bad(verdict),),
        tiers=tiers,
    )


def _row(workload: Workload, blocks: Sequence[PairedBlock], p_slower: float) -> WorkloadComparison:
    interval = interval_of([block_levels(blocks)], CONFIDENCE)
    return WorkloadComparison(
        uuid=workload.uuid,
        axes=workload.axes,
        a_median_us=_mean(ns / 1e3 for block in blocks for ns in block.a_ns),
        b_median_us=_mean(ns / 1e3 for block in blocks for ns in block.b_ns),
        ratio=interval.ratio,
        ci=(interval.lo, interval.hi),
        n=len(blocks),
        p_slower=p_slower,
        slower=p_slower < ERROR,
    )


def _mean(values: Any) -> float:
    """The simulated noise is symmetric, so that mean and median agree."""
    found = list(values)
    return float(sum(found) / len(found))
