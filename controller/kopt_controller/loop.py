"""The round: state, direction, candidates, gate, sweep, decision, memory. Start reading here.

The loop is a deterministic program. What it cannot compute again goes through the journal
under a key (``recorded``): profiles, proposals, gates, sweeps, promotions. So a run that was
killed continues by running the same loop again with the same journal, and the same recorded
samples give the identical decision. The loop never measures; it asks a ``Harness``.

Keys: ``profile/<solution>/<workload>``, then for each round ``r<n>/steer``,
``r<n>/proposals/<direction>``, ``r<n>/gate/<solution>/...``, ``r<n>/sweep/<solution>/...``,
``r<n>/validation/<solution>/...``, ``r<n>/review/<solution>``, ``r<n>/promotion``,
``r<n>/debate``, ``r<n>/result``; a search policy adds its own.
A device's epoch is part of the keys of its samples: after a reboot or a change of driver an
interrupted comparison starts anew rather than mixing two epochs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kopt_harness.ledger import Ledger, recorded
from kopt_harness.schema import GateResult, Solution

from .agents import Proposal
from .asking import metered
from .choosing import catalogue, choose, seated, steering_of, urged_of
from .debating import Motion, debate
from .measuring import Judged, gate, judge, observe, prepare
from .memory import RESULT_KEY, Memory
from .policies import SearchPolicy
from .policies.assisted import AssistedPolicy
from .policy import best_passed, without_answer
from .result import (
    Candidate,
    CandidateRef,
    Debate,
    PromotionRecord,
    RoundResult,
    gate_document,
    sweep_summary,
)
from .reviewing import REVIEW
from .shown import counted
from .state import State, derive_state
from .steering import Steering
from .supervisor import Advice, rung_of, spared, steered, supervise, urging
from .world import Promotion, SolutionStore, Turn, World

__all__ = ["run_round", "run_rounds"]


def run_rounds(
    world: World,
    incumbent: Solution,
    memory: Memory,
    rounds: int,
    first: int = 1,
    *,
    search: SearchPolicy | None = None,
) -> Iterator[RoundResult]:
    """Runs rounds one after the other; each starts from what the one before left.

    Args:
        world: The campaign.
        incumbent: To begin with.
        memory: To begin with.
        rounds: At most.
        first: Number of the first.
        search: From where a round starts, and what its agent sees; None: the assisted one.
    """
    search = search or AssistedPolicy()
    world = search.world(world)
    retained = incumbent
    urged: tuple[str, ...] = ()
    for number in range(first, first + rounds):
        ledger = world.ledger.scoped(f"r{number}")
        steering, rung = steering_of(world, ledger), rung_of(memory, world.ladder)
        end = steering.stop or ("the last rung of the ladder" if rung == "stop" else None)
        if end is None and not _may_start(world, ledger, steering, is_first=number == first):
            end = "the budget"
        if end is not None:
            world.notify(f"{end} ends the campaign after {counted(number - first, 'round')}")
            return
        if world.meter is not None:
            world.meter.enter(number)
        asked = urged_of(ledger, urged)
        turn = Turn(number, ledger, incumbent, memory, steering, rung, retained, urged=asked)
        turn = search.begin(world, turn)
        result = run_round(_regrouped(seated(world, turn), turn), turn, search)
        search.end(world, turn, result)
        memory = memory.learn(world.run, result)
        agreed = None if result.debate is None else result.debate.agreed
        urged = () if agreed is None else (agreed,)
        if result.promotion is not None and result.promotion.applied and result.best is not None:
            retained = _stored(world.solutions, result.best)
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


def run_round(world: World, turn: Turn, search: SearchPolicy) -> RoundResult:
    """One pass, from state to decision."""
    incumbent = turn.incumbent
    world.notify(f"round {turn.number}: {incumbent.name} is the incumbent")

    # 1. State: what limits the incumbent, regime by regime.
    state = derive_state(observe(world, incumbent, turn.memory.latencies_us(incumbent.sha256)))

    seen = turn.memory if turn.is_supervised else Memory()
    asked = [name for name in turn.urged if name not in turn.steering.blocked]
    advice = urging(steered(supervise(seen), turn.steering, turn.rung), asked)

    # 2. and 3. Direction and candidates: the best direction for which the agent has something.
    chosen = choose(world, turn, state, advice)
    proposals = chosen.proposals.candidates
    world.notify(f"direction {chosen.direction.id}: {counted(len(proposals), 'candidate')}")

    # 4. Gate: each candidate on the representatives, against the incumbent.
    prepare(world, turn, [proposal.solution for proposal in proposals])
    gates = [gate(world, turn, proposal.solution) for proposal in proposals]

    # 5. Profile and sweep of the best that passed; validate what would be promoted; decide.
    index = best_passed(gates)
    best = None if index is None else proposals[index].solution
    judged = judge(world, turn, gates, index, best)
    why = chosen.proposals.unusable
    decision = judged.decision if gates or not why else without_answer(why)
    world.notify(f"round {turn.number}: {decision.label}, {decision.reason}")

    # 6. Promote where the loop may.
    promotion = None
    if decision.label == "promote" and best is not None:
        promotion = _promote(world, judged, best)
    is_promoted = promotion is not None and promotion.applied
    is_free = judged.first is not None and not is_promoted and decision.code != REVIEW
    commits = judged.first is not None and is_free and search.commits(*judged.first)
    moved = best if (is_promoted or commits) and best is not None else incumbent

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
            sweep=None if judged.sweep is None else sweep_summary(judged.sweep),
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
            policy=search.name,
            parent=None if turn.parent is None else _ref(turn.parent),
            committed=commits,
            review=judged.review,
        ),
    )


def _debate(world: World, turn: Turn, state: State, memory: Memory, advice: Advice) -> Debate:
    """Of the two debaters, about the next round."""
    why = "; ".join(signal.detail for signal in advice.signals)
    signatures = (state.focus, *state.regimes)
    offered = {
        name: direction
        for name, direction in catalogue(world, turn).items()
        if name not in turn.steering.blocked
        and any(direction.match(signature).score > 0 for signature in signatures)
    }
    sides = [metered(side, world.meter) for side in world.debaters]
    return debate(sides, Motion(why, state, memory, offered), turn.ledger)


def _learn(world: World, turn: Turn, result: RoundResult) -> RoundResult:
    """Closes the round, with what the supervisor says of it."""
    memory = turn.memory.learn(world.run, result)
    advice = supervise(memory if turn.is_supervised else Memory())
    found: dict[str, Any] = {"signals": advice.signals, "actions": advice.actions}
    # One debate at a time: where the direction of the last one has not helped, a person is asked.
    if advice.ask_person and world.debaters and not turn.urged:
        held = _debate(world, turn, result.state, memory, advice)
        found |= {"debate": held, "actions": spared(advice.actions, held.agreed)}
    result = result.model_copy(update=found)
    kept = recorded(turn.ledger, RESULT_KEY, lambda: result.model_dump(mode="json"))
    return RoundResult.model_validate(kept)


def _stored(solutions: SolutionStore, ref: CandidateRef) -> Solution:
    """Content is kept once, under the name that it first had; here it has the name of ``ref``."""
    return solutions.get(ref.sha256).model_copy(update={"name": ref.name})


def _promote(world: World, judged: Judged, candidate: Solution) -> PromotionRecord:
    """Moves the incumbent, or leaves a promotable for a person."""
    turn, sweep = judged.turn, judged.sweep
    assert sweep is not None, "nothing is promoted without one"
    if world.mode == "ask":
        detail = f"promotable: look at it, then kopt promote {world.run}/{turn.number}"
        return PromotionRecord(mode="ask", applied=False, detail=detail)
    comparison = sweep.comparison
    rows = () if comparison is None else comparison.workloads
    timed_us = {row.uuid: row.b_median_us for row in rows if row.b_median_us is not None}
    observations = observe(world, candidate, timed_us)
    promotion = Promotion(
        candidate=candidate,
        incumbent=turn.incumbent,
        sweep=sweep,
        decision=judged.decision,
        state=derive_state(observations),
        profiles=tuple(observation.profile for observation in observations),
        rules=world.rules,
        overridden=turn.steering.accepted_flags,
        samples_prefixes=tuple(
            f"r{turn.number}/{judged.place}{what}/{candidate.sha256[:12]}"
            for what in ("sweep", "validation")
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
        attribution=proposal.attribution,
        rationale=proposal.rationale,
        verdict=gate.evaluation.verdict,
        gate=gate_document(gate),
    )


def _ref(solution: Solution) -> CandidateRef:
    return CandidateRef(name=solution.name, sha256=solution.sha256)
