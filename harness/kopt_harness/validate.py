"""The last look at a candidate: archived bytes, an empty build cache, processes of its own.

What a sweep has found may rest on something that only that session had: a build that was in
the cache, a warm process, addresses that happened to fit. Here nothing of it is left. The
candidate is built from its archived bytes where nothing was built before, and new processes
check and time it against the incumbent on representative workloads, with inputs of new seeds.
Most of these are drawn while the compiler runs; each check has one that is drawn after loading.
On a GPU its times are then held against those of a profiler outside of its process.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kopt_harness.ahead import build_ahead
from kopt_harness.archive import Archive
from kopt_harness.confirm import confirm
from kopt_harness.evaluate import build
from kopt_harness.gate import gate
from kopt_harness.ledger import Ledger, recorded
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.schema import (
    BuildResult,
    Confirmation,
    GateResult,
    Solution,
    Validation,
    Workload,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting

__all__ = ["validate"]


def validate(
    setting: Setting,
    candidate: Solution,
    incumbent: Solution,
    workloads: Sequence[Workload],
    ledger: Ledger,
) -> Validation:
    """Builds and judges once more.

    Args:
        setting: catalog, target and options; its build cache is not used.
        candidate: what is to be promoted; its bytes are read from the archive.
        incumbent: what it must not be slower than.
        workloads: representatives of each regime.
        ledger: completed units of this validation, none of an earlier measurement.

    Raises:
        InvalidInputError: the archived bytes are not those of the candidate.
        NotFoundError: they are not in the archive.
        UnavailableError: a toolchain, timer or device is missing.
    """
    archived = Archive(setting.catalog.root.local).get(candidate.sha256)
    archived = archived.model_copy(update={"name": candidate.name})
    with _empty_cache(setting) as clean:
        built, result = _rebuilt(clean, archived, incumbent, workloads, ledger)
        confirmation = None
        if result is not None and result.passed:
            confirmation = _confirmed(clean, archived, built, result, ledger)
    kept = {"path": "", "log": "" if built.ok else built.log}
    return Validation(built=built.model_copy(update=kept), gate=result, confirmation=confirmation)


def _rebuilt(
    setting: Setting,
    candidate: Solution,
    incumbent: Solution,
    workloads: Sequence[Workload],
    ledger: Ledger,
) -> tuple[BuildResult, GateResult | None]:
    """The build, and the gate where there is one to judge."""
    definition = setting.catalog.resolve(candidate.definition)
    with Session(setting, definition, workloads) as session, ThreadPoolExecutor(1) as beside:
        other = beside.submit(build_ahead, setting, [incumbent])
        drawing = beside.submit(_draw, setting, session, workloads)
        built = build(setting, candidate)
        other.result()
        drawing.result()
        if not built.ok:
            return built, None
        return built, gate(setting, candidate, incumbent, workloads, ledger, session=session)


def _confirmed(
    setting: Setting,
    solution: Solution,
    built: BuildResult,
    gated: GateResult,
    ledger: Ledger,
) -> Confirmation:
    """On the workloads of the gate; one ledger unit."""
    rows = () if gated.comparison is None else gated.comparison.workloads
    claimed_us = {row.uuid: row.b_median_us for row in rows if row.b_median_us is not None}
    every = setting.catalog.workloads(setting.catalog.resolve(solution.definition))
    workloads = [workload for workload in every if workload.uuid in claimed_us]

    def measure() -> dict[str, Any]:
        found = confirm(setting, solution, built, workloads, claimed_us=claimed_us)
        return found.model_dump(mode="json")

    key = f"confirmation/{solution.sha256[:12]}"
    return Confirmation.model_validate(recorded(ledger, key, measure))


def _draw(setting: Setting, session: Session, workloads: Sequence[Workload]) -> None:
    """What a gate will check with; a set that is invalid is found so again there."""
    for workload in workloads:
        with suppress(CandidateFailedError):
            session.bind(workload)
            first, *others = session.generators
            session.sets(first, setting.options.trials)
            for generator in others:
                session.sets(generator, 1)


@contextmanager
def _empty_cache(setting: Setting) -> Iterator[Setting]:
    """The setting with a build cache that is new, and removed afterwards."""
    local = setting.catalog.root.local
    local.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="rebuild-", dir=local, ignore_cleanup_errors=True
    ) as folder:
        yield dataclasses.replace(setting, builds=Path(folder))
