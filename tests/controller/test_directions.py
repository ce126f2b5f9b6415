"""The catalogue: each direction complete, and exercised on both sides of its preconditions."""

from typing import Any

import pytest
from kopt_controller.directions import Direction, load_directions
from kopt_controller.state import Signature
from kopt_harness.errors import InvalidInputError
from kopt_harness.targets import list_targets

DIRECTIONS = load_directions()
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
