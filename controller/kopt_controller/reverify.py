"""``kopt promote``: sweeps archived bytes again, in clean processes, before they are retained.

What a round found is the reason to look; what this sweep finds decides. It has a run folder
of its own, so that its samples are evidence like those of any other run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kopt_harness.archive import Archive, Run
from kopt_harness.catalog import Catalog
from kopt_harness.errors import NotFoundError, UsageError
from kopt_harness.journal import Journal
from kopt_harness.schema import Definition, Solution, SweepResult
from kopt_harness.targets import Target, best_target, get_target

from .campaign import MakeHarness, floors_of, interruptible, lazy_harness, representatives_of
from .config import RunConfig
from .harness import Harness
from .history import find_round, list_runs
from .loop import Promotion
from .policy import promotion_conditions
from .promotion import Promoter
from .result import CandidateRef, Condition, Decision
from .state import Observation, derive_state

__all__ = ["Promotable", "Reverified", "find_promotable", "reverify"]


class Promotable(NamedTuple):
    """What a person asked to promote."""

    candidate: Solution
    """From the archive, content verified."""
    definition: Definition
    target: Target


class Reverified(NamedTuple):
    """What ``kopt promote`` reports."""

    candidate: CandidateRef
    incumbent: CandidateRef
    """Before."""
    target: str
    applied: bool
    conditions: tuple[Condition, ...]
    detail: str
    run: str

    def document(self) -> dict[str, Any]:
        """The JSON of DESIGN section 7."""
        return {
            "candidate": self.candidate.model_dump(mode="json"),
            "incumbent": self.incumbent.model_dump(mode="json"),
            "target": self.target,
            "applied": self.applied,
            "conditions": [condition.model_dump(mode="json") for condition in self.conditions],
            "detail": self.detail,
            "run": self.run,
        }


def find_promotable(
    catalog: Catalog, archive: Archive, what: str | None, target: str | None
) -> Promotable:
    """Resolves what the user named.

    Args:
        catalog: Definitions.
        archive: Runs and solutions.
        what: ``RUN/ROUND``, a hash or the beginning of one; None: the latest promotable round.
        target: Overrides the target of the round.

    Raises:
        NotFoundError: If there is nothing of that name, or nothing promotable.
    """
    if what is not None and "/" in what:
        run_id, _, number = what.rpartition("/")
        found = find_round(archive, run_id, number)
        if found.result.best is None:
            raise NotFoundError(
                f"no candidate of {what!r} passed the gate", hint="kopt history lists the rounds"
            )
        return _resolve(catalog, archive, found.result.best, target or found.result.target)
    rounds = [(view, r) for view in reversed(list_runs(archive).views) for r in view.rounds[::-1]]
    if what is None:
        for view, result in rounds:
            if view.promotable is result and result.best is not None:
                return _resolve(catalog, archive, result.best, target or result.target)
        raise NotFoundError(
            "no round waits for a promotion",
            hint="name one: kopt promote RUN/ROUND, or kopt promote SHA",
        )
    solution = archive.get(what)
    known = (r for _, r in rounds if any(c.sha256 == solution.sha256 for c in r.candidates))
    measured_on = next((r.target for r in known), None)
    ref = CandidateRef(name=solution.name, sha256=solution.sha256)
    return _resolve(catalog, archive, ref, target or measured_on or best_target().name)


def _resolve(catalog: Catalog, archive: Archive, ref: CandidateRef, target: str) -> Promotable:
    candidate = archive.get(ref.sha256).model_copy(update={"name": ref.name})
    definition = catalog.resolve_exact(candidate.definition)
    return Promotable(candidate, definition, get_target(target))


def reverify(
    catalog: Catalog,
    promotable: Promotable,
    config: RunConfig,
    make_harness: MakeHarness,
    *,
    overridden: tuple[str, ...] = (),
    notify: Callable[[str], None],
) -> Reverified:
    """Sweeps the candidate against the present incumbent and promotes it if all holds.

    Args:
        catalog: Definitions.
        promotable: What to promote.
        config: How to measure.
        make_harness: Makes a harness with workers that have run nothing yet.
        overridden: Flags that the user accepts; recorded in the evidence.
        notify: Gets progress.

    Raises:
        NotFoundError: If there is no incumbent to compare with.
        UsageError: If the candidate is the incumbent already.
    """
    candidate, definition, target = promotable
    incumbent = _incumbent(catalog, promotable)
    run = _create_run(catalog, promotable, incumbent, config, overridden)
    go_on = f"kopt promote {candidate.sha256[:12]}"
    with (
        Journal(run.journal_path) as journal,
        lazy_harness(lambda: make_harness(target, config)) as harness,
        interruptible("the promotion", go_on),
    ):
        prefix = f"sweep/{candidate.sha256[:12]}"
        workloads = catalog.workloads(definition)
        sweep = harness().sweep(candidate, incumbent, workloads, journal.scoped(prefix))
        conditions = promotion_conditions(
            sweep, workloads=workloads, public_seed=config.measure.seed, overridden=overridden
        )
        failed = [condition for condition in conditions if not condition.ok]
        if failed:
            applied, detail = False, f"not applied: {failed[0].name} is {failed[0].measured}"
        else:
            notify(f"promoting {candidate.name}")
            observations = _observe(catalog, promotable, config, harness(), journal)
            promotion = _promotion(promotable, incumbent, sweep, conditions, observations)
            promoter = _promoter(catalog, promotable, journal)
            record = promoter.apply(promotion, mode="command", overridden=overridden)
            applied, detail = record.applied, record.detail
    return Reverified(
        candidate=_ref(candidate),
        incumbent=_ref(incumbent),
        target=target.name,
        applied=applied,
        conditions=conditions,
        detail=detail,
        run=run.id,
    )


def _incumbent(catalog: Catalog, promotable: Promotable) -> Solution:
    candidate, definition, target = promotable
    incumbent = catalog.incumbent(definition, target.name)
    if incumbent is None:
        raise NotFoundError(
            f"{definition.name} has no incumbent for the target {target.name!r}",
            hint="name one in retained.toml",
        )
    if incumbent.sha256 == candidate.sha256:
        raise UsageError(
            f"{candidate.name} ({candidate.sha256[:12]}) is the incumbent already",
            hint="kopt history lists other candidates",
        )
    return incumbent


def _create_run(
    catalog: Catalog,
    promotable: Promotable,
    incumbent: Solution,
    config: RunConfig,
    overridden: tuple[str, ...],
) -> Run:
    candidate, definition, target = promotable
    archive = Archive(catalog.root.local)
    archive.put(incumbent)
    manifest = {
        "kind": "promote",
        "definition": definition.name,
        "target": target.name,
        "candidate": candidate.sha256,
        "incumbent": incumbent.sha256,
        "overridden_flags": list(overridden),
        "config": config.model_dump(mode="json"),
    }
    return archive.create_run(f"promote-{definition.kopt.alias}-{target.name}", manifest)


def _observe(
    catalog: Catalog,
    promotable: Promotable,
    config: RunConfig,
    harness: Harness,
    journal: Journal,
) -> list[Observation]:
    candidate, definition, target = promotable
    return [
        Observation(
            regime=each.regime,
            workloads=each.weight,
            profile=harness.profile(candidate, each.workload, journal),
            cost_bytes=each.cost_bytes,
            flops=each.flops,
            floor=each.floor,
        )
        for each in representatives_of(catalog, definition, target, config.gate_workloads)
    ]


def _promotion(
    promotable: Promotable,
    incumbent: Solution,
    sweep: SweepResult,
    conditions: tuple[Condition, ...],
    observations: list[Observation],
) -> Promotion:
    decision = Decision(
        label="promote",
        code="re-verified",
        reason="every condition held in a sweep of the archived bytes",
        evidence=conditions,
    )
    return Promotion(
        candidate=promotable.candidate,
        incumbent=incumbent,
        sweep=sweep,
        decision=decision,
        state=derive_state(observations),
        profiles=tuple(observation.profile for observation in observations),
        samples_prefix=f"sweep/{promotable.candidate.sha256[:12]}",
    )


def _promoter(catalog: Catalog, promotable: Promotable, journal: Journal) -> Promoter:
    _, definition, target = promotable
    floors = floors_of(catalog, definition, target)
    return Promoter(catalog, definition, target.name, journal=journal, floors=floors)


def _ref(solution: Solution) -> CandidateRef:
    return CandidateRef(name=solution.name, sha256=solution.sha256)
