"""What a round has measured and how it is judged, each unit once under its key.

The loop says what is to be known; here it is taken out of the journal, or asked of the harness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kopt_harness.ledger import recorded
from kopt_harness.schema import GateResult, Profile, Solution, SweepResult, Validation, Workload

from .asking import metered
from .policy import awaits_validation, decide, promotion_conditions
from .result import Decision, Review
from .reviewing import Subject, review_of, reviewed
from .state import Observation
from .world import Representative, Turn, World

__all__ = ["Judged", "gate", "judge", "observe", "observed", "prepare"]


def observe(
    world: World, solution: Solution, latencies_us: Mapping[str, float] | None = None
) -> list[Observation]:
    """A profile on each representative, taken once for each solution of a run.

    Args:
        world: The campaign.
        solution: That is profiled.
        latencies_us: What the last sweep has measured of it, by workload.
    """
    return observed(
        world.representatives,
        lambda workload: _profile(world, solution, workload),
        latencies_us or {},
    )


def observed(
    representatives: Sequence[Representative],
    profile_of: Callable[[Workload], Profile],
    latencies_us: Mapping[str, float],
) -> list[Observation]:
    """What is known of a solution on each representative, for its state.

    Args:
        representatives: Of the definition on the target.
        profile_of: Takes, or finds, the profile on a workload.
        latencies_us: What the last sweep has measured of it, by workload.
    """
    return [
        Observation(
            regime=representative.regime,
            workloads=representative.weight,
            profile=profile_of(representative.workload),
            cost_bytes=representative.cost_bytes,
            flops=representative.flops,
            floor=representative.floor,
            origin=representative.origin,
            latency_us=latencies_us.get(representative.workload.uuid),
            regime_us=_sum(latencies_us, representative.members),
        )
        for representative in representatives
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


def prepare(world: World, turn: Turn, candidates: Sequence[Solution]) -> None:
    """Builds together those whose gate is not recorded yet.

    Args:
        world: The campaign.
        turn: The round.
        candidates: Of the round.
    """
    waiting = [each for each in candidates if turn.ledger.get(f"{_gate_key(each)}/outcome") is None]
    if len(waiting) > 1:
        world.harness().prepare(waiting)


def _gate_key(candidate: Solution) -> str:
    return f"gate/{candidate.sha256[:12]}"


def gate(world: World, turn: Turn, candidate: Solution) -> GateResult:
    """A candidate on the representatives, against the incumbent of the round.

    Args:
        world: The campaign.
        turn: The round.
        candidate: What is gated.
    """
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


RETAINED = "retained"
"""Below a round: what was measured against what is retained, where that is not the incumbent."""


class Judged(NamedTuple):
    """What the best candidate of a round came to."""

    turn: Turn
    """The round, with the incumbent that it was compared with in the end."""
    sweep: SweepResult | None
    decision: Decision
    review: Review | None = None
    first: tuple[SweepResult, Decision] | None = None
    """Against the incumbent of the round; null where there was no sweep."""
    place: str = ""
    """Of its samples in the journal, below the round."""


def judge(
    world: World, turn: Turn, gates: Sequence[GateResult], index: int | None, best: Solution | None
) -> Judged:
    """Sweeps, validates, reviews and decides.

    Where the round starts from a version that was never promoted, what beats that version must
    also beat what is retained.

    Args:
        world: The campaign.
        turn: The round.
        gates: Of all candidates.
        index: Of the best that passed; None where none did.
        best: That candidate.
    """
    if index is None or best is None:
        return Judged(turn, None, _decide(world, turn, gates, None, None))
    found = _swept(world, turn, gates, best)
    assert found.sweep is not None, "it was swept just now"
    first = (found.sweep, found.decision)
    retained = turn.retained
    if (
        found.decision.label == "promote"
        and retained is not None
        and retained.sha256 != turn.incumbent.sha256
    ):
        against = turn._replace(incumbent=retained, ledger=turn.ledger.scoped(RETAINED))
        found = _swept(world, against, gates, best)
        reason = f"against the retained {retained.name}: {found.decision.reason}"
        decision = found.decision.model_copy(update={"reason": reason})
        found = found._replace(decision=decision, place=f"{RETAINED}/")
    if world.reviewer is None or not found.decision.label.startswith("promote"):
        return found._replace(first=first)
    assert found.sweep is not None, "it was swept just now"
    subject = Subject(world.definition, best, found.turn.incumbent, gates[index], found.sweep)
    review = review_of(metered(world.reviewer, world.meter), subject, turn.ledger)
    decision = reviewed(found.decision, review, turn.steering.accepted_flags)
    return found._replace(decision=decision, review=review, first=first)


def _swept(world: World, turn: Turn, gates: Sequence[GateResult], best: Solution) -> Judged:
    sweep = _sweep(world, turn, best)
    validation = _validate(world, turn, best, sweep)
    return Judged(turn, sweep, _decide(world, turn, gates, sweep, validation))


def _sweep(world: World, turn: Turn, candidate: Solution) -> SweepResult:
    """The profile first: it is cheap, and the next round starts from it."""
    observe(world, candidate)
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
