"""Of ``kopt ablate``."""

from __future__ import annotations

from typing import Any

from kopt_harness.schema import Model

from ..ablation import Arm, Scope
from ..result import CandidateRef

__all__ = ["AblateDocument", "AblationArm", "AblationEffect", "AblationEstimate", "AblationResult"]

Interval = tuple[float, float]


class AblationEstimate(Model):
    """A ratio over seeds with its interval."""

    ratio: float
    ci: Interval
    seeds: int


class AblationResult(Model):
    """What one campaign has found, measured once more and against the common start."""

    seed: int
    name: str
    sha256: str
    ratio: float
    """Time over that of the start, on the workloads of its scope; 1 where it was not right."""
    ci: Interval
    single_ratio: float | None
    """On the single workload alone."""
    single_ci: Interval | None
    evaluations: int
    """Candidates that the gates of the campaign have judged."""
    right: bool


class AblationArm(Model):
    """One arm in one scope."""

    scope: Scope
    arm: Arm
    """``goal-only``, ``+`` with a mechanism, or ``full``."""
    applies: bool
    """Whether it is anything for this agent and in this scope."""
    level: AblationEstimate | None
    """Over its seeds; null of fewer than two."""
    wrong: int
    """Results that were not right."""
    results: tuple[AblationResult, ...]
    """By seed; of campaigns that have ended."""


class AblationEffect(Model):
    """What a change does to the time that is reached; below 1 is faster."""

    name: str
    """``harness``, ``+`` with a mechanism, or ``scope``."""
    of: str
    """The scope in which it is seen; of ``scope`` the arm."""
    estimate: AblationEstimate | None
    """Null where it does not apply, or fewer than two seeds have both sides."""


class AblateDocument(Model):
    """What each mechanism is worth."""

    ablation: str
    """By which ``--resume`` goes on."""
    definition: str
    target: str
    agent: str
    """Who proposes, in every arm."""
    start: CandidateRef
    """What every campaign starts from, and every result is compared with."""
    seeds: int
    """Of each arm."""
    rounds: int
    """Of each campaign."""
    candidates: int | None
    """Of a round at most; null: 4, on a CPU 3."""
    whole: tuple[str, ...]
    """UUIDs of the workloads that stand for the whole definition."""
    single: str
    """UUID of the single workload."""
    reuse: bool
    """Whether a pair of solutions was gated and swept once for all campaigns."""
    campaigns: int
    """That have ended."""
    complete: bool
    """Whether these are all; else the exit code is 130."""
    confidence: float
    """Of the intervals."""
    environment: dict[str, Any]
    """In which the results were measured once more; empty where none was."""
    arms: tuple[AblationArm, ...]
    effects: tuple[AblationEffect, ...]
