"""Triton: the sources, and the kernels that representative arguments compile to.

A dry launch needs no GPU: the entry function, or ``precompile(axes)`` where the entry module
defines it, runs in the builder process on zeros while every kernel launch only compiles.
The cubins are for reporting; a candidate compiles again, for its own arguments.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kopt_harness.cubin import kernel_usage
from kopt_harness.errors import UnavailableError
from kopt_harness.schema import Artefact, Solution
from kopt_harness.untrusted import candidate_code

from . import _native
from ._cubin import CUBIN_FOLDER
from ._package import check_sources, import_entry, load_entry
from .protocol import BuildRequest, Job, Outcome, Plan

__all__ = ["BUILDER"]

_HOOK = "precompile"

_UNREPRESENTATIVE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What host code may raise only because it was given zeros on a CPU."""


class _TritonBuilder:
    language = "triton"
    native = False

    def plan(self, request: BuildRequest) -> Plan:
        if request.kind != "cuda":
            raise UnavailableError(
                f"a Triton solution cannot be built for the target {request.target!r}",
                hint="build it for a GPU target, as --target h200; that needs no GPU",
            )
        hint = "pip install triton, or kopt with its gpu extra"
        _native.package_folder("triton", hint=hint)
        versions = {name: _native.package_version(name) for name in ("triton", "torch")}
        return Plan(toolchain=versions, ahead=True)

    def compile(self, job: Job) -> Outcome:
        request, solution = job.request, job.request.solution
        checked = check_sources(solution)
        if not checked.ok:
            return checked
        module = Artefact(kind="module", arch=request.host_arch, name=solution.spec.entry_file)
        if request.axes is None:
            note = "no axes given: no kernel was compiled ahead"
            return Outcome(ok=True, artefacts=(module,), log=note)
        launched = _dry_launch(job)
        return launched.model_copy(update={"artefacts": (module, *launched.artefacts)})

    def load(self, folder: Path, solution: Solution) -> Callable[..., Any]:
        return load_entry(folder, solution)


def _dry_launch(job: Job) -> Outcome:
    """Run host code with launches turned into compilations; compile errors pass through."""
    from triton.errors import TritonError

    from ._dry_torch import dry_cuda, zero_arguments
    from ._dry_triton import install

    request, spec = job.request, job.request.solution.spec
    assert request.axes is not None, "a dry launch needs axes"
    launches = install(request.capability)
    notes: list[str] = []
    with dry_cuda(request.capability):
        try:
            with candidate_code():
                entry = import_entry(job.folder, request.solution)
            if hasattr(entry, _HOOK):
                with candidate_code():
                    getattr(entry, _HOOK)(dict(request.axes))
            elif request.definition is not None:
                outputs = spec.destination_passing_style
                arguments = zero_arguments(request.definition, request.axes, outputs=outputs)
                with candidate_code():
                    getattr(entry, spec.entry_function)(*arguments)
            else:
                notes.append(f"no definition given, and no {_HOOK}(): nothing compiled ahead")
        except TritonError:
            raise
        except _UNREPRESENTATIVE:
            notes += ["the dry launch on zeros ended in host code:", traceback.format_exc()]
    if launches.configs_left_out:
        notes.append(f"{launches.configs_left_out} autotuning configurations not compiled")
    if not launches.kernels:
        notes.append("no kernel was compiled ahead")
    artefacts = []
    for kernel in launches.kernels.values():
        artefacts += list(_report(kernel, job, notes))
    return Outcome(ok=True, artefacts=tuple(artefacts), log="\n".join(notes))


def _report(kernel: Any, job: Job, notes: list[str]) -> Iterator[Artefact]:
    """Write a kernel's cubin and PTX into the build, and describe it."""
    folder = job.folder / CUBIN_FOLDER
    folder.mkdir(exist_ok=True)
    stem = f"{kernel.metadata.name[:100]}-{kernel.hash[:8]}"
    cubin = folder / f"{stem}.cubin"
    cubin.write_bytes(kernel.asm["cubin"])
    (folder / f"{stem}.ptx").write_text(kernel.asm["ptx"], encoding="utf-8")
    arch, shared = job.request.gpu_arch, int(kernel.metadata.shared)
    settings = f"num_warps {kernel.metadata.num_warps}, num_stages {kernel.metadata.num_stages}"
    notes.append(f"{kernel.metadata.name}: {settings}")
    usages = kernel_usage(cubin)
    if not usages:
        notes.append("cuobjdump is not here: registers and spills are not reported")
        yield Artefact(kind="cubin", arch=arch, name=kernel.metadata.name, smem_bytes=shared)
    for usage in usages:
        yield usage.artefact(arch, smem_bytes=shared)


BUILDER = _TritonBuilder()
