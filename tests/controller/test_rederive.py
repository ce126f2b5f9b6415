"""Regimes follow measured boundaries, and nothing else."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kopt_controller.rederive import COST_MODEL, MOST_REGIMES, rederive
from kopt_harness.regimes import Regime
from kopt_harness.schema import Workload

Toy = Any
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def _workloads(*sizes: int) -> tuple[Workload, ...]:
    return tuple(
        Workload(index=i, uuid=f"u{i}", axes={"n": n, "m": 1}) for i, n in enumerate(sizes)
    )


def _floor(workloads: tuple[Workload, ...]) -> dict[str, float]:
    return {w.uuid: 10.0 + 0.1 * w.axes["n"] for w in workloads}


def _rederive(workloads: tuple[Workload, ...], factor: dict[int, float], noise: float = 0.0) -> Any:
    rng, floor = random.Random(1), _floor(workloads)
    latency = {
        w.uuid: floor[w.uuid] * factor[w.axes["n"]] * (1 + rng.uniform(-noise, noise))
        for w in workloads
    }
    return rederive([Regime("all", workloads)], latency, floor, ("n", "m"))


def test_a_jump_begins_a_regime() -> None:
    """Three times over the floor from n=16 on: that is where it is cut, and said."""
    factor = {n: 1.2 if n < 16 else 3.0 for n in SIZES}
    low, high = _rederive(_workloads(*SIZES), factor, noise=0.03)
    assert [w.axes["n"] for w in low.workloads] == [1, 2, 4, 8]
    assert [w.axes["n"] for w in high.workloads] == [16, 32, 64, 128]
    assert low.name == "n=1..8,m=1"
    assert "change point over n after 8" in high.origin


def test_noise_cuts_nothing() -> None:
    """The same distance to the floor everywhere, within five per cent."""
    (only,) = _rederive(_workloads(*SIZES * 3), dict.fromkeys(SIZES, 2.0), noise=0.05)
    assert (only.name, only.origin) == ("all", COST_MODEL)


def test_one_bad_measurement_cuts_nothing() -> None:
    """Neither in the middle nor at the end of an axis."""
    for bad in (8, 128):
        factor = {n: 2.5 if n == bad else 1.5 for n in SIZES}
        assert len(_rederive(_workloads(*SIZES), factor)) == 1


def test_a_third_of_all_latency_stands_alone() -> None:
    """Whatever its distance to the floor."""
    workloads = _workloads(1, 2, 4, 900)
    rest, alone = _rederive(workloads, dict.fromkeys((1, 2, 4, 900), 2.0))
    assert [w.axes["n"] for w in alone.workloads] == [900]
    assert "outlier: 77% of all latency" in alone.origin
    assert rest.name == "n=1..4,m=1"


def test_without_all_latencies_nothing_changes() -> None:
    """A partial sweep is no basis."""
    workloads = _workloads(*SIZES)
    regimes = [Regime("small", workloads[:4]), Regime("large", workloads[4:])]
    floor = _floor(workloads)
    found = rederive(regimes, {"u0": 1.0}, floor, ("n",))
    assert [(each.name, each.origin) for each in found] == [
        ("small", COST_MODEL),
        ("large", COST_MODEL),
    ]


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.5, 1e4)), min_size=1, max_size=30))
def test_every_workload_stays_in_exactly_one_regime(given_: list[tuple[int, float]]) -> None:
    """Names are different, there are not too many, and equal input gives equal regimes."""
    workloads = _workloads(*(size for size, _ in given_))
    latency = {w.uuid: us for w, (_, us) in zip(workloads, given_, strict=True)}
    arguments = ([Regime("all", workloads)], latency, _floor(workloads), ("n",))
    found = rederive(*arguments)
    uuids = [w.uuid for each in found for w in each.workloads]
    assert sorted(uuids) == sorted(w.uuid for w in workloads)
    assert len(found) <= MOST_REGIMES
    assert rederive(*arguments) == found


def test_the_next_round_works_on_what_the_sweep_has_shown(toy: Toy) -> None:
    """The largest workload takes most of the time, and so is represented by itself."""
    device = toy.device._replace(
        latency_us=lambda s, w: (
            (50.0 if s.name == "plain" else 10.0) * (9.0 if w.axes["n"] == 2 else 1.0)
        )
    )
    first, second = toy.campaign(device, rounds=2).execute().rounds
    assert first.decision.label == "promote"
    assert all(signature.origin == COST_MODEL for signature in first.state.regimes)
    alone = [s for s in second.state.regimes if s.axes == {"n": 2}]
    assert [(s.workloads, "outlier" in s.origin) for s in alone] == [(1, True)]
    assert sum(s.workloads for s in second.state.regimes) == 4
    assert second.state.focus.axes == {"n": 2}


def test_a_named_gate_is_left_alone(toy: Toy) -> None:
    """Who selects workloads gets these workloads."""
    rounds = toy.campaign(rounds=2, gate_workloads=["0", "3"]).execute().rounds
    for result in rounds:
        assert {s.axes["n"] for s in result.state.regimes} == {1, 64}
