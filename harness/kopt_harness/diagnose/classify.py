"""Figures to a signature: one bottleneck of a fixed list, with the numbers that decided.

The rules are asked in order and the first that holds is the answer. All they compare with
stands in ``data/thresholds.toml``. Where the figures that a rule needs are not in the profile
it does not hold; where none holds the answer is ``unknown``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import median
from typing import Literal, NamedTuple

from .kernels import Figures, Kernel
from .record import Timeline
from .tables import threshold

__all__ = ["Bottleneck", "Evidence", "Signature", "classify", "classify_kernel"]

Bottleneck = Literal[
    "launch",
    "latency",
    "underfill",
    "occupancy-registers",
    "occupancy-smem",
    "memory-dram",
    "memory-l2",
    "uncoalesced",
    "shared-bank",
    "compute-tensor",
    "compute-fp",
    "spill",
    "tail-wave",
    "host",
    "balanced",
    "unknown",
]


class Evidence(NamedTuple):
    """A number and what it was compared with."""

    metric: str
    value: float
    threshold: float
    source: str
    """Of the threshold."""


class Signature(NamedTuple):
    """What limits a kernel, or all of a profile."""

    bottleneck: Bottleneck
    limiter: str | None
    """The resource in words; None where it is unknown."""
    evidence: tuple[Evidence, ...]
    headroom: float | None
    """Share of the busiest unit's peak, or of the time, that is not used: 0 to 1."""


_PIPE = re.compile(r"(?P<name>\w+(?: \([^)]*\))?) is the highest-utilized pipeline")
_BY_REGISTERS = "limited by the number of required registers"
_BY_SMEM = "limited by the required amount of shared memory"


class _Look:
    """The figures of a launch, compared with thresholds; keeps what decided."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self.compute = figures.get("compute_pct")
        self.memory = figures.get("memory_pct")

    @property
    def busiest(self) -> float | None:
        """The higher of the two throughputs; None where one is unknown and the other is low."""
        known = [x for x in (self.compute, self.memory) if x is not None]
        if len(known) == 2 or (known and known[0] >= threshold("busy_pct").value):
            return max(known)
        return None

    @property
    def is_busy(self) -> bool:
        """Whether one of the throughputs is over its threshold."""
        return self.busiest is not None and self.busiest >= threshold("busy_pct").value

    def evidence(self, metric: str, name: str, value: float | None = None) -> tuple[Evidence, ...]:
        """A row, if the figure is known."""
        found = self.figures.get(metric) if value is None else value
        limit = threshold(name)
        return () if found is None else (Evidence(metric, found, limit.value, limit.source),)

    def throughputs(self) -> tuple[Evidence, ...]:
        """Both throughputs against the same threshold."""
        return self.evidence("compute_pct", "busy_pct") + self.evidence("memory_pct", "busy_pct")

    def at_least(self, metric: str, name: str | None = None) -> bool:
        """Whether a figure is known and at its threshold or over it."""
        value = self.figures.get(metric)
        return value is not None and value >= threshold(name or metric).value

    def signature(
        self, bottleneck: Bottleneck, limiter: str | None, *evidence: tuple[Evidence, ...]
    ) -> Signature:
        """The answer, with the headroom that the throughputs leave."""
        rows = tuple(row for rows in evidence for row in rows)
        room = None if self.busiest is None else max(0.0, 1 - self.busiest / 100)
        return Signature(bottleneck, limiter, rows, room)


def classify_kernel(figures: Figures) -> Signature:
    """What limits one launch."""
    look = _Look(figures)
    for rule in _RULES:
        found = rule(look)
        if found is not None:
            return found
    return look.signature("unknown", None, look.throughputs())


def classify(kernels: Sequence[Kernel], timeline: Timeline | None) -> Signature:
    """What limits everything in a profile: the device's gaps, a chain, or the first kernel."""
    return _idle(kernels, timeline) or _chain(kernels) or classify_kernel(kernels[0].main.figures)


def _durations(kernels: Sequence[Kernel]) -> list[tuple[float, int]]:
    """Duration and number of launches of each shape whose time is known."""
    shapes = [shape for kernel in kernels for shape in kernel.shapes]
    return [(s.total_us / s.launches, s.launches) for s in shapes if s.total_us is not None]


def _idle(kernels: Sequence[Kernel], timeline: Timeline | None) -> Signature | None:
    """The device waits for the host most of the time."""
    times = _durations(kernels)
    if timeline is None or timeline.span_us <= 0 or not times:
        return None
    share = 1 - min(1.0, timeline.busy_us / timeline.span_us)
    limit, short, many = (threshold(n) for n in ("idle_share", "short_launch_us", "many_kernels"))
    if share < limit.value:
        return None
    typical = median(us for us, count in times for _ in range(min(count, 1000)))
    launches = sum(k.launches for k in kernels)
    rows = (
        Evidence("idle_share", share, limit.value, limit.source),
        Evidence("median_launch_us", typical, short.value, short.source),
        Evidence("launches", launches, many.value, many.source),
    )
    if typical < short.value and launches >= many.value:
        return Signature("launch", "launches one after the other", rows, share)
    return Signature("host", "the device waits for the host", rows, share)


def _chain(kernels: Sequence[Kernel]) -> Signature | None:
    """Many short kernels, none of which has much of the time."""
    times = _durations(kernels)
    whole = sum(us * count for us, count in times)
    dominant, many = threshold("dominant_share"), threshold("many_kernels")
    share = kernels[0].share
    if len(kernels) < many.value or not whole or share is None or share >= dominant.value:
        return None
    limit, part = threshold("short_launch_us"), threshold("short_share")
    short = sum(us * count for us, count in times if us < limit.value) / whole
    if short < part.value:
        return None
    launches = sum(k.launches for k in kernels)
    rows = (
        Evidence("kernels", len(kernels), many.value, many.source),
        Evidence("share", share, dominant.value, dominant.source),
        Evidence("short_share", short, part.value, f"{part.source} (under {limit.value:g} us)"),
    )
    return Signature("launch", f"{launches} launches one after the other", rows, short)


def _spill(look: _Look) -> Signature | None:
    spills = look.figures.get("spills")
    overhead = look.figures.get("spill_overhead_pct")
    if not spills or (overhead is not None and not look.at_least("spill_overhead_pct")):
        return None
    rows = look.evidence("spills", "spills")
    return look.signature(
        "spill", "registers", rows, look.evidence("spill_overhead_pct", "spill_overhead_pct")
    )


def _underfill(look: _Look) -> Signature | None:
    waves, blocks = look.figures.get("waves_per_sm"), look.figures.get("blocks_per_sm")
    metric, value = ("waves_per_sm", waves) if waves is not None else ("blocks_per_sm", blocks)
    if value is None or value >= threshold("full_waves").value or look.is_busy:
        return None
    rows = look.evidence(metric, "full_waves") + look.throughputs()
    text = _grid_text(look.figures, value, metric)
    us = look.figures.get("duration_us")
    if us is not None and us < threshold("short_launch_us").value:
        rows += look.evidence("duration_us", "short_launch_us")
        text += f"; at {us:.3g} us its launch counts as well"
    return look.signature("underfill", text, rows)


def _grid_text(figures: Figures, value: float, metric: str) -> str:
    grid, sms = figures.launch.grid, figures.get("sm_count")
    blocks = "the grid" if grid is None else f"a grid of {grid[0] * grid[1] * grid[2]} blocks"
    device = "" if sms is None else f" on {sms:g} SMs"
    part = f"{value:.2f} of a wave" if metric == "waves_per_sm" else f"{value:.2f} blocks an SM"
    return f"{blocks}{device} is {part}"


def _balanced(look: _Look) -> Signature | None:
    busy, gap = threshold("busy_pct").value, threshold("balanced_gap_pct")
    if look.compute is None or look.memory is None or min(look.compute, look.memory) < busy:
        return None
    distance = abs(look.compute - look.memory)
    if distance >= gap.value:
        return None
    row = Evidence("throughput_gap_pct", distance, gap.value, gap.source)
    return look.signature("balanced", "compute and memory alike", look.throughputs(), (row,))


def _traffic(look: _Look) -> Signature | None:
    """Accesses that move more than they need, unless compute is what is busy."""
    if look.is_busy and (look.compute or 0.0) > (look.memory or 0.0):
        return None
    used = look.figures.get("sector_bytes_used")
    if used is not None and used <= threshold("sector_bytes_used").value:
        rows = look.evidence("sector_bytes_used", "sector_bytes_used")
        return look.signature("uncoalesced", "global memory sectors", rows)
    if look.at_least("uncoalesced_share_pct"):
        rows = look.evidence("uncoalesced_share_pct", "uncoalesced_share_pct")
        return look.signature("uncoalesced", "global memory sectors", rows)
    if look.at_least("bank_conflict_share_pct"):
        rows = look.evidence("bank_conflict_share_pct", "bank_conflict_share_pct")
        return look.signature("shared-bank", "shared memory banks", rows)
    return None


def _memory(look: _Look) -> Signature | None:
    memory = look.memory
    if memory is None or not look.is_busy or (look.compute or 0.0) > memory:
        return None
    share = threshold("limiter_share")
    dram, l2 = look.figures.get("dram_pct"), look.figures.get("l2_pct")
    levels: tuple[tuple[Bottleneck, str, float | None], ...] = (
        ("memory-dram", "dram_pct", dram),
        ("memory-l2", "l2_pct", l2),
    )
    for bottleneck, metric, value in levels:
        if value is not None and value >= share.value * memory:
            row = Evidence(metric, value, share.value * memory, share.source)
            limiter = "DRAM bandwidth" if metric == "dram_pct" else "L2 bandwidth"
            return look.signature(bottleneck, limiter, look.throughputs(), (row,))
    if dram is None and l2 is None:
        text = "memory; the profile does not say which level"
        return look.signature("memory-dram", text, look.throughputs())
    text = "memory pipes of the SM (L1/TEX and shared memory)"
    return look.signature("unknown", text, look.throughputs())


def _compute(look: _Look) -> Signature | None:
    if not look.is_busy:
        return None
    match = _PIPE.search(look.figures.advice)
    pipe = match["name"] if match else None
    if look.at_least("tensor_pct", "pipe_pct"):
        rows = look.evidence("tensor_pct", "pipe_pct")
        return look.signature("compute-tensor", "tensor pipe", look.throughputs(), rows)
    rows = look.evidence("top_pipe_pct", "pipe_pct")
    if pipe is not None:
        is_tensor = "tensor" in pipe.lower()
        name: Bottleneck = "compute-tensor" if is_tensor else "compute-fp"
        return look.signature(name, f"{pipe} pipe", look.throughputs(), rows)
    known = {name: look.figures.get(name) for name in ("fma_pct", "alu_pct")}
    busiest = max(
        (n for n in known if known[n] is not None), key=lambda n: known[n] or 0.0, default=None
    )
    if busiest is None:
        text = "compute; the profile does not say which pipe"
        return look.signature("compute-fp", text, look.throughputs())
    rows = look.evidence(busiest, "pipe_pct")
    text = f"{busiest.removesuffix('_pct')} pipe"
    return look.signature("compute-fp", text, look.throughputs(), rows)


def _launch(look: _Look) -> Signature | None:
    us = look.figures.get("duration_us")
    if us is None or us >= threshold("launch_us").value or not look.figures.launch.on_device:
        return None
    return look.signature(
        "launch", "the launch itself", look.evidence("duration_us", "launch_us"), look.throughputs()
    )


def _tail(look: _Look) -> Signature | None:
    waves, limit = look.figures.get("waves_per_sm"), threshold("tail_loss")
    if waves is None or waves <= 0 or look.busiest is None:
        return None
    loss = 1 - waves / -(-waves // 1)
    if loss < limit.value:
        return None
    rows = look.evidence("waves_per_sm", "full_waves")
    text = f"the last of {-(-waves // 1):.0f} waves is part empty"
    row = Evidence("tail_loss", loss, limit.value, limit.source)
    return look.signature("tail-wave", text, (row,), rows, look.throughputs())


def _occupancy(look: _Look) -> Signature | None:
    occupancy, starved = (
        look.figures.get("occupancy_theoretical_pct"),
        look.figures.get("no_eligible_pct"),
    )
    if occupancy is None or occupancy > threshold("occupancy_pct").value:
        return None
    if starved is not None and starved < threshold("no_eligible_pct").value:
        return None
    limiter = _block_limiter(look.figures)
    if limiter is None:
        return None
    rows = look.evidence("occupancy_theoretical_pct", "occupancy_pct")
    rows += look.evidence("no_eligible_pct", "no_eligible_pct") + look.throughputs()
    if limiter == "registers":
        return look.signature("occupancy-registers", "registers per thread", rows)
    return look.signature("occupancy-smem", "shared memory per block", rows)


def _block_limiter(figures: Figures) -> Literal["registers", "smem"] | None:
    """What keeps more blocks off an SM; None if it is neither, or not known."""
    registers, smem = figures.get("limit_registers_blocks"), figures.get("limit_smem_blocks")
    if registers is None or smem is None:
        if _BY_REGISTERS in figures.advice:
            return "registers"
        return "smem" if _BY_SMEM in figures.advice else None
    others = (figures.get("limit_warps_blocks"), figures.get("limit_sm_blocks"))
    least = min(x for x in (registers, smem, *others) if x is not None)
    if registers == least:
        return "registers"
    return "smem" if smem == least else None


def _latency(look: _Look) -> Signature | None:
    if look.busiest is None or look.is_busy:
        return None
    return look.signature(
        "latency",
        "neither throughput: warps wait",
        look.throughputs(),
        look.evidence("no_eligible_pct", "no_eligible_pct"),
    )


_RULES: tuple[Callable[[_Look], Signature | None], ...] = (
    _spill,
    _underfill,
    _traffic,
    _balanced,
    _memory,
    _compute,
    _launch,
    _tail,
    _occupancy,
    _latency,
)
