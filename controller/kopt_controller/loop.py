"""The round: state, direction, candidates, gate, sweep, decision, memory. Start reading here.

The loop is a deterministic program. What it cannot compute again goes through the journal
under a key (``recorded``): profiles, proposals, gates, sweeps, promotions. So a run that was
killed continues by running the same loop again with the same journal, and the same recorded
samples give the identical decision. The loop never measures; it asks a ``Harness``.

Keys: ``profile/<solution>/<workload>``, then for each round ``r<n>/steer``,
``r<n>/proposals/<direction>``, ``r<n>/gate/<solution>/...``, ``r<n>/sweep/<solution>/...``,
``r<n>/validation/<solution>/...``, ``r<n>/promotion``, ``r<n>/result``.
A device's epoch is part of the keys of its samples: after a reboot or a change of driver an
interrupted comparison starts anew rather than mixing two epochs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kopt_harness.ledger import Ledger, recorded
from kopt_harness.schema import GateResult, Profile, Solution, SweepResult, Validation, Workload

from .agents import Proposal
from .choosing import choose, seated, steering_of
from .memory import RESULT_KEY, Memory
from .policy import awaits_validation, best_passed, decide, promotion_conditions
from .result import (
    Candidate,
    CandidateRef,
    Decision,
    PromotionRecord,
    RoundResult,
    gate_document,
    sweep_summary,
)
from .state import Observation, derive_state
from .steering import Steering
from .supervisor import rung_of, steered, supervise
from .world import Promotion, SolutionStore, Turn, World

__all__ = ["run_round", "run_rounds"]


def run_rounds(
    world: World, incumbent: Solution, memory: Memory, rounds: int, first: int = 1
) -> Iterator[RoundResult]:
    """Runs rounds one after the other; each starts from what the one before left.

    Args:
        world: The campaign.
        incumbent: To begin with.
        memory: To begin with.
        rounds: At most.
        first: Number of the first.
    """
    for number in range(first, first + rounds):
        ledger = world.ledger.scoped(f"r{number}")
        steering, rung = steering_of(world, ledger), rung_of(memory, world.ladder)
        end = steering.stop or ("the last rung of the ladder" if rung == "stop" else None)
        if end is None and not _may_start(world, ledger, steering, is_first=number == first):
            end = "the budget"
        if end is not None:
            world.notify(f"{end} ends the campaign after {number - first} rounds")
            return
        if world.meter is not None:
            world.meter.enter(number)
        turn = Turn(number, ledger, incumbent, memory, steering, rung)
        result = run_round(_regrouped(seated(world, turn), turn), turn)
        memory = memory.learn(world.run, result)
        if world.meter is not None:
            world.meter.close_round(number)
        if result.incumbent.sha256 != incumbent.sha256:
            incumbent = _stored(world.solutions, result.incumbent)
        yield result


def _regrouped(world: World, turn: Turn) -> World:
    """The campaign with the regimes that the incumbent's own latencies show, once it was swept."""
    latencies_us = turn.memory.latencies_us(turn.incumbent.sha256)
    if world.regroup is None or not all(w.uuid in latencies_us for w in world.workloads):
        return world
    return replace(world, representatives=world.regroup(latencies_us))


def _may_start(world: World, ledger: Ledger, steering: Steering, *, is_first: bool) -> bool:
    """Decided once: a resumed campaign has spent what it had spent."""
    start = recorded(
        ledger, "start", lambda: {"go": is_first or world.may_start(steering.budget_s)}
    )
    return bool(start["go"])


def run_round(world: World, turn: Turn) -> RoundResult:
    """One pass, from state to decision."""
    incumbent = turn.incumbent
    world.notify(f"round {turn.number}: {incumbent.name} is the incumbent")

    # 1. State: what limits the incumbent, regime by regime.
    state = derive_state(_observe(world, incumbent, turn.memory.latencies_us(incumbent.sha256)))

    advice = steered(supervise(turn.memory), turn.steering, turn.rung)

    # 2. and 3. Direction and candidates: the best direction for which the agent has something.
    chosen = choose(world, turn, state, advice)
    proposals = chosen.proposals.candidates
    world.notify(f"direction {chosen.direction.id}: {len(proposals)} candidates")

    # 4. Gate: each candidate on the representatives, against the incumbent.
    _prepare(world, turn, [proposal.solution for proposal in proposals])
    gates = [_gate(world, turn, proposal.solution) for proposal in proposals]

    # 5. Profile and sweep of the best that passed.
    index = best_passed(gates)
    best = None if index is None else proposals[index].solution
    sweep = None if best is None else _sweep(world, turn, best)

    # 6. Validate once more what would be promoted; decide; promote where the loop may.
    validation = None if best is None or sweep is None else _validate(world, turn, best, sweep)
    decision = _decide(world, turn, gates, sweep, validation)
    world.notify(f"round {turn.number}: {decision.label}, {decision.reason}")
    promotion = None
    if decision.label == "promote" and best is not None and sweep is not None:
        promotion = _promote(world, turn, best, sweep, decision)
    moved = best if promotion is not None and promotion.applied and best is not None else incumbent

    # 7. Learn: the result is the memory of this round; the supervisor looks at it at once.
    return _learn(
        world,
        turn,
        RoundResult(
            round=turn.number,
            definition=world.definition.name,
            target=world.target,
            state=state,
            direction=chosen.direction,
            candidates=tuple(map(_candidate, proposals, gates)),
            best=None if best is None else _ref(best),
            sweep=None if sweep is None else sweep_summary(sweep),
            decision=decision,
            promotion=promotion,
            incumbent_before=_ref(incumbent),
            incumbent=_ref(moved),
            signals=(),
            notes=chosen.proposals.notes,
            ranking=chosen.ranking,
            refused=chosen.refused,
            steers=turn.steering.steers,
            rung=turn.rung,
        ),
    )


def _learn(world: World, turn: Turn, result: RoundResult) -> RoundResult:
    """Closes the round, with what the supervisor says of it."""
    advice = supervise(turn.memory.learn(world.run, result))
    result = result.model_copy(update={"signals": advice.signals, "actions": advice.actions})
    kept = recorded(turn.ledger, RESULT_KEY, lambda: result.model_dump(mode="json"))
    return RoundResult.model_validate(kept)


def _observe(
    world: World, solution: Solution, latencies_us: Mapping[str, float] | None = None
) -> list[Observation]:
    """A profile on each representative, taken once for each solution of a run.

    Args:
        world: The campaign.
        solution: That is profiled.
        latencies_us: What the last sweep has measured of it, by workload.
    """
    known = latencies_us or {}
    return [
        Observation(
            regime=representative.regime,
            workloads=representative.weight,
            profile=_profile(world, solution, representative.workload),
            cost_bytes=representative.cost_bytes,
            flops=representative.flops,
            floor=representative.floor,
            origin=representative.origin,
            latency_us=known.get(representative.workload.uuid),
            regime_us=_sum(known, representative.members),
        )
        for representative in world.representatives
    ]


def _sum(latencies_us: Mapping[str, float], uuids: Sequence[str]) -> float | None:
    if not uuids or not all(uuid in latencies_us for uuid in uuids):
        return None
    return sum(latencies_us[uuid] for uuid in uuids)


def _profile(world: World, solution: Solution, workload: Workload) -> Profile:
    key = f"profile/{solution.sha256[:12]}/{workload.uuid}"
    ledger = world.ledger.scoped(f"{key}/units")

    def measure() -> dict[str, Any]:
        return world.harness().profile(solution, workload, ledger).model_dump(mode="json")

    return Profile.model_validate(recorded(world.ledger, key, measure))


def _stored(solutions: SolutionStore, ref: CandidateRef) -> Solution:
    """Content is kept once, under the name that it first had; here it has the name of ``ref``."""
    return solutions.get(ref.sha256).model_copy(update={"name": ref.name})


def _prepare(world: World, turn: Turn, candidates: Sequence[Solution]) -> None:
    """Together, those whose gate is not recorded yet."""
    waiting = [each for each in candidates if turn.ledger.get(f"{_gate_key(each)}/outcome") is None]
    if len(waiting) > 1:
        world.harness().prepare(waiting)


def _gate_key(candidate: Solution) -> str:
    return f"gate/{candidate.sha256[:12]}"


def _gate(world: World, turn: Turn, candidate: Solution) -> GateResult:
    key = _gate_key(candidate)
    workloads = [representative.workload for representative in world.representatives]

    def measure() -> dict[str, Any]:
        harness = world.harness()
        units = turn.ledger.scoped(f"{key}/{harness.environment['epoch']}")
        result = harness.gate(candidate, turn.incumbent, workloads, units)
        return result.model_dump(mode="json")

    result = GateResult.model_validate(recorded(turn.ledger, f"{key}/outcome", measure))
    world.notify(f"gate of {candidate.name}: {result.reason.detail}")
    return result


def _sweep(world: World, turn: Turn, candidate: Solution) -> SweepResult:
    """The profile first: it is cheap, and the next round starts from it."""
    _observe(world, candidate)
    key = f"sweep/{candidate.sha256[:12]}"
    # A sweep of a part of the workloads promotes nothing, and needs no further inputs.
    is_whole = len(world.sweep_workloads) == len(world.workloads)
    inputs = world.rules.min_distinct_inputs if is_whole else 0

    def measure() -> dict[str, Any]:
        harness = world.harness()
        units = turn.ledger.scoped(f"{key}/{harness.environment['epoch']}")
        result = harness.sweep(candidate, turn.incumbent, world.sweep_workloads, units, inputs)
        return result.model_dump(mode="json")

    return SweepResult.model_validate(recorded(turn.ledger, f"{key}/outcome", measure))


def _validate(
    world: World, turn: Turn, candidate: Solution, sweep: SweepResult
) -> Validation | None:
    """None where another condition does not hold, or no validation is required."""
    conditions = promotion_conditions(
        sweep,
        workloads=world.workloads,
        public_seed=world.public_seed,
        rules=world.rules,
        overridden=turn.steering.accepted_flags,
    )
    if not awaits_validation(conditions, world.rules):
        return None
    key = f"validation/{candidate.sha256[:12]}"
    workloads = [representative.workload for representative in world.representatives]

    def measure() -> dict[str, Any]:
        harness = world.harness()
        units = turn.ledger.scoped(f"{key}/{harness.environment['epoch']}")
        result = harness.validate(candidate, turn.incumbent, workloads, units)
        return result.model_dump(mode="json")

    return Validation.model_validate(recorded(turn.ledger, f"{key}/outcome", measure))


def _decide(
    world: World,
    turn: Turn,
    gates: Sequence[GateResult],
    sweep: SweepResult | None,
    validation: Validation | None,
) -> Decision:
    return decide(
        gates,
        sweep,
        workloads=world.workloads,
        public_seed=world.public_seed,
        rules=world.rules,
        validation=validation,
        overridden=turn.steering.accepted_flags,
        axes=world.definition.kopt.regime_axes,
    )


def _promote(
    world: World, turn: Turn, candidate: Solution, sweep: SweepResult, decision: Decision
) -> PromotionRecord:
    """Moves the incumbent, or leaves a promotable for a person."""
    if world.mode == "ask":
        detail = f"promotable: look at it, then kopt promote {world.run}/{turn.number}"
        return PromotionRecord(mode="ask", applied=False, detail=detail)
    comparison = sweep.comparison
    rows = () if comparison is None else comparison.workloads
    timed_us = {row.uuid: row.b_median_us for row in rows if row.b_median_us is not None}
    observations = _observe(world, candidate, timed_us)
    promotion = Promotion(
        candidate=candidate,
        incumbent=turn.incumbent,
        sweep=sweep,
        decision=decision,
        state=derive_state(observations),
        profiles=tuple(observation.profile for observation in observations),
        rules=world.rules,
        overridden=turn.steering.accepted_flags,
        samples_prefixes=tuple(
            f"r{turn.number}/{what}/{candidate.sha256[:12]}" for what in ("sweep", "validation")
        ),
    )
    record = recorded(
        turn.ledger, "promotion", lambda: world.promote(promotion).model_dump(mode="json")
    )
    return PromotionRecord.model_validate(record)


def _candidate(proposal: Proposal, gate: GateResult) -> Candidate:
    return Candidate(
        name=proposal.solution.name,
        sha256=proposal.solution.sha256,
        language=proposal.solution.spec.language,
        family=proposal.family,
        settings=proposal.settings,
        technique=proposal.technique,
        rationale=proposal.rationale,
        verdict=gate.evaluation.verdict,
        gate=gate_document(gate),
    )


def _ref(solution: Solution) -> CandidateRef:
    return CandidateRef(name=solution.name, sha256=solution.sha256)
