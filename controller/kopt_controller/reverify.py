"""``kopt promote``: sweeps archived bytes again, in clean processes, before they are retained.

What a round found is the reason to look; what this sweep finds decides, and the validation
after it. It has a run folder of its own, so that its samples are evidence like those of any
other run; the last record of its journal is what it came to.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any, NamedTuple

from kopt_harness.archive import Archive, Run
from kopt_harness.catalog import Catalog
from kopt_harness.errors import NotFoundError, UsageError
from kopt_harness.journal import Journal
from kopt_harness.ledger import recorded
from kopt_harness.schema import Definition, Solution, SweepResult, Validation
from kopt_harness.targets import Target, best_target, get_target

from .campaign import MakeHarness, interruptible, lazy_harness
from .config import RunConfig
from .dispatch import Learned, learn_rule
from .harness import Harness
from .history import find_round, last_review
from .indexed import last_target, open_index, runs_document
from .kinds import CAMPAIGN, PROMOTE, PROMOTE_KEY
from .measuring import observed
from .policy import awaits_validation, promotion_conditions, validation_conditions
from .promotion import Promoter
from .representing import floors_of, representatives_of
from .result import CandidateRef, Condition, Decision, PromoteOutcome, PromotionRecord, Review
from .reviewing import review_condition
from .state import Observation, derive_state
from .world import Promotion, Representative

__all__ = [
    "Dispatchable",
    "Promotable",
    "create_run",
    "find_dispatch",
    "find_promotable",
    "reverify",
    "user",
]


class Promotable(NamedTuple):
    """What a person asked to promote."""

    candidate: Solution
    """From the archive, content verified."""
    definition: Definition
    target: Target


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
    with open_index(archive.folder) as index:
        if what is None:
            documents = runs_document(index, index.runs(CAMPAIGN))
            waiting = [each["promotable"] for each in documents if each["promotable"]]
            if not waiting:
                raise NotFoundError(
                    "no round waits for a promotion",
                    hint="name one: kopt promote RUN/ROUND, or kopt promote SHA",
                )
            return find_promotable(catalog, archive, waiting[-1], target)
        solution = archive.get(what)
        measured_on = last_target(index, solution.sha256)
    ref = CandidateRef(name=solution.name, sha256=solution.sha256)
    return _resolve(catalog, archive, ref, target or measured_on or best_target().name)


class Dispatchable(NamedTuple):
    """A swept candidate, and the range in which it may stand before its incumbent."""

    candidate: Solution
    incumbent: Solution
    """Of the round."""
    definition: Definition
    target: str
    rule: Learned | None
    """None where it wins nowhere without losing."""


def find_dispatch(catalog: Catalog, archive: Archive, what: str) -> Dispatchable:
    """What a round's sweep says of a dispatch.

    Args:
        catalog: Definitions.
        archive: Of this machine.
        what: ``RUN/ROUND``.

    Raises:
        UsageError: If it is not ``RUN/ROUND``.
        NotFoundError: If there is no such round, or it has no whole sweep.
    """
    run_id, slash, number = what.rpartition("/")
    if not slash:
        raise UsageError(
            f"{what!r} names no round",
            hint="give RUN/ROUND, as in 20261129-141722-gdn_decode-h200-1f2e/2; "
            "kopt history lists them",
        )
    result = find_round(archive, run_id, number).result
    comparison = None if result.sweep is None else result.sweep.comparison
    if result.best is None or comparison is None:
        raise NotFoundError(f"{what!r} has no sweep", hint="kopt history lists the rounds")
    definition = catalog.resolve_exact(result.definition)
    rule = learn_rule(comparison.workloads, definition.kopt.regime_axes)
    pair = [
        archive.get(ref.sha256).model_copy(update={"name": ref.name})
        for ref in (result.best, result.incumbent_before)
    ]
    return Dispatchable(pair[0], pair[1], definition, result.target, rule)


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
) -> PromoteOutcome:
    """Sweeps the candidate against the present incumbent and promotes it if all holds.

    Args:
        catalog: Definitions.
        promotable: What to promote.
        config: How to measure, and what is required.
        make_harness: Makes a harness with workers that have run nothing yet.
        overridden: Flags that the user accepts; recorded in the evidence.
        notify: Gets progress.

    Raises:
        NotFoundError: If there is no incumbent to compare with.
        UsageError: If the candidate is the incumbent already.
    """
    candidate, _, target = promotable
    incumbent = _incumbent(catalog, promotable)
    run = create_run(catalog, promotable, incumbent, config, overridden)
    go_on = f"kopt promote {candidate.sha256[:12]}"
    with (
        Journal(run.journal_path) as journal,
        lazy_harness(lambda: make_harness(target, config)) as harness,
        interruptible("the promotion", go_on),
    ):
        review = last_review(Archive(catalog.root.local), candidate.sha256)
        attempt = _Attempt(
            catalog, promotable, incumbent, config, journal, harness, overridden, review
        )
        sweep, conditions = attempt.measure()
        failed = [condition for condition in conditions if not condition.ok]
        if failed:
            applied, detail = False, f"not applied: {failed[0].name} is {failed[0].measured}"
        else:
            notify(f"promoting {candidate.name}")
            record = attempt.promote(sweep, conditions)
            applied, detail = record.applied, record.detail
        outcome = attempt.outcome(run.id, sweep, conditions, applied=applied, detail=detail)
        journal.put(PROMOTE_KEY, outcome.model_dump(mode="json"))
    return outcome


class _Attempt(NamedTuple):
    """One ``kopt promote``: what is measured, and what follows."""

    catalog: Catalog
    promotable: Promotable
    incumbent: Solution
    config: RunConfig
    journal: Journal
    harness: Callable[[], Harness]
    overridden: tuple[str, ...]
    review: Review | None
    """The newest on record."""

    def measure(self) -> tuple[SweepResult, tuple[Condition, ...]]:
        """The sweep, and where all else holds the validation; with all conditions."""
        rules = self.config.conditions
        sweep = SweepResult.model_validate(self._recorded("sweep", self._sweep))
        conditions = promotion_conditions(
            sweep,
            workloads=self.catalog.workloads(self.promotable.definition),
            public_seed=self.config.measure.seed,
            rules=rules,
            overridden=self.overridden,
        )
        if self.review is not None:
            conditions = (*conditions, review_condition(self.review, self.overridden))
        validation = None
        if awaits_validation(conditions, rules):
            validation = Validation.model_validate(self._recorded("validation", self._validate))
        further = validation_conditions(sweep, validation, rules=rules, overridden=self.overridden)
        return sweep, (*conditions, *further)

    def promote(self, sweep: SweepResult, conditions: tuple[Condition, ...]) -> PromotionRecord:
        """Writes the evidence and moves the pointer."""
        candidate, definition, target = self.promotable
        observations = self._observe()
        decision = Decision(
            label="promote",
            code="re-verified",
            reason="every condition held in a sweep of the archived bytes",
            evidence=conditions,
        )
        promotion = Promotion(
            candidate=candidate,
            incumbent=self.incumbent,
            sweep=sweep,
            decision=decision,
            state=derive_state(observations),
            profiles=tuple(observation.profile for observation in observations),
            rules=self.config.conditions,
            samples_prefixes=(self._key("sweep"), self._key("validation")),
        )
        floors = floors_of(self.catalog, definition, target)
        promoter = Promoter(
            self.catalog, definition, target.name, journal=self.journal, floors=floors
        )
        return promoter.apply(promotion, mode="command", overridden=self.overridden)

    def outcome(
        self,
        run: str,
        sweep: SweepResult,
        conditions: tuple[Condition, ...],
        *,
        applied: bool,
        detail: str,
    ) -> PromoteOutcome:
        """What is recorded and reported."""
        candidate, definition, target = self.promotable
        comparison = sweep.comparison
        return PromoteOutcome(
            run=run,
            definition=definition.name,
            target=target.name,
            candidate=_ref(candidate),
            incumbent=_ref(self.incumbent),
            incumbent_after=_ref(candidate if applied else self.incumbent),
            ratio=None if comparison is None else comparison.ratio,
            ci=None if comparison is None else comparison.ci,
            conditions=conditions,
            overridden=self.overridden,
            applied=applied,
            detail=detail,
        )

    def _key(self, what: str) -> str:
        return f"{what}/{self.promotable.candidate.sha256[:12]}"

    def _recorded(self, what: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return recorded(self.journal, f"{self._key(what)}/outcome", measure)

    def _sweep(self) -> dict[str, Any]:
        workloads = self.catalog.workloads(self.promotable.definition)
        units = self.journal.scoped(self._key("sweep"))
        inputs = self.config.conditions.min_distinct_inputs
        candidate = self.promotable.candidate
        found = self.harness().sweep(candidate, self.incumbent, workloads, units, inputs)
        return found.model_dump(mode="json")

    def _validate(self) -> dict[str, Any]:
        workloads = [representative.workload for representative in self._representatives()]
        units = self.journal.scoped(self._key("validation"))
        candidate = self.promotable.candidate
        found = self.harness().validate(candidate, self.incumbent, workloads, units)
        return found.model_dump(mode="json")

    def _representatives(self) -> tuple[Representative, ...]:
        _, definition, target = self.promotable
        return representatives_of(self.catalog, definition, target, self.config.gate_workloads)

    def _observe(self) -> list[Observation]:
        candidate = self.promotable.candidate
        return observed(
            self._representatives(),
            lambda workload: self.harness().profile(candidate, workload, self.journal),
            {},
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


def create_run(
    catalog: Catalog,
    promotable: Promotable,
    incumbent: Solution,
    config: RunConfig,
    overridden: tuple[str, ...] = (),
    *,
    applies: str | None = None,
) -> Run:
    """The folder of one ``kopt promote``, with what it was asked for.

    Args:
        catalog: Has the archive.
        promotable: What is to be promoted.
        incumbent: What it is compared with; kept.
        config: How it is measured, and what is required.
        overridden: Flags that the user accepts.
        applies: ``RUN/ROUND`` whose decision is applied as it is.
    """
    candidate, definition, target = promotable
    archive = Archive(catalog.root.local)
    archive.put(incumbent)
    manifest = {
        "kind": PROMOTE,
        "by": user(),
        "definition": definition.name,
        "target": target.name,
        "candidate": candidate.sha256,
        "candidate_name": candidate.name,
        "incumbent": incumbent.sha256,
        "overridden_flags": list(overridden),
        "config": config.model_dump(mode="json"),
    }
    if applies is not None:
        manifest["applies"] = applies
    return archive.create_run(f"promote-{definition.kopt.alias}-{target.name}", manifest)


def user() -> str | None:
    """Who asked for it, as the system knows them; kept on this machine only."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _ref(solution: Solution) -> CandidateRef:
    return CandidateRef(name=solution.name, sha256=solution.sha256)
