"""Can the workloads of a definition tell right from wrong: ``kopt calibrate``.

For each workload and generator the judge runs null kernels (``check/null_kernels.py``)
through the definition's own comparison. A workload is ``invalid`` where the strict tier
accepts one of them, where its reference always gives the same answer, or where it refuses
what it computed itself. What the contest tier accepts is recorded and decides nothing: its
tolerances are what they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from kopt_harness.catalog import Catalog
from kopt_harness.check.null_kernels import ROUNDED
from kopt_harness.errors import NotFoundError
from kopt_harness.ledger import Ledger, recorded
from kopt_harness.schema import Definition, Model, Reason, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting

__all__ = [
    "Calibration",
    "GeneratorCalibration",
    "NullResult",
    "WorkloadCalibration",
    "calibrate",
    "definition_digest",
]

_TIMEOUT_S = 7200.0
"""One generator of one workload: a dozen references and a hundred comparisons."""

Progress = Callable[[Workload, "WorkloadCalibration"], None]


class NullResult(Model):
    """What the tiers said of one null kernel."""

    name: str
    """Of the kernel, and behind a colon the output or axis that is wrong."""
    contest: Literal["pass", "fail", "invalid", "n/a", "not-applicable"]
    strict: Literal["pass", "fail", "invalid", "not-applicable"]
    """``fail``: recognised. ``not-applicable``: it is right on these inputs."""


class GeneratorCalibration(Model):
    """Null kernels on one input set of one generator."""

    generator: str
    kind: Literal["contest", "stress"]
    nulls: tuple[NullResult, ...]
    problems: tuple[Reason, ...] = ()
    """What makes the workload invalid."""
    influence: dict[str, Literal["yes", "no", "untested"]] = {}
    """By input, on contest generators with a fast reference: does it change the answer."""
    varied: Literal["yes", "no", "unchecked"]
    """Whether the set was changed by the definition's ``vary``, and that was checked."""
    reference_s: float
    """The fastest run of the reference on sets of this size."""
    wall_s: float

    def accepted(self, tier: Literal["contest", "strict"]) -> tuple[str, ...]:
        """Null kernels that a tier takes for right."""
        return tuple(null.name for null in self.nulls if getattr(null, tier) == "pass")


class WorkloadCalibration(Model):
    """All generators on one workload."""

    uuid: str
    axes: dict[str, int]
    verdict: Verdict
    """``pass`` or ``invalid``."""
    reasons: tuple[Reason, ...] = ()
    generators: tuple[GeneratorCalibration, ...]

    def count(self, tier: Literal["contest", "strict"], verdict: str) -> int:
        """How many null kernels got a verdict, over all generators."""
        return sum(
            getattr(null, tier) == verdict for each in self.generators for null in each.nulls
        )


class Calibration(Model):
    """The document of ``kopt calibrate``."""

    definition: str
    target: str
    verdict: Verdict
    workloads: tuple[WorkloadCalibration, ...]
    environment: dict[str, Any] = {}

    def precision(self) -> dict[str, list[str]]:
        """Roundings that the strict tier accepts, and the generators on which it does."""
        return self._accepted("strict", rounded=True)

    def contest_accepts(self) -> dict[str, list[str]]:
        """Null kernels that the contest tier accepts, and the generators on which it does."""
        return self._accepted("contest", rounded=None)

    def without_influence(self) -> tuple[str, ...]:
        """Inputs that were tested and never changed an answer."""
        found = [each.influence for w in self.workloads for each in w.generators]
        names = {name for influence in found for name in influence}
        yes = {n for influence in found for n, answer in influence.items() if answer == "yes"}
        return tuple(sorted(names - yes))

    def document(self) -> dict[str, Any]:
        """JSON-able, with the summaries beside the results."""
        return {
            **self.model_dump(mode="json"),
            "precision": self.precision(),
            "contest_accepts": self.contest_accepts(),
            "without_influence": list(self.without_influence()),
        }

    def _accepted(
        self, tier: Literal["contest", "strict"], *, rounded: bool | None
    ) -> dict[str, list[str]]:
        found: dict[str, set[str]] = {}
        for workload in self.workloads:
            for each in workload.generators:
                for name in each.accepted(tier):
                    if rounded in (None, name.startswith(ROUNDED)):
                        found.setdefault(name, set()).add(each.generator)
        return {name: sorted(found[name]) for name in sorted(found)}


def calibrate(
    setting: Setting,
    definition: Definition,
    workloads: Sequence[Workload],
    ledger: Ledger,
    *,
    generators: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Null kernels on workloads; one ledger unit for each workload and generator.

    Args:
        setting: catalog, target and options.
        definition: the operator.
        workloads: of the definition.
        ledger: completed units are taken from it and added to it.
        generators: names; None takes all.
        progress: called after each workload.

    Raises:
        InfraError: the machine failed.
        NotFoundError: no such generator.
    """
    digest = definition_digest(setting.catalog, definition)
    patient = max(setting.options.judge_timeout_s, _TIMEOUT_S)
    options = setting.options.model_copy(update={"judge_timeout_s": patient})
    results = []
    with Session(replace(setting, options=options), definition, workloads) as session:
        for workload in workloads:
            session.bind(workload)
            found = [
                recorded(
                    ledger,
                    f"calibrate/{digest}/{workload.uuid}/{name}",
                    lambda name=name: session.calibrate(name),  # type: ignore[misc]
                )
                for name in _chosen(session, generators)
            ]
            result = _conclude(workload, [GeneratorCalibration.model_validate(f) for f in found])
            results.append(result)
            if progress is not None:
                progress(workload, result)
    return Calibration(
        definition=definition.name,
        target=setting.target.name,
        verdict=Verdict.combine(result.verdict for result in results),
        workloads=tuple(results),
        environment=setting.environment,
    )


def _chosen(session: Session, names: Sequence[str] | None) -> list[str]:
    for name in names or ():
        if name not in session.generators:
            raise NotFoundError(
                f"{session.definition.kopt.alias} has no generator {name!r}",
                hint=f"one of {', '.join(session.generators)}",
            )
    return [name for name in session.generators if names is None or name in names]


def definition_digest(catalog: Catalog, definition: Definition) -> str:
    """Of what a calibration depends on: the definition and its modules."""
    folder = catalog.folder(definition)
    digest = hashlib.sha256()
    for name in ("definition.json", "reference.py", "inputs.py", "check.py"):
        path = folder / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(f"{name}:{len(content)}:".encode() + content)
    return digest.hexdigest()[:12]


def _conclude(workload: Workload, found: list[GeneratorCalibration]) -> WorkloadCalibration:
    reasons = [
        problem.model_copy(update={"detail": f"generator {each.generator}: {problem.detail}"})
        for each in found
        for problem in each.problems
    ]
    return WorkloadCalibration(
        uuid=workload.uuid,
        axes=workload.axes,
        verdict=Verdict.INVALID if reasons else Verdict.PASS,
        reasons=tuple(reasons),
        generators=tuple(found),
    )
