"""The catalogue: each direction complete, and exercised on both sides of its preconditions."""

from typing import Any, get_args

import pytest
from kopt_controller.directions import Direction, Precondition, load_directions
from kopt_controller.memory import Memory
from kopt_controller.policy import get_policy
from kopt_controller.state import Floor, Observation, Signature, State, derive_state
from kopt_controller.steering import STEER_FILE, Steer, append_steers
from kopt_controller.supervisor import Advice
from kopt_harness.diagnose import Bottleneck
from kopt_harness.errors import InvalidInputError
from kopt_harness.schema import Profile, ProfileDiagnosis, ProfiledKernel, SolutionRef
from kopt_harness.targets import list_targets

DIRECTIONS = load_directions()
POLICY = get_policy("match")
UNMEASURED: dict[str, Any] = {
    name: None for name, field in Signature.model_fields.items() if field.is_required()
} | {
    "regime": "n=1",
    "uuid": "u",
    "axes": {"n": 1},
    "workloads": 1,
    "bottleneck": "unknown",
    "basis": "none",
    "flop_per_byte": 1.0,
    "profiler": "none",
}


def _signature(fields: dict[str, Any]) -> Signature:
    return Signature.model_validate(UNMEASURED | fields)


def test_there_are_enough_and_all_are_known() -> None:
    """At least twelve; a new one comes with its examples, or does not load."""
    assert len(DIRECTIONS) >= 12


@pytest.mark.parametrize("name", sorted(DIRECTIONS))
def test_the_positive_example_fits_in_full(name: str) -> None:
    """Every precondition holds, none is merely unknown."""
    match = DIRECTIONS[name].match(_signature(DIRECTIONS[name].fits))
    assert match.score == 1, match.reason


@pytest.mark.parametrize("name", sorted(DIRECTIONS))
def test_the_negative_example_is_excluded(name: str) -> None:
    """By a measured field, or by the lack of one that must be measured."""
    match = DIRECTIONS[name].match(_signature(DIRECTIONS[name].misses))
    assert match.score == 0, match.reason


@pytest.mark.parametrize("name", sorted(DIRECTIONS))
def test_a_direction_is_complete(name: str) -> None:
    """Levers, languages, targets, risks, references, and a playbook that says something."""
    direction = DIRECTIONS[name]
    assert direction.levers
    assert direction.languages
    assert direction.risks
    assert direction.references
    assert len(direction.playbook.split()) > 20
    known = {name for target in list_targets() for name in (target.kind, target.name)}
    assert set(direction.targets) <= known
    assert direction.targets


def test_every_kind_of_limit_has_a_direction_on_every_kind_of_target() -> None:
    """Whatever the state says, something other than looking around fits."""
    for kind in ("cpu", "cuda"):
        for bottleneck in ("launch", "parallelism", "latency", "memory", "compute"):
            signature = _signature({"bottleneck": bottleneck, "distance_to_floor": 2.0})
            fitting = {
                direction.id
                for direction in DIRECTIONS.values()
                if direction.is_for(kind, kind) and direction.match(signature).score > 0
            }
            assert len(fitting - {"exploration"}) >= 2, (kind, bottleneck)


@pytest.mark.parametrize(
    ("signature", "offered", "not_offered"),
    [
        (
            {"bottleneck": "parallelism", "diagnosis": "underfill", "waves_per_sm": 0.11},
            {"parallelism", "tiling"},
            {"occupancy", "vectorisation", "warp-specialisation"},
        ),
        (
            {"bottleneck": "memory", "diagnosis": "uncoalesced", "occupancy_achieved": 0.3},
            {"memory-traffic", "vectorisation", "tiling"},
            {"latency-hiding", "parallelism", "reformulation"},
        ),
        (
            {"bottleneck": "memory", "diagnosis": "spill"},
            {"tiling", "occupancy"},
            {"vectorisation", "hardware", "parallelism"},
        ),
        (
            {"bottleneck": "latency", "diagnosis": "occupancy-registers", "waves_per_sm": 1.0},
            {"occupancy", "latency-hiding", "warp-specialisation"},
            {"parallelism", "vectorisation", "launch-overhead"},
        ),
        (
            {"bottleneck": "memory", "diagnosis": "shared-bank"},
            {"tiling", "vectorisation"},
            {"memory-traffic", "latency-hiding"},
        ),
    ],
)
def test_directions_see_what_the_profile_says(
    signature: dict[str, Any], offered: set[str], not_offered: set[str]
) -> None:
    """Two states of one class and two diagnoses are two different lists."""
    found = _signature(signature)
    fitting = {name for name, each in DIRECTIONS.items() if each.match(found).score > 0}
    assert offered <= fitting
    assert not not_offered & fitting


def test_a_diagnosis_that_nobody_made_weakens_no_match() -> None:
    """What only excludes is silent on a processor; a class that was not measured is not."""
    direction = DIRECTIONS["memory-traffic"]
    assert direction.match(_signature({"bottleneck": "memory"})).score == 1
    unknown = _signature({"bottleneck": "memory", "diagnosis": "unknown"})
    assert direction.match(unknown).score == 1
    assert direction.match(_signature({"diagnosis": "memory-dram"})).score < 1


@pytest.mark.parametrize("diagnosis", get_args(Bottleneck))
def test_no_diagnosis_is_left_without_a_direction(diagnosis: str) -> None:
    """Whatever the rules say of a kernel, something other than looking around is offered."""
    counters = {"compute_throughput_pct": 30.0, "memory_throughput_pct": 70.0, "waves_per_sm": 0.5}
    found = ProfileDiagnosis(bottleneck=diagnosis, limiter=None, evidence=(), headroom=None)
    kernel = ProfiledKernel(name="k", calls=1, total_us=9.0, share=1.0, metrics=counters)
    profile = Profile(
        profiler="test",
        solution=SolutionRef(name="s", definition="d", sha256="00"),
        target="h200",
        uuid="u",
        axes={},
        total_us=9.0,
        kernels=(kernel,),
        launches=1,
        diagnosis=found,
    )
    observation = Observation("all", 1, profile, 1000, 1000, Floor(3.0, "memory", "test"))
    focus = derive_state([observation]).focus
    fitting = {name for name, each in DIRECTIONS.items() if each.match(focus).score > 0}
    assert len(fitting - {"exploration"}) >= 1


def test_exclusions_name_diagnoses_that_there_are() -> None:
    """A misspelt one would exclude nothing."""
    conditions = [c for each in DIRECTIONS.values() for c in each.preconditions]
    named = {v for c in conditions if c.field == "diagnosis" for v in (*(c.not_in or ()),)}
    assert named <= set(get_args(Bottleneck))
    assert len(named) > 5
    with pytest.raises(ValueError, match="one of is_in, not_in"):
        Precondition(field="diagnosis", not_in=("spill",), is_in=("launch",))


@pytest.mark.parametrize("name", sorted(DIRECTIONS))
def test_every_direction_is_reached_in_a_round(name: str, toy: Any) -> None:
    """In the state that it is for, with an agent that has something for it alone."""
    state = _signature(DIRECTIONS[name].fits | {"time_share": 0.6})
    ranked = POLICY.rank(
        State(focus=state, regimes=(state,)),
        DIRECTIONS,
        Memory(),
        Advice((), {}, (), ask_person=False),
        "00",
    )
    assert name in [choice.id for choice in ranked]
    campaign = toy.campaign()
    append_steers(campaign.run.folder / STEER_FILE, [Steer(kind="recommend", value=name)])
    (result,) = campaign.execute().rounds
    standing = {each.id: each.standing for each in result.ranking}
    assert standing[name] in ("chosen", "empty", "excluded")
    assert (standing[name] == "excluded") == (
        not DIRECTIONS[name].is_for("cpu", "cpu")
        or DIRECTIONS[name].match(result.state.focus).score == 0
    )


def test_gpu_tactics_are_not_offered_on_a_cpu(toy: Any) -> None:
    """They are in the ranking, excluded, with the reason."""
    (result,) = toy.campaign().execute().rounds
    standing = {each.id: each for each in result.ranking}
    for name in ("occupancy", "hardware", "warp-specialisation"):
        assert standing[name].standing == "excluded"
        assert "not for cpu" in standing[name].reason


@pytest.mark.parametrize("table", ["fits", "misses"])
def test_an_example_of_an_unknown_field_is_refused(tmp_path: Any, table: str) -> None:
    """A misspelt field would make the example say nothing."""
    direction = DIRECTIONS["tiling"].model_dump()
    with pytest.raises(ValueError, match="launches"):
        Direction.model_validate(direction | {table: {"launches": 3}})
    (tmp_path / "half.toml").write_text('title = "t"\n')
    with pytest.raises(InvalidInputError, match="half"):
        load_directions(tmp_path)
