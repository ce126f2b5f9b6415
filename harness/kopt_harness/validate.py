"""The last look at a candidate: archived bytes, an empty build cache, processes of its own.

What a sweep has found may rest on something that only that session had: a build that was in
the cache, a warm process, addresses that happened to fit. Here nothing of it is left. The
candidate is built from its archived bytes where nothing was built before, and new processes
check and time it against the incumbent on representative workloads, with inputs of new seeds.
Most of these are drawn while the compiler runs; each check has one that is drawn after loading.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from kopt_harness.ahead import build_ahead
from kopt_harness.archive import Archive
from kopt_harness.evaluate import build
from kopt_harness.gate import gate
from kopt_harness.ledger import Ledger
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.schema import Solution, Validation, Workload
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
    definition = setting.catalog.resolve(candidate.definition)
    with (
        _empty_cache(setting) as clean,
        Session(clean, definition, workloads) as session,
        ThreadPoolExecutor(1) as beside,
    ):
        other = beside.submit(build_ahead, clean, [incumbent])
        drawing = beside.submit(_draw, clean, session, workloads)
        built = build(clean, archived)
        other.result()
        drawing.result()
        result = None
        if built.ok:
            result = gate(clean, archived, incumbent, workloads, ledger, session=session)
    kept = {"path": "", "log": "" if built.ok else built.log}
    return Validation(built=built.model_copy(update=kept), gate=result)


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
