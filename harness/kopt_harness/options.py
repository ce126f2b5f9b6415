"""How much is measured, and when a comparison is decided: declared once, here."""

from __future__ import annotations

from pydantic import Field

from kopt_harness.schema import CacheState, Model, Timer

__all__ = ["MeasureOptions"]


class MeasureOptions(Model):
    """Budgets and rules of checking and timing."""

    trials: int = Field(default=3, ge=1)
    """Distinct ``typical`` input sets that are checked on a workload."""
    sweep_stress_sets: int = Field(default=1, ge=0)
    """Stress sets that a sweep checks on each workload, taken in turn out of the definition's
    generators; a check of a few workloads takes one of every generator on each."""
    seed: int | None = Field(default=None, ge=0, lt=1 << 63)
    """A fixed public seed, for debugging only: such results cannot promote."""
    baselines: tuple[str, ...] = ()
    """Peers that a sweep times beside the candidate, paired; every definition must have them."""
    workers: int = Field(default=1, ge=1)
    """Ceiling of worker pairs that check at the same time."""
    timer: Timer | None = None
    """Null: the target's own."""
    cache: CacheState = "cold"
    bench_calls: int = Field(default=20, ge=1)
    """Timed calls of one solution alone (``bench``)."""
    calls_per_slot: int | None = Field(default=None, ge=1)
    """Timed calls in each of the four slots of an ABBA block; null: the target kind's own."""
    blocks_min: int | None = Field(default=None, ge=2)
    """Blocks of each workload before a decision. Null: 3, in rounds 6; in a sweep of many
    workloads on a CPU, where a block takes long and the workloads bear each other out, 2."""
    blocks_max: int | None = Field(default=None, ge=2)
    """Blocks of one workload at most. Null: 16, in rounds 63."""
    rounds: bool | None = None
    """Whether blocks come in rounds, each from processes of its own; null: on a GPU."""
    rounds_ahead: int | None = Field(default=None, ge=1, le=16)
    """Rounds whose processes are opened side by side; null: the target kind's own."""
    confidence: float = Field(default=0.99, gt=0.5, lt=1)
    """Of the interval of the ratio, over all looks at the data: of two solutions that are
    equal, one is called faster in half of 1 % of comparisons at most."""
    margin: float | None = Field(default=None, ge=0, lt=1)
    """Relative difference that counts as the same; a promotion must beat it. Null: the noise
    floor that ``kopt calibrate --timing`` has stored for this epoch, or 2 % without one."""
    margin_min: float = Field(default=0.002, ge=0, lt=1)
    """At least this, whatever the noise floor."""
    pool: int = Field(default=3, ge=1)
    """Input sets that timed calls choose from, beside one that was never used before."""
    call_timeout_s: float = Field(default=60.0, gt=0)
    """One call of a candidate; at least twenty times what the reference takes."""
    timed_call_s: float = Field(default=10.0, gt=0)
    """A workload on which one call takes longer is checked, but not timed."""
    judge_timeout_s: float = Field(default=300.0, gt=0)
    """One request to the judge: drawing inputs, a reference, a comparison."""
    load_timeout_s: float = Field(default=300.0, gt=0)
    """Importing a built solution, with what it compiles or unpacks at import."""
    build_timeout_s: float = Field(default=300.0, gt=0)
    budget_s: float = Field(default=600.0, gt=0)
    """Wall time of one comparison; when it ends undecided the answer is ``ambiguous``."""
