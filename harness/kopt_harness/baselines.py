"""Baselines: peers for reporting, timed in paired blocks with a candidate; never candidates.

A baseline is named on the command line or in a run configuration. ``reference`` is the PyTorch
reference of the definition, packed from its ``reference.py``, so that there is one text of it.
Every other name is a folder in ``kernels/<id>/peers/``, or else one in ``solutions/``. A peer
calls a library, declares it as a dependency, and is listed by nothing that looks for candidates.

A baseline's ratio is its mean latency over that of the candidate: above 1 the candidate is
faster. That is the inverse of a comparison's ratio, in which the baseline is A.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from kopt_harness.bench.stats import Levels, interval_of
from kopt_harness.catalog import Catalog
from kopt_harness.compare import Pair, compare_pair
from kopt_harness.conclusion import levels_of
from kopt_harness.errors import NotFoundError, UnavailableError
from kopt_harness.files import read_text
from kopt_harness.graphed import REPLAYED, graphed
from kopt_harness.lease import device_lease
from kopt_harness.ledger import Ledger
from kopt_harness.pack import pack
from kopt_harness.schema import (
    BestBaseline,
    BuildSpec,
    Comparison,
    Definition,
    Evaluation,
    Solution,
    SourceFile,
    SweepResult,
    Verdict,
    Workload,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.targets import Target, runs_on
from kopt_harness.timings import with_pair

__all__ = [
    "GRAPH",
    "REFERENCE",
    "Measured",
    "baseline_names",
    "baselines_document",
    "compare_baselines",
    "find_baseline",
    "find_baselines",
    "peer_names",
    "peers_among",
    "reference_latency",
    "reference_solution",
    "require_usable",
    "workload_medians",
]

REFERENCE = "reference"
"""Name of the baseline that every definition has, on every target."""

GRAPH = "@graph"
"""Behind the name of a baseline: replayed from a CUDA graph."""

_INTERPRETED = frozenset({"python", "triton"})
"""Languages whose dependencies are Python distributions, not libraries to link with."""


class Measured(NamedTuple):
    """What timing a candidate beside its baselines has found."""

    evaluation: Evaluation
    """Of the candidate, with what its timed calls there have shown."""
    comparisons: dict[str, Comparison]
    best: BestBaseline | None


def peer_names(catalog: Catalog, definition: Definition) -> list[str]:
    """Names of the peer folders of a definition, sorted."""
    files = (catalog.folder(definition) / "peers").glob("*/config.toml")
    return sorted(file.parent.name for file in files)


def baseline_names(catalog: Catalog, definition: Definition) -> list[str]:
    """What ``--baseline`` accepts for a definition: the reference, peers, solutions."""
    return [REFERENCE, *peer_names(catalog, definition), *catalog.solution_names(definition)]


def find_baseline(catalog: Catalog, definition: Definition, name: str) -> Solution:
    """A baseline, packed.

    Args:
        catalog: of the definition.
        definition: that it solves.
        name: of a baseline, or with ``@graph`` behind it: each call a replay of a CUDA graph.

    Raises:
        NotFoundError: If the definition has none of this name; lists those that it has.
        InvalidInputError: If its folder is malformed, or it cannot be replayed.
    """
    plain = name.removesuffix(GRAPH)
    if plain != name:
        return graphed(find_baseline(catalog, definition, plain))
    if name == REFERENCE:
        return reference_solution(catalog, definition)
    if name in peer_names(catalog, definition):
        return pack(catalog.folder(definition) / "peers" / name, known=catalog).solution
    if name in catalog.solution_names(definition):
        return catalog.solution(definition, name).solution
    raise NotFoundError(
        f"{definition.kopt.alias} has no baseline {name!r}",
        hint=f"one of {', '.join(baseline_names(catalog, definition))}",
    )


def peers_among(catalog: Catalog, *solutions: Solution) -> frozenset[str]:
    """SHA-256 of those of some solutions that are peers of their definition, plain or replayed.

    A peer has the name of its folder; no other folder is read.
    """
    found = set()
    for solution in solutions:
        definition = catalog.resolve(solution.definition)
        for peer in peer_names(catalog, definition):
            for name, packed in ((peer, peer), (f"{peer}{GRAPH}", f"{peer}{REPLAYED}")):
                if solution.name == packed:
                    found.add(find_baseline(catalog, definition, name).sha256)
    return frozenset(found & {each.sha256 for each in solutions})


def find_baselines(setting: Setting, definition: Definition) -> dict[str, Solution]:
    """The baselines that the options of a setting name, each checked to be usable here.

    Raises:
        NotFoundError: If the definition lacks one.
        UnavailableError: If one does not run on the target, or lacks a package.
    """
    found = {}
    for name in setting.options.baselines:
        found[name] = find_baseline(setting.catalog, definition, name)
        require_usable(found[name], setting.target)
    return found


def reference_solution(catalog: Catalog, definition: Definition) -> Solution:
    """The PyTorch reference of a definition as a solution that returns its outputs."""
    text = read_text(catalog.folder(definition) / "reference.py", "reference.py")
    return Solution(
        name=REFERENCE,
        definition=definition.name,
        author="kopt",
        description=f"The PyTorch reference of {definition.kopt.alias}; a baseline.",
        spec=BuildSpec(
            language="python",
            target_hardware=("cpu", "cuda"),
            entry_point="kernel.py::run",
            destination_passing_style=False,
        ),
        sources=(SourceFile(path="kernel.py", content=text),),
    )


def require_usable(solution: Solution, target: Target) -> None:
    """Refuses a baseline that cannot run here, before anything is measured.

    Raises:
        UnavailableError: If it is not for the target, or a package that it declares is missing
            or of another version.
    """
    if not runs_on(solution, target):
        hardware = ", ".join(solution.spec.target_hardware)
        raise UnavailableError(
            f"the baseline {solution.name!r} is for {hardware}, not {target.name!r}",
            hint=f"choose another target, or --baseline {REFERENCE}",
        )
    if solution.spec.language not in _INTERPRETED:
        return
    for requirement in solution.spec.dependencies:
        name, _, version = requirement.partition("==")
        here = _installed(re.split(r"[^A-Za-z0-9._-]", name.strip(), maxsplit=1)[0])
        if here is None or (version and here != version.strip()):
            other = "which is not installed" if here is None else f"and {here} is installed"
            raise UnavailableError(
                f"the baseline {solution.name!r} needs {requirement}, {other}",
                hint=f"pip install {requirement!r}, in the environment that kopt runs in",
            )


def compare_baselines(
    setting: Setting,
    session: Session,
    ledger: Ledger,
    *,
    evaluation: Evaluation,
    solution: Solution,
    baselines: Mapping[str, Solution],
    workloads: Sequence[Workload],
) -> Measured:
    """Times a correct solution beside each baseline: ABBA blocks, one lease for each baseline.

    A baseline that gives a wrong answer ends its own comparison and says so in its reason; the
    solution's verdict is its own. A peer is held to the contest's rule alone, in 99 of 100 elements
    of each output: a library may round as it does. What a tier has against it stands in
    ``deviations``.

    Args:
        setting: catalog, target and options.
        session: warm, with an arena that fits the workloads.
        ledger: completed blocks.
        evaluation: of the solution so far.
        solution: the candidate.
        baselines: by the name under which each was chosen.
        workloads: those to time.
    """
    comparisons: dict[str, Comparison] = {}
    pairs: dict[str, Pair] = {}
    for name, peer in baselines.items():
        # A candidate that is a copy of it is judged as a candidate.
        peers = peers_among(setting.catalog, peer) - {solution.sha256}
        pair = Pair.of(setting, session, ledger, peer, solution, peers=peers)
        if any(result.timing is None for result in evaluation.workloads):
            with device_lease(setting.device_id):
                for workload in workloads:
                    pair.measure(workload, 1)
        comparisons[name] = compare_pair(pair, workloads)
        pairs[name] = pair
        if peer.sha256 != solution.sha256:
            session.discard(peer.sha256)  # its memory is the next one's
        evaluation = _with_baseline(evaluation, pair)
        if evaluation.verdict != Verdict.PASS:
            break
    levels = {
        name: levels_of(pair, workloads)
        for name, pair in pairs.items()
        if name != REFERENCE and not pair.failure
    }
    best = _best(levels, comparisons, workloads, setting)
    return Measured(evaluation, comparisons, best)


def baselines_document(sweep: SweepResult) -> dict[str, Any]:
    """``baselines`` and ``best_baseline`` of result files and retained evidence."""
    best = sweep.best_baseline
    return {
        "baselines": {name: _summary(each) for name, each in sweep.baselines.items()},
        "best_baseline": None if best is None else best.model_dump(mode="json"),
    }


def workload_medians(sweep: SweepResult, uuid: str) -> dict[str, float | None]:
    """Median of each baseline on a workload in microseconds; None where it was not timed."""
    return {
        name: next((w.a_median_us for w in each.workloads if w.uuid == uuid), None)
        for name, each in sweep.baselines.items()
    }


def reference_latency(sweep: SweepResult, uuid: str) -> dict[str, Any]:
    """``reference_latency_ms`` of a workload: of the PyTorch reference, or null and why."""
    median_us = workload_medians(sweep, uuid).get(REFERENCE)
    if median_us is not None:
        return {"reference_latency_ms": median_us / 1e3}
    known = sweep.baselines.get(REFERENCE)
    reason = f"not asked for; --baseline {REFERENCE} measures it"
    if known is not None:
        reason = known.reason or "fewer than two blocks"
    return {"reference_latency_ms": None, "reference_latency_reason": reason}


def _summary(comparison: Comparison) -> dict[str, Any]:
    """One baseline over the candidate."""
    ratio, ci = comparison.ratio, comparison.ci
    deviation = comparison.deviations.get(comparison.a.name)
    return {
        "name": comparison.a.name,
        "sha256": comparison.a.sha256,
        "mean_us": comparison.a_mean_us,
        "ratio": None if ratio is None else 1 / ratio,
        "ci": None if ci is None else [1 / ci[1], 1 / ci[0]],
        "confidence": comparison.confidence,
        "reason": comparison.reason,
        "deviation": None if deviation is None else deviation.detail,
    }


def _best(
    levels: Mapping[str, Mapping[str, Levels]],
    comparisons: Mapping[str, Comparison],
    workloads: Sequence[Workload],
    setting: Setting,
) -> BestBaseline | None:
    """Chooses the peer with the smallest median on each workload.

    Choosing by medians that are noisy favours the peers, not the candidate.
    """
    if not levels:
        return None
    fastest: dict[str, str] = {}
    ratios: list[float] = []
    for workload in workloads:
        rows = {
            name: next(w for w in comparisons[name].workloads if w.uuid == workload.uuid)
            for name in levels
        }
        timed = {n: row.a_median_us for n, row in rows.items() if row.a_median_us is not None}
        if timed:
            name = min(timed, key=lambda n: timed[n])
            fastest[workload.uuid] = name
            ratios.append(1 / (rows[name].ratio or 1.0))
    missing = len(workloads) - len(fastest)
    if missing:
        reason = f"{missing} of {len(workloads)} workloads have no timed peer"
        return BestBaseline(
            ratio=None, ci=None, per_workload_min=None, reason=reason, fastest=fastest
        )
    chosen = [levels[fastest[workload.uuid]][workload.uuid] for workload in workloads]
    interval = interval_of(chosen, setting.options.confidence, rounds=setting.rounds)
    return BestBaseline(
        ratio=1 / interval.ratio,
        ci=(1 / interval.hi, 1 / interval.lo),
        per_workload_min=min(ratios),
        fastest=fastest,
    )


def _with_baseline(evaluation: Evaluation, pair: Pair) -> Evaluation:
    """Flags and faults of the candidate's timed calls; timings that it has stay as they are."""
    found = with_pair(evaluation, pair)
    rows = zip(evaluation.workloads, found.workloads, strict=True)
    kept = tuple(before if before.timing else after for before, after in rows)
    return found.model_copy(update={"workloads": kept})


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
