"""The state of an incumbent: one signature for each regime, and the regime to work on.

A pure function of profiles, the cost model and what is known of the target. What nobody has
measured is null; the bottleneck class says from what it was derived (``basis``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kopt_harness.schema import Model, Profile, ProfileDiagnosis, ProfiledKernel, ProfileEvidence
from kopt_harness.targets import Target

__all__ = ["Bottleneck", "Floor", "Observation", "Signature", "State", "derive_state", "floor_of"]

Bottleneck = Literal["launch", "parallelism", "latency", "memory", "compute", "unknown"]

MANY_LAUNCHES = 4
"""From here on a call is a sequence of operators, each reading what the one before wrote."""
DOMINANT_SHARE = 0.8
"""A kernel with this share of the time is the call; what is beside it hardly matters."""
NEAR_FLOOR = 1.5
"""Within this factor of its floor, a call is limited by what the floor is made of."""
BUSY_PERCENT = 60.0
"""Share of a unit's peak throughput from which profilers call it the limiter."""
LOW_INTENSITY_FLOP_PER_BYTE = 4.0
"""Below this, memory limits first on any processor or GPU of the last ten years."""


_COARSE: Mapping[str, Bottleneck] = {
    "launch": "launch",
    "host": "launch",
    "underfill": "parallelism",
    "tail-wave": "parallelism",
    "latency": "latency",
    "occupancy-registers": "latency",
    "occupancy-smem": "latency",
    "memory-dram": "memory",
    "memory-l2": "memory",
    "uncoalesced": "memory",
    "shared-bank": "memory",
    "compute-tensor": "compute",
    "compute-fp": "compute",
}
"""Class of each bottleneck of a diagnosis. Spills and balanced kernels belong to none: there the
throughputs decide."""


class Floor(NamedTuple):
    """The least time that a workload can take on a target."""

    us: float | None
    """Null where the target's figures are unknown."""
    resource: Literal["memory", "compute", "launch"] | None
    source: str
    """Where the figures come from."""
    parts_us: Mapping[str, float] = {}  # a NamedTuple's default, never changed
    """What each resource alone would take, where its figure is known."""


class Observation(NamedTuple):
    """What is known of the incumbent in one regime."""

    regime: str
    workloads: int
    """Workloads of the definition in this regime."""
    profile: Profile
    """On a representative of the regime."""
    cost_bytes: int
    flops: int
    floor: Floor
    origin: str = "cost model"
    """Why it is a regime."""
    latency_us: float | None = None
    """Of the representative, as the last sweep has timed it beside another solution."""
    regime_us: float | None = None
    """The same of all workloads of the regime together."""


class Signature(Model):
    """One regime of one incumbent."""

    regime: str
    uuid: str
    """The representative that was profiled."""
    axes: dict[str, int]
    workloads: int
    """In this regime."""
    total_us: float | None
    """Of the representative, under the profiler."""
    time_share: float | None
    """Of all regimes together: by the latencies of a sweep where there was one, else by the
    profiles, each weighted with its workloads."""
    dominant_kernel: str | None
    dominant_share: float | None
    bottleneck: Bottleneck
    basis: Literal["counters", "launches", "floor", "cost model", "none"]
    """What the bottleneck class was derived from."""
    limiting_resource: str | None
    occupancy_theoretical: float | None
    """0 to 1; null without counters, as are the next five."""
    occupancy_achieved: float | None
    compute_throughput: float | None
    """Share of peak, 0 to 1."""
    memory_throughput: float | None
    """Share of peak, 0 to 1."""
    waves_per_sm: float | None
    spill_bytes: float | None
    launch_count: int | None
    floor_us: float | None
    distance_to_floor: float | None
    """Time over floor; 1 is the floor itself. The latency of a sweep counts before that of a
    profile."""
    flop_per_byte: float
    profiler: str
    origin: str = "cost model"
    """Why it is a regime: the cost model, a change point of measured latencies, an outlier."""
    latency_us: float | None = None
    """Of the representative in the last sweep; null before the first."""
    floors_us: dict[str, float] = {}
    """What memory, compute and launch alone would take, where the target's figures are known."""
    diagnosis: str | None = None
    """Bottleneck by the rules of ``kopt diagnose``, finer than ``bottleneck``; null where the
    profile has nothing for them."""
    limiter: str | None = None
    """The resource that the diagnosis names."""
    evidence: tuple[ProfileEvidence, ...] = ()
    """The numbers behind the diagnosis, each with its threshold."""
    headroom: float | None = None
    """Share of the busiest unit's peak, or of the time, that the diagnosis says is not used."""


class State(Model):
    """All regimes of an incumbent."""

    focus: Signature
    """The regime in which most time can be won."""
    regimes: tuple[Signature, ...]
    """Largest share of the time first."""

    def document(self) -> dict[str, Any]:
        """The focused signature, with all of them under ``regimes``."""
        return {
            **self.focus.model_dump(mode="json"),
            "regimes": [signature.model_dump(mode="json") for signature in self.regimes],
        }


def floor_of(cost_bytes: int, flops: int, target: Target) -> Floor:
    """The floor of a workload: compulsory traffic, arithmetic or a launch, the longest of them.

    Args:
        cost_bytes: Compulsory bytes.
        flops: Floating-point operations.
        target: Its copy bandwidth and the highest of its peaks count, so the floor is a
            lower bound.
    """
    if target.copy_gbps is None:
        return Floor(None, None, f"the bandwidth of {target.description} is unknown")
    figure = target.copy_gbps
    parts: dict[Literal["memory", "compute", "launch"], tuple[float, str]] = {
        "memory": (
            cost_bytes / figure.value / 1e3,
            f"compulsory bytes at {figure.value:g} GB/s ({figure.source})",
        )
    }
    peak = max(target.peak_tflops.values(), key=lambda figure: figure.value, default=None)
    if peak is not None:
        source = f"flops at {peak.value:g} TFLOP/s ({peak.source})"
        parts["compute"] = (flops / peak.value / 1e6, source)
    if target.launch_us is not None:
        source = f"a launch of {target.launch_us.value:g} us ({target.launch_us.source})"
        parts["launch"] = (target.launch_us.value, source)
    highest = max(parts, key=lambda name: parts[name][0])
    us, source = parts[highest]
    return Floor(us, highest, source, {name: us for name, (us, _) in parts.items()})


def derive_state(observations: Sequence[Observation]) -> State:
    """The state out of what was observed; at least one observation."""
    weights = [o.regime_us for o in observations]
    if None in weights:
        weights = [
            None if o.profile.total_us is None else o.profile.total_us * o.workloads
            for o in observations
        ]
    known = [weight for weight in weights if weight is not None]
    total = sum(known) if len(known) == len(weights) else 0.0
    signatures = [
        _signature(o, weight / total if weight is not None and total > 0 else None)
        for o, weight in zip(observations, weights, strict=True)
    ]
    signatures.sort(key=lambda s: (-(s.time_share or 0.0), s.uuid))
    return State(focus=max(signatures, key=_winnable), regimes=tuple(signatures))


def _winnable(signature: Signature) -> float:
    """Share of all time that lies above the floor; without a floor, all of it may."""
    share = signature.time_share or 0.0
    distance = signature.distance_to_floor
    return share if distance is None else share * max(0.0, 1 - 1 / max(distance, 1.0))


class _Class(NamedTuple):
    bottleneck: Bottleneck
    basis: Literal["counters", "launches", "floor", "cost model", "none"]
    resource: str | None


def _signature(o: Observation, time_share: float | None) -> Signature:
    profile = o.profile
    dominant = max(profile.kernels, key=lambda k: k.total_us, default=None)
    metrics = {} if dominant is None else dominant.metrics
    floor_us = o.floor.us
    took_us = profile.total_us if o.latency_us is None else o.latency_us
    distance = took_us / floor_us if took_us and floor_us else None
    diagnosis = profile.diagnosis
    found = _classify(o, dominant, distance)
    return Signature(
        regime=o.regime,
        uuid=profile.uuid,
        axes=profile.axes,
        workloads=o.workloads,
        total_us=profile.total_us,
        time_share=time_share,
        dominant_kernel=None if dominant is None else dominant.name,
        dominant_share=None if dominant is None else dominant.share,
        bottleneck=found.bottleneck,
        basis=found.basis,
        limiting_resource=found.resource,
        occupancy_theoretical=_share(metrics.get("theoretical_occupancy_pct")),
        occupancy_achieved=_share(metrics.get("achieved_occupancy_pct")),
        compute_throughput=_share(metrics.get("compute_throughput_pct")),
        memory_throughput=_share(metrics.get("memory_throughput_pct")),
        waves_per_sm=metrics.get("waves_per_sm"),
        spill_bytes=metrics.get("spill_bytes"),
        launch_count=profile.launches,
        floor_us=floor_us,
        distance_to_floor=distance,
        flop_per_byte=o.flops / max(o.cost_bytes, 1),
        profiler=profile.profiler,
        origin=o.origin,
        latency_us=o.latency_us,
        floors_us=dict(o.floor.parts_us),
        diagnosis=None if diagnosis is None else diagnosis.bottleneck,
        limiter=None if diagnosis is None else diagnosis.limiter,
        evidence=() if diagnosis is None else diagnosis.evidence,
        headroom=None if diagnosis is None else diagnosis.headroom,
    )


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _classify(o: Observation, dominant: ProfiledKernel | None, distance: float | None) -> _Class:
    """Counters first, then the shape of the profile, then the floor, then the cost model."""
    if dominant is not None and {"compute_throughput_pct", "memory_throughput_pct"} <= set(
        dominant.metrics
    ):
        return _by_diagnosis(o.profile.diagnosis) or _by_counters(dominant.metrics)
    many = (o.profile.launches or 0) >= MANY_LAUNCHES
    if many and (dominant is None or dominant.share < DOMINANT_SHARE):
        return _Class("launch", "launches", "operators one after the other")
    if distance is not None and distance > NEAR_FLOOR:
        return _Class("latency", "floor", "neither bandwidth nor arithmetic")
    if distance is not None:
        return _Class(o.floor.resource or "memory", "floor", o.floor.resource)
    return _by_cost(o)


def _by_cost(o: Observation) -> _Class:
    """The weakest basis: what a processor would wait for if it did nothing but this work."""
    if o.profile.total_us is None:
        return _Class("unknown", "none", None)
    if o.flops < LOW_INTENSITY_FLOP_PER_BYTE * o.cost_bytes:
        return _Class("memory", "cost model", "memory")
    return _Class("compute", "cost model", "arithmetic")


def _by_diagnosis(diagnosis: ProfileDiagnosis | None) -> _Class | None:
    """None where the rules have no answer, or one that says nothing of a class."""
    if diagnosis is None or diagnosis.bottleneck not in _COARSE:
        return None
    return _Class(_COARSE[diagnosis.bottleneck], "counters", diagnosis.limiter)


def _by_counters(metrics: dict[str, float]) -> _Class:
    compute, memory = metrics["compute_throughput_pct"], metrics["memory_throughput_pct"]
    if metrics.get("waves_per_sm", 1.0) < 1:
        return _Class("parallelism", "counters", "the grid does not fill the device")
    if max(compute, memory) < BUSY_PERCENT:
        return _Class("latency", "counters", "neither bandwidth nor arithmetic")
    if memory >= compute:
        return _Class("memory", "counters", "memory")
    return _Class("compute", "counters", "arithmetic")
