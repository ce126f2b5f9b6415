"""From sources to something that loads, in a process that never holds the GPU.

``build_in_worker`` is the whole interface of the orchestrator; candidate workers use
``kopt_harness.build.loading.load``. A language is one module of this folder
(``protocol.Builder``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from kopt_harness.schema import BuildResult, Definition, Solution, SolutionRef
from kopt_harness.targets import get_target

from ._process import run_builder_process
from ._registry import get_builder, list_builders
from ._store import BuildStore, build_key
from .protocol import Builder, BuildRequest, Outcome, Plan

__all__ = [
    "BuildRequest",
    "Builder",
    "Outcome",
    "Plan",
    "build_in_worker",
    "get_builder",
    "list_builders",
]

_failed: dict[tuple[str, str], BuildResult] = {}
"""Failures of this process, by cache folder and key: a failure is not worth the disk."""


def build_in_worker(
    solution: Solution,
    target_name: str,
    cache: Path,
    *,
    definition: Definition | None = None,
    axes: Mapping[str, int] | None = None,
    timeout_s: float = 600.0,
) -> BuildResult:
    """Build a solution for a target, or take it from the cache.

    The target need not be in this machine.

    Args:
        solution: What to build.
        target_name: As ``cpu`` or ``h200``.
        cache: Folder of built solutions; created.
        definition: Gives shapes and dtypes to what is compiled ahead (Triton).
        axes: Extents of the axes for what is compiled ahead (Triton, CuTe DSL); with a
            definition the variable axes are enough.
        timeout_s: Wall-clock limit; past it the result has ``timed_out``.

    Returns:
        ``ok`` false where the solution does not build; ``log`` says why.

    Raises:
        UnavailableError: A toolchain is missing, or cannot serve the target.
        NotFoundError: The target is unknown.
    """
    started = time.monotonic()
    bound = dict(axes) if axes is not None else None
    if definition is not None and bound is not None:
        bound = definition.bind(bound)
    target = get_target(target_name)
    request = BuildRequest(
        solution=solution,
        target=target.name,
        kind=target.kind,
        arch=target.arch,
        definition=definition,
        axes=bound,
    )
    plan = get_builder(solution.spec.language).plan(request)
    key = build_key(request, plan)
    store = BuildStore(cache)
    ref = SolutionRef(name=solution.name, definition=solution.definition, sha256=solution.sha256)
    failure_key = (str(cache.absolute()), key)
    known = store.get(key, ref) or _failed.get(failure_key)
    if known is not None:
        seconds = time.monotonic() - started
        return known.model_copy(update={"solution": ref, "cached": True, "seconds": seconds})
    with store.stage() as staging:
        staging.write_sources(request)
        ran = run_builder_process(request, plan, staging, timeout_s=timeout_s)
        result = BuildResult(
            solution=ref,
            target=target.name,
            ok=ran.outcome.ok,
            artefacts=ran.outcome.artefacts,
            log=ran.outcome.log,
            key=key,
            seconds=ran.seconds,
            timed_out=ran.timed_out,
        )
        if result.ok:
            return store.publish(staging, result)
    if not result.timed_out:  # a later try may have more time
        _failed[failure_key] = result
    return result
