"""Simulated samples whose true ratio is known: what the statistics are tested on.

A model makes the times of all calls of a comparison: ``workloads`` kernels whose latencies
span decades, blocks one after the other, four slots each. What both solutions share (drift,
a clock that steps) and what they do not (outliers, modes, processes) are told apart, since
the first must cancel and the second must widen the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kopt_harness.schema import BlockOrder, PairedBlock

from .stats import Levels

__all__ = ["MODELS", "NoiseModel"]

_Array = NDArray[np.float64]

_ORDERS: tuple[BlockOrder, BlockOrder] = ("abba", "baab")
_SPAN = 3.0
"""Decades from the shortest workload to the longest."""


@dataclass(frozen=True)
class NoiseModel:
    """How calls vary; every field is a share of a call's time."""

    noise: float = 0.02
    """Standard deviation of a call."""
    skew: float = 0.0
    """Standard deviation of a factor that is lognormal: long tails to the right."""
    shared_slope: float = 0.0
    """Drift of both from one block to the next, linear, as happens in a slot to a quarter."""
    shared_walk: float = 0.0
    """Standard deviation of a step of a random walk of both, from slot to slot."""
    shared_step: float = 0.0
    """Half of the blocks, at random, take longer by this: a clock that steps."""
    outliers: float = 0.0
    """Probability that a call takes 2 to 10 times as long."""
    bursts: float = 0.0
    """Probability that a burst begins at a slot, which multiplies three slots by 2 to 10."""
    call_modes: float = 0.0
    """Half of all calls take longer by this."""
    block_modes: float = 0.0
    """A solution takes longer by this in half of its blocks, whatever the other does."""
    correlation: float = 0.0
    """Of neighbouring blocks: of a noise of each solution's own, as large as ``noise``."""
    position: float = 0.0
    """The first slot of every block takes longer by this."""

    def sample(
        self,
        rng: np.random.Generator,
        *,
        blocks: int,
        workloads: int = 1,
        calls: int = 1,
        ratio: float = 1.0,
    ) -> list[list[PairedBlock]]:
        """Blocks of one comparison.

        Args:
            rng: source of randomness.
            blocks: of each workload.
            workloads: with latencies from 10 us up.
            calls: of each slot.
            ratio: true latency of B over A's.
        """
        return [
            [
                PairedBlock(a_ns=tuple(a), b_ns=tuple(b), order=_ORDERS[swapped])
                for a, b, swapped in zip(*self._split(*made), strict=True)
            ]
            for made in self._all(rng, blocks, workloads, calls, ratio)
        ]

    def levels(
        self,
        rng: np.random.Generator,
        *,
        blocks: int,
        workloads: int = 1,
        calls: int = 1,
        ratio: float = 1.0,
    ) -> list[Levels]:
        """The same as times of A and B in each block."""
        found = []
        for slots_ns, swapped in self._all(rng, blocks, workloads, calls, ratio):
            medians = np.median(slots_ns, axis=2)
            inner, outer = medians[:, 1:3].mean(axis=1), medians[:, ::3].mean(axis=1)
            b_ns = np.where(swapped, outer, inner)
            found.append(np.stack([inner + outer - b_ns, b_ns], axis=1))
        return found

    def _all(
        self, rng: np.random.Generator, blocks: int, workloads: int, calls: int, ratio: float
    ) -> list[tuple[_Array, NDArray[np.bool_]]]:
        """Times (blocks, slots, calls) of each workload, and whether its blocks are BAAB."""
        decades = _SPAN * rng.random(workloads)
        return [self._workload(rng, blocks, calls, 1e4 * 10**d, ratio) for d in decades]

    def _workload(
        self, rng: np.random.Generator, blocks: int, calls: int, level_ns: float, ratio: float
    ) -> tuple[_Array, NDArray[np.bool_]]:
        own = np.array([_series(rng, blocks, self.correlation) for _ in "ab"]).T
        own *= self.noise if self.correlation else 0.0
        own += np.log1p(self.block_modes * (rng.random((blocks, 2)) < 0.5))
        own[:, 1] += math.log(ratio)
        swapped = _orders(rng, blocks)
        # Blocks x slots: whether B is in it.
        second = np.array([False, True, True, False]) != swapped[:, None]
        mean = self._shared(rng, 4 * blocks).reshape(blocks, 4)
        mean[:, 0] += math.log1p(self.position)
        mean += np.where(second, own[:, 1:], own[:, :1])
        factors = self._calls(rng, (blocks, 4, calls))
        return np.maximum(level_ns * np.exp(mean)[..., None] * factors, 1.0), swapped

    @staticmethod
    def _split(
        slots_ns: _Array, swapped: NDArray[np.bool_]
    ) -> tuple[list[list[int]], list[list[int]], list[bool]]:
        """Samples of A and of B in each block, whole nanoseconds."""
        count = len(slots_ns)
        inner = slots_ns[:, 1:3].reshape(count, -1)
        outer = slots_ns[:, ::3].reshape(count, -1)
        chosen = swapped[:, None]
        a_ns, b_ns = np.where(chosen, inner, outer), np.where(chosen, outer, inner)
        return a_ns.astype(int).tolist(), b_ns.astype(int).tolist(), swapped.tolist()

    def _shared(self, rng: np.random.Generator, slots: int) -> _Array:
        """Logarithm of what happens to whoever is in a slot."""
        found = np.log1p(self.shared_slope * np.arange(slots) / 4)
        found += self.shared_walk * np.cumsum(rng.standard_normal(slots))
        found += np.repeat(np.log1p(self.shared_step * (rng.random(slots // 4) < 0.5)), 4)
        for begin in np.flatnonzero(rng.random(slots) < self.bursts):
            found[begin : begin + 3] += math.log(rng.uniform(2, 10))
        return found

    def _calls(self, rng: np.random.Generator, shape: tuple[int, ...]) -> _Array:
        """Factors of calls."""
        factors = 1 + self.noise * rng.standard_normal(shape)
        factors *= np.exp(self.skew * rng.standard_normal(shape))
        factors *= 1 + self.call_modes * (rng.random(shape) < 0.5)
        hit = rng.random(shape) < self.outliers
        return np.where(hit, rng.uniform(2, 10, shape), 1.0) * np.maximum(factors, 0.05)


def _series(rng: np.random.Generator, count: int, correlation: float) -> _Array:
    """Autoregressive of order one, of unit variance from its first value on."""
    values = rng.standard_normal(count)
    for i in range(1, count):
        values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * values[i]
    return values


def _orders(rng: np.random.Generator, blocks: int) -> NDArray[np.bool_]:
    """Whether each block is BAAB: of two that follow each other from an even one, one is."""
    firsts = np.repeat(rng.random((blocks + 1) // 2) < 0.5, 2)[:blocks]
    return np.asarray(firsts != (np.arange(blocks) % 2 == 1))


MODELS: Mapping[str, NoiseModel] = MappingProxyType(
    {
        "quiet": NoiseModel(noise=0.003),
        "noisy": NoiseModel(noise=0.1),
        "long tails": NoiseModel(noise=0.02, skew=0.15),
        "linear drift": NoiseModel(shared_slope=0.1),
        "random walk": NoiseModel(shared_walk=0.03),
        "stepping clock": NoiseModel(shared_step=0.5),
        "1 % outliers": NoiseModel(outliers=0.01),
        "5 % outliers": NoiseModel(outliers=0.05),
        "bursts": NoiseModel(bursts=0.05),
        "modes by call": NoiseModel(call_modes=0.5),
        "modes by block": NoiseModel(noise=0.005, block_modes=0.3),
        "autocorrelation 0.3": NoiseModel(correlation=0.3),
        "autocorrelation 0.6": NoiseModel(correlation=0.6),
        "slow first slot": NoiseModel(noise=0.005, position=0.1),
    }
)
"""What the coverage and the false decisions are tested under."""
