"""From profiles to a signature: what was measured, and nothing else."""

from typing import Any

import pytest
from kopt_controller.state import Floor, Observation, derive_state, floor_of
from kopt_harness.schema import (
    Profile,
    ProfileDiagnosis,
    ProfiledKernel,
    ProfileEvidence,
    SolutionRef,
)
from kopt_harness.targets import get_target

UNKNOWN = Floor(None, None, "unknown")


def _diagnosis(bottleneck: str) -> ProfileDiagnosis:
    row = ProfileEvidence(metric="waves_per_sm", value=0.11, threshold=1.0, source="test")
    return ProfileDiagnosis(
        bottleneck=bottleneck, limiter="a small grid", evidence=(row,), headroom=0.97
    )


def _observation(
    *,
    regime: str = "n=1",
    total_us: float | None = 100.0,
    shares: tuple[float, ...] = (1.0,),
    metrics: dict[str, float] | None = None,
    floor: Floor = UNKNOWN,
    workloads: int = 1,
    flop_per_byte: float = 1.0,
    diagnosis: str | None = None,
) -> Observation:
    kernels = tuple(
        ProfiledKernel(
            name=f"k{i}",
            calls=1,
            total_us=(total_us or 0) * share,
            share=share,
            metrics=metrics or {},
        )
        for i, share in enumerate(shares)
    )
    profile = Profile(
        profiler="test",
        solution=SolutionRef(name="s", definition="d", sha256="00"),
        target="cpu",
        uuid=f"uuid-{regime}",
        axes={"n": 1},
        total_us=total_us,
        kernels=kernels if total_us is not None else (),
        launches=len(shares) if total_us is not None else None,
        diagnosis=None if diagnosis is None else _diagnosis(diagnosis),
    )
    return Observation(regime, workloads, profile, 1000, int(1000 * flop_per_byte), floor)


COUNTERS = {"compute_throughput_pct": 20.0, "memory_throughput_pct": 30.0}


@pytest.mark.parametrize(
    ("observation", "bottleneck", "basis"),
    [
        (_observation(shares=(0.4, 0.3, 0.2, 0.1)), "launch", "launches"),
        (_observation(shares=(0.9, 0.04, 0.03, 0.03)), "memory", "cost model"),
        (_observation(flop_per_byte=100), "compute", "cost model"),
        (_observation(total_us=None), "unknown", "none"),
        (_observation(floor=Floor(20.0, "memory", "x")), "latency", "floor"),
        (_observation(floor=Floor(90.0, "memory", "x")), "memory", "floor"),
        (_observation(floor=Floor(90.0, "compute", "x")), "compute", "floor"),
        (_observation(metrics=COUNTERS), "latency", "counters"),
        (_observation(metrics=COUNTERS | {"memory_throughput_pct": 85.0}), "memory", "counters"),
        (_observation(metrics=COUNTERS | {"compute_throughput_pct": 85.0}), "compute", "counters"),
        (_observation(metrics=COUNTERS | {"waves_per_sm": 0.3}), "parallelism", "counters"),
    ],
)
def test_the_bottleneck_names_its_basis(
    observation: Observation, bottleneck: str, basis: str
) -> None:
    """Counters before the shape of the profile, before the floor, before the cost model."""
    focus = derive_state([observation]).focus
    assert (focus.bottleneck, focus.basis) == (bottleneck, basis)


BUSY = {"compute_throughput_pct": 20.0, "memory_throughput_pct": 85.0, "waves_per_sm": 0.9}


@pytest.mark.parametrize(
    ("diagnosis", "bottleneck"),
    [
        ("underfill", "parallelism"),
        ("tail-wave", "parallelism"),
        ("occupancy-registers", "latency"),
        ("uncoalesced", "memory"),
        ("compute-tensor", "compute"),
        ("host", "launch"),
    ],
)
def test_a_diagnosis_decides_where_there_are_counters(diagnosis: str, bottleneck: str) -> None:
    """Its class, its resource, its numbers and its headroom are in the signature."""
    focus = derive_state([_observation(metrics=COUNTERS, diagnosis=diagnosis)]).focus
    assert (focus.bottleneck, focus.basis) == (bottleneck, "counters")
    assert (focus.diagnosis, focus.limiter, focus.headroom) == (diagnosis, "a small grid", 0.97)
    assert focus.limiting_resource == "a small grid"
    assert [row.metric for row in focus.evidence] == ["waves_per_sm"]


def test_a_busy_grid_of_less_than_a_wave_does_not_lack_parallelism() -> None:
    """Persistent kernels are like that: the diagnosis knows, the bare number does not."""
    persistent = _observation(metrics=BUSY, diagnosis="memory-dram")
    assert derive_state([persistent]).focus.bottleneck == "memory"
    assert derive_state([_observation(metrics=BUSY)]).focus.bottleneck == "parallelism"


@pytest.mark.parametrize("diagnosis", ["spill", "balanced", "unknown"])
def test_what_belongs_to_no_class_is_left_to_the_throughputs(diagnosis: str) -> None:
    """The finer answer stays in the signature all the same."""
    metrics = BUSY | {"waves_per_sm": 4.0}
    focus = derive_state([_observation(metrics=metrics, diagnosis=diagnosis)]).focus
    assert (focus.bottleneck, focus.diagnosis) == ("memory", diagnosis)


def test_times_without_counters_do_not_decide_the_class() -> None:
    """A short kernel is ``launch`` to the diagnosis; the floor still says what is far away."""
    observation = _observation(floor=Floor(20.0, "memory", "x"), diagnosis="launch")
    focus = derive_state([observation]).focus
    assert (focus.bottleneck, focus.basis, focus.diagnosis) == ("latency", "floor", "launch")


def test_latencies_of_a_sweep_count_before_the_profile() -> None:
    """Shares and distances are of what was measured in pairs, once it was."""
    small = _observation(regime="a", total_us=10.0, floor=Floor(5.0, "memory", "x"), workloads=3)
    large = _observation(regime="b", total_us=90.0, floor=Floor(50.0, "memory", "x"))
    state = derive_state(
        [
            small._replace(latency_us=20.0, regime_us=60.0),
            large._replace(latency_us=60.0, regime_us=60.0),
        ]
    )
    by_regime = {signature.regime: signature for signature in state.regimes}
    assert by_regime["a"].time_share == pytest.approx(0.5)
    assert (by_regime["a"].distance_to_floor, by_regime["a"].latency_us) == (4.0, 20.0)
    assert by_regime["b"].distance_to_floor == pytest.approx(1.2)
    half = derive_state([small._replace(regime_us=60.0), large])
    assert half.regimes[0].time_share == pytest.approx(0.75), "a share of what is known of all"


def test_what_was_not_measured_is_null() -> None:
    """No counter, no number; the fields are there all the same."""
    document = derive_state([_observation()]).document()
    for field in (
        "occupancy_theoretical",
        "occupancy_achieved",
        "compute_throughput",
        "memory_throughput",
        "waves_per_sm",
        "spill_bytes",
        "distance_to_floor",
    ):
        assert document[field] is None
    assert document["launch_count"] == 1
    assert document["dominant_kernel"] == "k0"


def test_counters_become_shares() -> None:
    """Percent of the profiler are 0 to 1 in the signature."""
    metrics = COUNTERS | {"achieved_occupancy_pct": 25.0, "theoretical_occupancy_pct": 50.0}
    focus = derive_state([_observation(metrics=metrics)]).focus
    assert (focus.occupancy_achieved, focus.occupancy_theoretical) == (0.25, 0.5)
    assert (focus.compute_throughput, focus.memory_throughput) == (0.2, 0.3)


def test_the_focus_is_where_time_can_be_won() -> None:
    """A regime at its floor is no focus, even with most of the time; weights are workloads."""
    at_floor = _observation(regime="a", total_us=900.0, floor=Floor(890.0, "memory", "x"))
    far = _observation(regime="b", total_us=100.0, floor=Floor(10.0, "memory", "x"))
    assert derive_state([at_floor, far]).focus.regime == "b"
    many = _observation(regime="c", total_us=10.0, workloads=99)
    few = _observation(regime="d", total_us=100.0, workloads=1)
    state = derive_state([few, many])
    assert state.focus.regime == "c"
    assert [s.regime for s in state.regimes] == ["c", "d"]
    assert sum(s.time_share or 0 for s in state.regimes) == pytest.approx(1)


def test_one_unprofiled_regime_leaves_shares_open() -> None:
    """A share of a total that nobody knows is null."""
    state = derive_state([_observation(regime="a"), _observation(regime="b", total_us=None)])
    assert [signature.time_share for signature in state.regimes] == [None, None]


def test_floors_come_from_the_target_or_not_at_all() -> None:
    """An arbitrary processor has no known bandwidth; a GPU's floor is the slower resource."""
    assert floor_of(1000, 1000, get_target("cpu")).us is None
    target: Any = get_target("h200")
    copy = target.copy_gbps.value
    launch = floor_of(1000, 1000, target)
    assert (launch.us, launch.resource) == (target.launch_us.value, "launch")
    assert set(launch.parts_us) == {"memory", "compute", "launch"}
    memory = floor_of(10**9, 1, target)
    assert memory.resource == "memory"
    assert memory.us == pytest.approx(1e6 / copy)
    compute = floor_of(1, 10**15, target)
    assert compute.resource == "compute"
    assert compute.us is not None
    assert compute.us > 100
