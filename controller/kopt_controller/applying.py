"""``kopt promote --recorded``: applies what a round has decided, and measures nothing.

For rounds whose archive was brought from another machine: the conditions, samples and profiles
are the round's own, and so is the decision. It is applied where every condition held in the
round, and neither the incumbent nor the workloads have changed since.
"""

from __future__ import annotations

import re

from kopt_harness.archive import Archive, Run
from kopt_harness.catalog import Catalog
from kopt_harness.errors import NotFoundError, UsageError
from kopt_harness.journal import Journal
from kopt_harness.schema import Definition, Profile, SweepResult, Workload
from kopt_harness.targets import get_target

from .history import find_round
from .indexed import open_index, runs_document
from .kinds import CAMPAIGN, PROMOTE_KEY
from .measuring import observed
from .promotion import Promoter
from .representing import floors_of, representatives_of
from .result import PromoteOutcome, RoundResult
from .reverify import Promotable, create_run
from .state import derive_state
from .world import Promotion

__all__ = ["apply_recorded"]


def apply_recorded(catalog: Catalog, archive: Archive, what: str | None) -> PromoteOutcome:
    """Makes the best candidate of a round the incumbent, by what the round has on record.

    Args:
        catalog: Definitions.
        archive: Has the run, its candidate and its incumbent.
        what: ``RUN/ROUND``; None: the latest round that waits for a promotion.

    Raises:
        NotFoundError: There is no such round, or part of its record is missing.
        UsageError: It did not decide to promote, or something has changed since.
    """
    run_id, slash, number = (what or _waiting(archive)).rpartition("/")
    if not slash:
        raise UsageError(
            f"{what!r} names no round", hint="give RUN/ROUND; kopt history lists the rounds"
        )
    view, result = find_round(archive, run_id, number)
    definition = catalog.resolve_exact(result.definition)
    _require_promotable(catalog, definition, result)
    assert result.best is not None, "a round that promotes has one"
    target = get_target(result.target)
    candidate, incumbent = (
        archive.get(ref.sha256).model_copy(update={"name": ref.name})
        for ref in (result.best, result.incumbent_before)
    )
    with Journal(view.run.journal_path) as journal:
        place, sweep = _sweep(journal, view.run, result)
        _require_same_workloads(catalog.workloads(definition), sweep)
        profiles = _profiles(journal, view.run, candidate.sha256)
        comparison = sweep.comparison
        rows = () if comparison is None else comparison.workloads
        observations = observed(
            representatives_of(catalog, definition, target, tuple(profiles)),
            lambda workload: profiles[workload.uuid],
            {row.uuid: row.b_median_us for row in rows if row.b_median_us is not None},
        )
        promotion = Promotion(
            candidate=candidate,
            incumbent=incumbent,
            sweep=sweep,
            decision=result.decision,
            state=derive_state(observations),
            profiles=tuple(each.profile for each in observations),
            rules=view.manifest.config.conditions,
            samples_prefixes=tuple(
                f"{place}{part}/{candidate.sha256[:12]}" for part in ("sweep", "validation")
            ),
        )
        run = create_run(
            catalog,
            Promotable(candidate, definition, target),
            incumbent,
            view.manifest.config,
            applies=f"{view.run.id}/{result.round}",
        )
        floors = floors_of(catalog, definition, target)
        promoter = Promoter(catalog, definition, target.name, journal=journal, floors=floors)
        record = promoter.apply(promotion, mode="command")
    outcome = PromoteOutcome(
        run=run.id,
        definition=definition.name,
        target=target.name,
        candidate=result.best,
        incumbent=result.incumbent_before,
        incumbent_after=result.best if record.applied else result.incumbent_before,
        ratio=None if comparison is None else comparison.ratio,
        ci=None if comparison is None else comparison.ci,
        conditions=result.decision.evidence,
        overridden=(),
        applied=record.applied,
        detail=record.detail,
    )
    with Journal(run.journal_path) as own:
        own.put(PROMOTE_KEY, outcome.model_dump(mode="json"))
    return outcome


def _waiting(archive: Archive) -> str:
    with open_index(archive.folder) as index:
        documents = runs_document(index, index.runs(CAMPAIGN))
    waiting = [str(each["promotable"]) for each in documents if each["promotable"]]
    if not waiting:
        raise NotFoundError("no round waits for a promotion", hint="name one: RUN/ROUND")
    return waiting[-1]


def _require_promotable(catalog: Catalog, definition: Definition, result: RoundResult) -> None:
    """It was decided, on conditions that all held, against what is the incumbent now."""
    decision = result.decision
    failed = [condition.name for condition in decision.evidence if not condition.ok]
    if decision.label != "promote" or failed or result.best is None:
        raise UsageError(
            f"the round did not decide to promote: {decision.label}, {decision.reason}",
            hint="kopt promote without --recorded measures again",
        )
    now = catalog.incumbent(definition, result.target)
    if now is not None and now.sha256 == result.best.sha256:
        raise UsageError(f"{result.best.name} ({now.sha256[:12]}) is the incumbent already")
    if now is None or now.sha256 != result.incumbent_before.sha256:
        name = "none" if now is None else f"{now.name} ({now.sha256[:12]})"
        raise UsageError(
            f"the incumbent of {result.target} is {name}, and the round compared with "
            f"{result.incumbent_before.name} ({result.incumbent_before.sha256[:12]})",
            hint="kopt promote without --recorded compares with the present one",
        )


def _sweep(journal: Journal, run: Run, result: RoundResult) -> tuple[str, SweepResult]:
    """What the decision rests on, and the beginning of its keys."""
    assert result.best is not None, "asked of a round that promotes"
    form = rf"(r{result.round}/(?:.+/)?)sweep/{result.best.sha256[:12]}/outcome"
    for key in reversed(journal.completed()):
        if match := re.fullmatch(form, key):
            return match[1], SweepResult.model_validate(journal.get(key))
    raise NotFoundError(f"the journal of {run.id} has no sweep of {result.best.name}")


def _profiles(journal: Journal, run: Run, sha256: str) -> dict[str, Profile]:
    """By workload uuid."""
    form = rf"profile/{sha256[:12]}/([^/]+)"
    found = {
        match[1]: Profile.model_validate(journal.get(key))
        for key in journal.completed()
        if (match := re.fullmatch(form, key))
    }
    if not found:
        raise NotFoundError(f"the journal of {run.id} has no profile of {sha256[:12]}")
    return found


def _require_same_workloads(workloads: list[Workload], sweep: SweepResult) -> None:
    swept = {row.uuid for row in sweep.evaluation.workloads}
    if swept != {workload.uuid for workload in workloads}:
        raise UsageError(
            "the definition has other workloads than the round has swept",
            hint="kopt promote without --recorded sweeps those that it has now",
        )
