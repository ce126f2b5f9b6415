"""Runs an ablation: all campaigns, then what they found once more, independently.

It works on a copy of the definition in a folder of its own, so that nothing of it is retained
anywhere, and no campaign knows of another. Everything goes through a journal: an ablation that
was stopped or killed goes on, and what was measured is not measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from kopt_harness.archive import Archive, Run
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InterruptedRunError, LimitReachedError
from kopt_harness.journal import Journal, read_journal
from kopt_harness.ledger import recorded
from kopt_harness.retain import set_incumbent
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Solution, SweepResult, Verdict, Workload
from kopt_harness.targets import Target, get_target

from ..campaign import interruptible, open_campaign, start_campaign
from ..config import RunConfig
from ..dispatch import dispatcher, learn_rule, with_rule
from ..harness import Harness
from ..memory import Memory, closed_rounds
from ..result import CandidateRef, RoundResult
from ..world import World
from .design import FULL, GOAL, Arm, Cell, Plan, Scope, arm_of
from .estimate import Result, Results
from .shared import SharedHarness

__all__ = ["Ablation", "MakeHarnessIn"]

MakeHarnessIn = Callable[[Root, Target, RunConfig], Harness]
"""Makes what measures, for the definitions and the archive of a root."""


class Ablation(NamedTuple):
    """An ablation, ready to be run or continued."""

    run: Run
    plan: Plan
    root: Root
    """Of the copy that its campaigns work on."""
    make_harness: MakeHarnessIn
    notify: Callable[[str], None]

    def execute(self) -> Results:
        """Runs what is left, and measures what was found; incomplete where the budget ended it.

        Raises:
            InterruptedRunError: After Ctrl-C or a termination signal; the journal is safe.
        """
        with (
            Journal(self.run.journal_path) as journal,
            interruptible(f"the ablation {self.run.id}", f"kopt ablate --resume {self.run.id}"),
        ):
            found = self._search(journal)
            return self._measure(journal, found)

    def environment(self) -> dict[str, Any]:
        """In which the results were measured once more: that of the last epoch."""
        found = [r for r in read_journal(self.run.journal_path) if r.key.startswith("epoch/")]
        return dict(found[-1].value["environment"]) if found else {}

    @property
    def _catalog(self) -> Catalog:
        return Catalog(self.root)

    @property
    def _definition(self) -> Definition:
        return self._catalog.resolve_exact(self.plan.definition)

    @property
    def _start(self) -> Solution:
        ref = self.plan.start
        return Archive(self.root.local).get(ref.sha256).model_copy(update={"name": ref.name})

    def _harness(self, journal: Journal) -> SharedHarness:
        target = get_target(self.plan.target)
        return SharedHarness(
            target.name,
            lambda: self.make_harness(self.root, target, self.plan.config),
            journal.scoped("shared"),
            reuse=self.plan.reuse,
        )

    def _workloads(self, scope: Scope) -> list[Workload]:
        found = self._catalog.workloads(self._definition)
        return [w for w in found if scope == "whole" or w.uuid == self.plan.single]

    def _search(self, journal: Journal) -> dict[Cell, dict[str, Any]]:
        """What each campaign came to, as far as the budget allows."""
        begin = time.monotonic()
        harness = self._harness(journal)
        found: dict[Cell, dict[str, Any]] = {}
        cells = self.plan.cells()
        try:
            for number, cell in enumerate(cells, 1):
                outcome = journal.get(f"{cell.key}/outcome")
                limit = self.plan.total_s
                if outcome is None and limit is not None and time.monotonic() - begin > limit:
                    self.notify(f"the budget ends the ablation before campaign {number}")
                    break
                if outcome is None:
                    self.notify(f"campaign {number} of {len(cells)}: {cell.key}")
                    outcome = self._campaign(journal, cell, harness)
                    journal.put(f"{cell.key}/outcome", outcome)
                found[cell] = outcome
        finally:
            harness.end()
        return found

    def _campaign(self, journal: Journal, cell: Cell, harness: SharedHarness) -> dict[str, Any]:
        """Runs one campaign, or goes on with it."""
        kept = journal.get(f"{cell.key}/run")
        if kept is None:
            pointer = self._catalog.folder(self._definition) / "retained.toml"
            set_incumbent(pointer, self.plan.target, self._start)
            campaign = start_campaign(
                self.root,
                self.plan.definition,
                self.plan.config_of(cell),
                lambda *_: harness,
                self.notify,
                memory=Memory(),
            )
            journal.put(f"{cell.key}/run", {"run": campaign.run.id})
        else:
            campaign = open_campaign(self.root, kept["run"], lambda *_: harness, self.notify)
        workloads = self._workloads(cell.scope)

        def scoped(world: World) -> World:
            regroup = None if cell.scope == "single" else world.regroup
            return replace(world, workloads=workloads, sweep_workloads=workloads, regroup=regroup)

        try:
            rounds = campaign._replace(adapt=scoped).execute().rounds
        except LimitReachedError as error:
            # The limit is the same in all arms: what was closed before it is what it bought.
            self.notify(error.message)
            rounds = closed_rounds(read_journal(campaign.run.journal_path))
        except InterruptedRunError as error:
            # Its own hint goes on with this campaign alone.
            raise KeyboardInterrupt from error
        last = rounds[-1].incumbent if rounds else self.plan.start
        dispatch = self._dispatched(journal, cell, rounds, last, harness)
        return {
            "result": last.model_dump(mode="json"),
            "dispatch": None if dispatch is None else dispatch.model_dump(mode="json"),
            "evaluations": sum(len(result.candidates) for result in rounds),
            "rounds": len(rounds),
        }

    def _dispatched(
        self,
        journal: Journal,
        cell: Cell,
        rounds: tuple[RoundResult, ...],
        last: CandidateRef,
        harness: SharedHarness,
    ) -> CandidateRef | None:
        """The dispatcher that the rounds let expect most of, if a sweep finds it faster."""
        is_wanted = self.plan.applies(arm_of("dispatch"), cell.scope)
        if not is_wanted or cell.arm not in (GOAL, FULL):
            return None
        axes = self._definition.kopt.regime_axes
        archive = Archive(self.root.local)
        for result in reversed(rounds):
            comparison = None if result.sweep is None else result.sweep.comparison
            is_asked = result.decision.label == "promote-dispatch"
            is_about_last = result.incumbent_before.sha256 == last.sha256
            if comparison is None or result.best is None or not (is_asked and is_about_last):
                continue
            rule = learn_rule(comparison.workloads, axes)
            if rule is None:
                continue
            base = archive.get(last.sha256).model_copy(update={"name": last.name})
            part = archive.get(result.best.sha256).model_copy(update={"name": result.best.name})
            made = dispatcher(with_rule(base, part, rule), self._definition, archive.get)
            archive.put(made)
            units = journal.scoped(f"{cell.key}/dispatch/{harness.environment['epoch']}")
            sweep = harness.sweep(made, base, self._workloads("whole"), units)
            is_right = sweep.evaluation.verdict is Verdict.PASS and sweep.comparison is not None
            if is_right and sweep.comparison and sweep.comparison.decision == "faster":
                return CandidateRef(name=made.name, sha256=made.sha256)
            return None
        return None

    def _measure(self, journal: Journal, found: dict[Cell, dict[str, Any]]) -> Results:
        """Every result against the start, in one epoch, by new processes."""
        harness = self._harness(journal).inner
        results: dict[tuple[Scope, Arm], dict[int, Result]] = {}
        try:
            epoch = str(harness.environment["epoch"])
            key = f"epoch/{epoch}"
            recorded(journal, key, lambda: {"environment": dict(harness.environment)})

            def measured(ref: CandidateRef, scope: Scope) -> SweepResult | None:
                if ref.sha256 == self.plan.start.sha256:
                    return None
                return self._again(journal, epoch, harness, ref, scope)

            for cell, outcome in found.items():
                plain = CandidateRef.model_validate(outcome["result"])
                made = outcome["dispatch"]
                dispatch = plain if made is None else CandidateRef.model_validate(made)
                for arm, ref in _arms(self.plan, cell, plain, dispatch):
                    again = measured(ref, cell.scope)
                    on_single = again if cell.scope == "single" else measured(ref, "single")
                    result = _result(ref, again, on_single, outcome["evaluations"])
                    results.setdefault((cell.scope, arm), {})[cell.seed] = result
        finally:
            harness.close()
        return results

    def _again(
        self, journal: Journal, epoch: str, harness: Any, ref: CandidateRef, scope: Scope
    ) -> SweepResult:
        """One result against the start: checked, and timed in paired blocks."""
        key = f"measured/{epoch}/{scope}/{ref.sha256[:12]}"

        def take() -> dict[str, Any]:
            self.notify(f"measuring once more: {ref.name} ({scope})")
            solution = Archive(self.root.local).get(ref.sha256)
            solution = solution.model_copy(update={"name": ref.name})
            units = journal.scoped(f"{key}/units")
            found = harness.sweep(solution, self._start, self._workloads(scope), units)
            return SweepResult.model_validate(found).model_dump(mode="json")

        return SweepResult.model_validate(recorded(journal, f"{key}/outcome", take))


def _arms(
    plan: Plan, cell: Cell, plain: CandidateRef, dispatch: CandidateRef
) -> list[tuple[Arm, CandidateRef]]:
    """The arms that a campaign stands for: a dispatcher is made of what goal-only has found."""
    if cell.arm == FULL:
        return [(FULL, dispatch)]
    found = [(cell.arm, plain)]
    arm = arm_of("dispatch")
    if cell.arm == GOAL and plan.applies(arm, cell.scope):
        found.append((arm, dispatch))
    return found


def _result(
    ref: CandidateRef, again: SweepResult | None, single: SweepResult | None, evaluations: int
) -> Result:
    """What was not right when it was measured once more has reached nothing."""
    ratio, ci, is_right = _ratio(again)
    single_ratio, single_ci, _ = _ratio(single)
    return Result(
        sha256=ref.sha256,
        name=ref.name,
        ratio=ratio,
        ci=ci,
        evaluations=evaluations,
        single_ratio=single_ratio,
        single_ci=single_ci,
        is_right=is_right,
    )


def _ratio(sweep: SweepResult | None) -> tuple[float, tuple[float, float], bool]:
    if sweep is None:
        return 1.0, (1.0, 1.0), True
    comparison = sweep.comparison
    is_right = sweep.evaluation.verdict is Verdict.PASS
    if not is_right or comparison is None or comparison.ratio is None or comparison.ci is None:
        return 1.0, (1.0, 1.0), False
    return comparison.ratio, (comparison.ci[0], comparison.ci[1]), True
