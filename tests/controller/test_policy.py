"""Decisions are pure functions of what was recorded."""

from typing import Any

import pytest
from kopt_controller.config import PromotionRules
from kopt_controller.directions import Direction, Precondition, load_directions
from kopt_controller.memory import Memory, RoundMemory
from kopt_controller.policy import (
    Policy,
    best_passed,
    decide,
    get_policy,
    policy_names,
    promotion_conditions,
)
from kopt_controller.result import Signal
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_controller.state import State
from kopt_controller.supervisor import Advice
from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.ledger import DictLedger
from kopt_harness.schema import GateResult, SweepResult, Validation, Verdict, Workload

Toy = Any
INPUTS = PromotionRules().min_distinct_inputs
NOTHING = Advice((), {}, (), ask_person=False)


def _workloads(toy: Toy) -> list[Workload]:
    return toy.catalog.workloads(toy.catalog.resolve("toy"))


def _sweep(toy: Toy, ratio: float = 0.5, **device: Any) -> SweepResult:
    simulated = SimulatedDevice(
        latency_us=lambda s, _: 100.0 * (ratio if s.name == "tuned" else 1.0),
        noise=0.002,
        **device,
    )
    return SimulatedHarness("cpu", simulated).sweep(
        toy.solution("tuned"), toy.solution("plain"), _workloads(toy), DictLedger(), INPUTS
    )


def _validation(toy: Toy) -> Validation:
    """Of a candidate that is right and faster, by a harness that measures anew."""
    simulated = SimulatedDevice(latency_us=lambda s, _: 50.0 if s.name == "tuned" else 100.0)
    return SimulatedHarness("cpu", simulated).validate(
        toy.solution("tuned"), toy.solution("plain"), _workloads(toy)[:2], DictLedger()
    )


def _gate(toy: Toy, ratio: float, **device: Any) -> GateResult:
    simulated = SimulatedDevice(
        latency_us=lambda s, _: 100.0 * (ratio if s.name == "tuned" else 1.0), **device
    )
    return SimulatedHarness("cpu", simulated).gate(
        toy.solution("tuned"), toy.solution("plain"), _workloads(toy)[:2], DictLedger()
    )


def _decide(toy: Toy, sweep: SweepResult, seed: int | None = None) -> Any:
    return decide(
        [], sweep, workloads=_workloads(toy), public_seed=seed, validation=_validation(toy)
    )


def _without_tier(sweep: SweepResult, tier: str, verdict: str | None) -> SweepResult:
    """The same sweep with one tier of one workload replaced or gone."""
    data = sweep.model_dump(mode="json")
    tiers = data["evaluation"]["workloads"][1]["tiers"]
    if verdict is None:
        del tiers[tier]
    else:
        tiers[tier]["verdict"] = verdict
    return SweepResult.model_validate(data)


def test_faster_on_everything_promotes(toy: Toy) -> None:
    """Every condition is met and has its number."""
    decision = _decide(toy, _sweep(toy))
    assert decision.label == "promote"
    assert [condition.name for condition in decision.evidence] == [
        "verdict",
        "coverage",
        "contest-tier",
        "strict-tier",
        "speed",
        "regressions",
        "median",
        "p95",
        "worst-regime",
        "trials",
        "flags",
        "inputs",
        "rebuild",
        "validation",
        "confirmation",
    ]
    assert "0.50" in decision.reason


@pytest.mark.parametrize(
    ("ratio", "label"), [(0.5, "promote"), (0.99, "archive"), (1.0, "archive"), (1.5, "reject")]
)
def test_the_margin_separates_the_labels(toy: Toy, ratio: float, label: str) -> None:
    """One per cent faster is within the margin; half as fast again is slower."""
    assert _decide(toy, _sweep(toy, ratio)).label == label


@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.PASS])
def test_only_a_pass_promotes(toy: Toy, verdict: Verdict) -> None:
    """The candidate's faults reject it; the machine's and the reference's archive it."""
    decision = _decide(toy, _sweep(toy, verdicts={"tuned": verdict}))
    blameless = verdict in (Verdict.INFRA, Verdict.INVALID)
    assert decision.label == ("archive" if blameless else "reject")


@pytest.mark.parametrize(
    ("tier", "verdict", "label"),
    [
        ("contest", "n/a", "promote"),
        ("contest", "fail", "archive"),
        ("contest", None, "archive"),
        ("strict", "n/a", "archive"),
        ("strict", "fail", "archive"),
        ("strict", None, "archive"),
    ],
)
def test_both_tiers_are_needed(toy: Toy, tier: str, verdict: str | None, label: str) -> None:
    """The contest tier may not apply to a stress input; strict always does."""
    assert _decide(toy, _without_tier(_sweep(toy), tier, verdict)).label == label


def test_a_missing_workload_is_no_evidence(toy: Toy) -> None:
    """Neither an incomplete sweep nor one of fewer workloads than there are."""
    sweep = _sweep(toy)
    assert _decide(toy, sweep.model_copy(update={"complete": False})).code == "coverage"
    workloads = [*_workloads(toy), Workload(index=9, uuid="never-swept", axes={"n": 5})]
    late = decide([], sweep, workloads=workloads, public_seed=None, validation=_validation(toy))
    assert (late.label, late.code) == ("archive", "coverage")


def test_a_flag_of_one_workload_bars_until_overridden(toy: Toy) -> None:
    """A person can accept a flag by its code, and only that one."""
    sweep = _sweep(toy, flags={"tuned": "timer-unconfirmed"})
    assert _decide(toy, sweep).code == "flags"

    def flags_ok(*overridden: str) -> bool:
        conditions = promotion_conditions(
            sweep, workloads=_workloads(toy), public_seed=None, overridden=overridden
        )
        return next(c.ok for c in conditions if c.name == "flags")

    assert not flags_ok("library-call")
    assert flags_ok("timer-unconfirmed")


def _split_sweep(toy: Toy, small: float, large: float, noise: float = 0.002) -> SweepResult:
    """The candidate's ratio up to an extent of 2, and above."""

    def latency_us(solution: Any, workload: Workload) -> float:
        ratio = small if workload.axes["n"] <= 2 else large
        return 100.0 * (ratio if solution.name == "tuned" else 1.0)

    device = SimulatedDevice(latency_us=latency_us, noise=noise)
    return SimulatedHarness("cpu", device).sweep(
        toy.solution("tuned"), toy.solution("plain"), _workloads(toy), DictLedger(), INPUTS
    )


@pytest.mark.parametrize(
    ("small", "large", "label"),
    [
        (0.5, 1.2, "promote-dispatch"),
        (0.5, 1.6, "promote-dispatch"),
        (0.99, 1.2, "reject"),
        (1.2, 1.2, "reject"),
        (0.5, 0.5, "promote"),
    ],
)
def test_what_wins_for_some_sizes_is_for_a_dispatcher(
    toy: Toy, small: float, large: float, label: str
) -> None:
    """Faster or slower in the mean; a gain within the margin is worth no rule."""
    sweep = _split_sweep(toy, small, large)
    decision = decide(
        [],
        sweep,
        workloads=_workloads(toy),
        public_seed=None,
        validation=_validation(toy) if label == "promote" else None,
        axes=("n",),
    )
    assert decision.label == label
    if label == "promote-dispatch":
        assert decision.code == "dispatch"
        assert "n 1 to 2 alone (2 of 4 workloads)" in decision.reason
        without = decide([], sweep, workloads=_workloads(toy), public_seed=None)
        assert without.label in ("archive", "reject"), "no axis to choose by"


def test_only_what_is_right_and_surely_faster_is_for_a_dispatcher(toy: Toy) -> None:
    """Not a wrong tier, not a public seed, not what noise alone has made."""
    sweep = _split_sweep(toy, 0.5, 1.2)
    arguments: dict[str, Any] = {"workloads": _workloads(toy), "axes": ("n",)}
    assert decide([], sweep, public_seed=1, **arguments).label != "promote-dispatch"
    wrong = _without_tier(sweep, "strict", "fail")
    assert decide([], wrong, public_seed=None, **arguments).label != "promote-dispatch"
    loud = _split_sweep(toy, 0.95, 1.3, noise=0.3)
    assert decide([], loud, public_seed=None, **arguments).label != "promote-dispatch"


def test_several_failures_are_all_named(toy: Toy) -> None:
    """A person should not have to fix one to learn of the next."""
    decision = _decide(toy, _sweep(toy, flags={"tuned": "library-call"}), seed=4)
    assert decision.code == "flags"
    assert "inputs" in decision.reason


def test_the_fastest_that_passed_is_swept(toy: Toy) -> None:
    """A wrong candidate is not best, however fast; of equals the first is taken."""
    gates = [
        _gate(toy, 0.9),
        _gate(toy, 0.1, verdicts={"tuned": Verdict.FAIL}),
        _gate(toy, 0.5),
        _gate(toy, 0.5),
        _gate(toy, 2.0),
    ]
    assert best_passed(gates) == 2
    assert best_passed(gates[:1] * 3) == 0
    assert best_passed([gates[1], gates[4]]) is None


def test_a_decision_survives_the_journal(toy: Toy) -> None:
    """Read back from JSON, the same results give the same decision."""
    sweep = _sweep(toy, 0.7)
    again = SweepResult.model_validate_json(sweep.model_dump_json())
    assert _decide(toy, again) == _decide(toy, sweep)


def _state(toy: Toy) -> State:
    return toy.campaign(promotion="ask").execute().rounds[0].state


def _round(direction: str, ratio: float | None, *, promoted: bool) -> RoundMemory:
    trial = {
        "name": "x",
        "sha256": f"{direction}{ratio}",
        "family": None,
        "settings": {},
        "verdict": "pass",
        "passed": True,
        "ratio": ratio,
    }
    return RoundMemory.model_validate(
        {
            "run": "r",
            "round": 1,
            "direction": direction,
            "bottleneck": "launch",
            "regime": "n=1",
            "incumbent": "00",
            "label": "promote" if promoted else "archive",
            "code": "x",
            "ratio": ratio,
            "promoted": promoted,
            "swept": None,
            "trials": [trial],
        }
    )


@pytest.mark.parametrize("name", policy_names())
def test_a_policy_keeps_the_contract(toy: Toy, name: str) -> None:
    """Known directions only, none blocked, none twice, and the same answer twice."""
    policy = get_policy(name)
    assert isinstance(policy, Policy)
    assert policy.name == name
    directions = load_directions()
    state = _state(toy)
    blocked = NOTHING._replace(blocked={"fusion": "tried"})
    for advice in (NOTHING, blocked):
        choices = policy.rank(state, directions, Memory(), advice, "00")
        ids = [choice.id for choice in choices]
        assert ids
        assert len(ids) == len(set(ids))
        assert set(ids) <= set(directions) - set(advice.blocked)
        assert choices == policy.rank(state, directions, Memory(), advice, "00")


def test_an_unknown_policy_is_named_with_the_known_ones() -> None:
    """The hint lists what there is."""
    with pytest.raises(NotFoundError) as caught:
        get_policy("best")
    assert "match" in caught.value.hint


def test_failures_make_a_direction_less_attractive(toy: Toy) -> None:
    """What never won sinks below what did."""
    state, directions, policy = _state(toy), load_directions(), get_policy("match")
    fresh = policy.rank(state, directions, Memory(), NOTHING, "00")
    assert fresh[0].id == "fusion"
    tried = Memory(rounds=tuple(_round("fusion", None, promoted=False) for _ in range(9)))
    assert policy.rank(state, directions, tried, NOTHING, "00")[0].id != "fusion"
    won = Memory(rounds=tuple(_round("dispatch", 0.2, promoted=True) for _ in range(9)))
    assert policy.rank(state, directions, won, NOTHING, "00")[0].id == "dispatch"


def test_a_direction_file_is_checked(tmp_path: Any) -> None:
    """A precondition on a field that no signature has is an error, not a silent mismatch."""
    text = (
        'title = "t"\nexpected_effect = "e"\nprior_gain = 0.1\nlevers = ["x"]\n'
        'languages = ["cpp"]\nplaybook = "p"\n[[preconditions]]\nfield = "nothing"\nmin = 1\n'
    )
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(InvalidInputError, match="'odd'"):
        load_directions(tmp_path)


def test_unknown_fields_weaken_a_match_and_measured_ones_exclude(toy: Toy) -> None:
    """A hardware tactic needs its counter; others may go on without one."""
    signature = _state(toy).focus
    base = {
        "id": "x",
        "title": "t",
        "expected_effect": "e",
        "prior_gain": 0.1,
        "levers": ("a",),
        "languages": ("cpp",),
        "targets": ("cpu",),
        "risks": ("r",),
        "references": ("r",),
        "fits": {},
        "misses": {},
        "playbook": "p",
    }

    def score(*conditions: dict[str, Any]) -> float:
        direction = Direction.model_validate({**base, "preconditions": conditions})
        return direction.match(signature).score

    assert score() == 1
    assert score({"field": "launch_count", "min": 9, "max": 9}) == 1
    assert score({"field": "launch_count", "min": 10}) == 0
    assert score({"field": "waves_per_sm", "max": 1}) == 0.5
    assert score({"field": "waves_per_sm", "max": 1, "measured": True}) == 0
    with pytest.raises(ValueError, match="is_in"):
        Precondition(field="bottleneck")


def test_every_direction_can_be_chosen_by_some_lever() -> None:
    """The catalogue is complete in itself: levers, languages and a playbook in each file."""
    for direction in load_directions().values():
        assert direction.levers
        assert direction.languages
        assert len(direction.playbook.split()) > 20
    assert "*" in load_directions()["exploration"].levers


def test_every_tag_of_every_solution_is_a_lever(repo_root: Any) -> None:
    """A knob whose direction does not exist would only ever be turned by exploration."""
    from kopt_harness.tunables import read_tunables

    levers = {lever for d in load_directions().values() for lever in d.levers}
    for config in sorted((repo_root / "kernels").glob("*/solutions/*/config.toml")):
        for name, tunable in read_tunables(config.parent).items():
            assert set(tunable.directions) <= levers, f"{config}: {name}"


def test_signals_are_data() -> None:
    """A signal of an unknown kind is refused: reports and memory rely on the list."""
    with pytest.raises(ValueError, match="kind"):
        Signal.model_validate({"kind": "boredom", "detail": "x"})
