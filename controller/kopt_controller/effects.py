"""What settings do to the time, as far as measurements say: a small Gaussian process.

Every timed candidate says how its settings compare with those of the incumbent of its round. The
logarithm of the time is taken as a sum of one effect for each knob, in which neighbouring values
are alike, and a smaller part that belongs to the combination. So a change that helped is expected
to help together with others, a value beyond a bad one is expected to be bad, and what was never
tried is uncertain rather than neutral. It is a guess of where to look, never evidence: what is
expected is measured like everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import erf, exp, log, pi, sqrt
from typing import Any, NamedTuple

import numpy as np
from kopt_harness.tunables import Tunable

from .memory import Memory

__all__ = ["Effects", "Expected", "Observed", "observed_of"]

LEAST_EFFECT = 0.05
"""Standard deviation of a knob's effect where nothing that was measured differed by more."""
MOST_EFFECT = 0.5
ALIKE = 0.5
"""Correlation of the effects of two neighbouring values of a numeric knob."""
COMBINATIONS = (0.6, 1.0)
"""Part of a combination, relative to the effect of a knob; the likeliest is taken, at first the
first."""
SCALES = (1.0, 2.0)
"""Of the effect of a knob, relative to the spread of what was measured; the same."""
ENOUGH = 6
"""Comparisons from which on they are chosen by likelihood."""
COMBINATION_ALIKE = 0.5
"""What is left of that part with each knob that differs."""
UNKNOWN_NOISE = 0.05
"""Standard deviation of a measurement that has no interval."""
LEAST_NOISE = 0.005
INTERVAL_WIDTH = 4.0
"""Width of an interval in standard deviations; between those of 95 % and 99 %."""

Settings = Mapping[str, Any]


class Observed(NamedTuple):
    """One comparison of two settings."""

    settings: Settings
    against: Settings
    log_ratio: float
    """Of the times; below 0 the first is faster."""
    noise: float
    """Standard deviation of that."""


class Expected(NamedTuple):
    """What is expected of settings, relative to others."""

    log_ratio: float
    deviation: float

    def improvement(self, best: float) -> float:
        """By how much it is expected to be below ``best``, where it is; in logarithms."""
        if self.deviation <= 0:
            return max(0.0, best - self.log_ratio)
        z = (best - self.log_ratio) / self.deviation
        density = exp(-z * z / 2) / sqrt(2 * pi)
        return (best - self.log_ratio) * _normal(z) + self.deviation * density


def _normal(z: float) -> float:
    return (1 + erf(z / sqrt(2))) / 2


class Effects:
    """Expectations from what was observed of one family."""

    def __init__(
        self,
        tunables: Mapping[str, Tunable],
        observed: Sequence[Observed],
        size: tuple[float, float] | None = None,
    ) -> None:
        self._tunables = tunables
        self._observed = tuple(observed)
        self._new = self._codes([one.settings for one in observed])
        self._old = self._codes([one.against for one in observed])
        self._effect, self._combination = size or self._likeliest()
        self._weights, self._factor = self._solve()

    @property
    def measured(self) -> list[Settings]:
        """All settings that were compared with another."""
        return [each for one in self._observed for each in (one.settings, one.against)]

    def also(self, settings: Settings, against: Settings) -> Effects:
        """As if these settings had been measured, with what is expected of them.

        What is asked for next is then about something else.
        """
        expected = self.expect([settings], against)[0]
        found = Observed(settings, against, expected.log_ratio, LEAST_NOISE)
        size = (self._effect, self._combination)
        return Effects(self._tunables, (*self._observed, found), size)

    def _likeliest(self) -> tuple[float, float]:
        """Size of effects and of combinations, relative to a kernel's own reactions."""
        squares = [one.log_ratio**2 for one in self._observed]
        spread = sqrt(sum(squares) / len(squares)) if squares else 0.0
        sizes = [
            (min(MOST_EFFECT, max(LEAST_EFFECT, scale * spread)), part)
            for scale in SCALES
            for part in COMBINATIONS
        ]
        if len(self._observed) < ENOUGH:
            return sizes[0]
        values = np.array([one.log_ratio for one in self._observed])
        found = []
        for self._effect, self._combination in sizes:
            weights, factor = self._solve()
            found.append(float(values @ weights) / 2 + float(np.sum(np.log(np.diag(factor)))))
        return sizes[min(range(len(sizes)), key=lambda i: round(found[i], 6))]

    def expect(self, candidates: Sequence[Settings], against: Settings) -> list[Expected]:
        """What is expected of each, relative to one setting."""
        new, old = self._codes(candidates), self._codes([against])
        alone = self._kernel(old, old)[0, 0]
        prior = 2 * alone - 2 * self._kernel(new, old)[:, 0]
        if not self._observed:
            return [Expected(0.0, sqrt(max(0.0, each))) for each in prior]
        cross = self._differences(new, old, self._new, self._old)
        mean = cross @ self._weights
        explained = np.sum(np.linalg.solve(self._factor, cross.T) ** 2, axis=0)
        variance = np.maximum(prior - explained, 0.0)
        return [Expected(float(m), sqrt(float(v))) for m, v in zip(mean, variance, strict=True)]

    def _codes(self, settings: Sequence[Settings]) -> Any:
        """Positions of values in their knobs; a row for each."""
        rows = [
            [knob.values.index(each[name]) for name, knob in self._tunables.items()]
            for each in settings
        ]
        return np.array(rows, dtype=float).reshape(len(rows), len(self._tunables))

    def _kernel(self, a: Any, b: Any) -> Any:
        """Covariance of the logarithms of times; a row for each of ``a``."""
        distance = np.abs(a[:, None, :] - b[None, :, :])
        numeric = np.array([_is_numeric(knob) for knob in self._tunables.values()])
        alike = np.where(numeric, ALIKE**distance, distance == 0)
        differing = np.sum(distance > 0, axis=2)
        # Half of it belongs to one setting alone: one that is odd says little of its knobs.
        combination = COMBINATION_ALIKE**differing / 2 + (differing == 0) / 2
        alone = self._combination**2 * combination
        return self._effect**2 * (np.sum(alike, axis=2) + alone)

    def _differences(self, new: Any, old: Any, other_new: Any, other_old: Any) -> Any:
        """Covariance of differences, as comparisons are."""
        return (
            self._kernel(new, other_new)
            - self._kernel(new, other_old)
            - self._kernel(old, other_new)
            + self._kernel(old, other_old)
        )

    def _solve(self) -> tuple[Any, Any]:
        if not self._observed:
            return None, None
        noise = np.diag([one.noise**2 for one in self._observed])
        covariance = self._differences(self._new, self._old, self._new, self._old) + noise
        factor = np.linalg.cholesky(covariance)
        values = np.array([one.log_ratio for one in self._observed])
        weights = np.linalg.solve(factor.T, np.linalg.solve(factor, values))
        return weights, factor


def _is_numeric(knob: Tunable) -> bool:
    """Whether neighbouring values of a knob are alike."""
    return all(isinstance(value, int | float) for value in knob.values) and len(knob.values) > 2


def observed_of(
    family: str, tunables: Mapping[str, Tunable], memory: Memory, known: Mapping[str, Settings]
) -> Iterator[Observed]:
    """The comparisons that a memory holds of one family.

    Args:
        family: Whose settings.
        tunables: Its knobs, as they are now; older settings may not exist any more.
        memory: Of the definition on the target.
        known: Settings by hash that no trial tells, as those of the incumbent.
    """
    settings = dict(known)
    for past in memory.rounds:
        timed = [
            trial
            for trial in past.trials
            if trial.family == family and trial.ratio and _exists(trial.settings, tunables)
        ]
        settings |= {trial.sha256: trial.settings for trial in timed}
        base = settings.get(past.incumbent)
        shift = 0.0
        if base is None and timed:
            # Another implementation was the incumbent: the candidates still say of each other.
            base, shift = timed[0].settings, log(timed[0].ratio or 1.0)
            timed = timed[1:]
        for trial in timed if base is not None else ():
            noise = UNKNOWN_NOISE
            if trial.ci is not None and trial.ci[0] > 0:
                noise = log(trial.ci[1] / trial.ci[0]) / INTERVAL_WIDTH
            assert base is not None, "rounds without one are left out"
            yield Observed(
                trial.settings, base, log(trial.ratio or 1.0) - shift, max(LEAST_NOISE, noise)
            )


def _exists(settings: Settings, tunables: Mapping[str, Tunable]) -> bool:
    return all(
        name in settings and settings[name] in knob.values for name, knob in tunables.items()
    )
