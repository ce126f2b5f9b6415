"""Python: the sources themselves, and, for a GPU, what ``precompile`` compiles ahead.

CuTe DSL solutions are Python. An entry module that defines ``precompile(axes)`` compiles its
kernels there without launching them; the cubins that this leaves are reported.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kopt_harness.cubin import kernel_usage
from kopt_harness.schema import Artefact, Solution, SourceFile
from kopt_harness.syntax import parse
from kopt_harness.untrusted import candidate_code

from . import _native
from ._cubin import CUBIN_FOLDER
from ._package import check_sources, import_entry, load_entry, top_level_names
from .protocol import BuildRequest, Job, Outcome, Plan

__all__ = ["BUILDER"]

_HOOK = "precompile"
_PACKAGES = ("torch", "nvidia-cutlass-dsl", "apache-tvm-ffi")


def _compiles_ahead(request: BuildRequest) -> bool:
    if request.kind != "cuda":
        return False
    entry = request.solution.spec.entry_file
    text = next(s.content for s in request.solution.sources if s.path == entry)
    try:
        return _HOOK in top_level_names(parse(text, entry))
    except SyntaxError:
        return False  # reported by compile()


def _imports_cutlass(source: SourceFile) -> bool:
    words = (line.split()[:2] for line in source.content.splitlines())
    return any(
        len(pair) == 2 and pair[0] in ("import", "from") and pair[1].split(".")[0] == "cutlass"
        for pair in words
    )


class _PythonBuilder:
    language = "python"
    native = False

    def plan(self, request: BuildRequest) -> Plan:
        if not _compiles_ahead(request):
            return Plan()
        if any(map(_imports_cutlass, request.solution.sources)):
            hint = "pip install nvidia-cutlass-dsl, or kopt with its gpu extra"
            _native.package_folder("cutlass", hint=hint)
        return Plan(
            toolchain={name: _native.package_version(name) for name in _PACKAGES},
            environment={
                "CUTE_DSL_ARCH": request.gpu_arch,
                "CUTE_DSL_DUMP_DIR": CUBIN_FOLDER,
                "CUTE_DSL_KEEP": "ptx,cubin",
                "CUTE_DSL_NO_CACHE": "1",  # a cache hit would leave no cubin to report
            },
            ahead=True,
        )

    def compile(self, job: Job) -> Outcome:
        request, solution = job.request, job.request.solution
        checked = check_sources(solution)
        if not checked.ok:
            return checked
        module = Artefact(kind="module", arch=request.host_arch, name=solution.spec.entry_file)
        if not job.plan.ahead:
            return Outcome(ok=True, artefacts=(module,))
        if request.axes is None:
            return Outcome(ok=True, artefacts=(module,), log=f"no axes given: {_HOOK} not called")
        cubins = job.folder / CUBIN_FOLDER
        cubins.mkdir(exist_ok=True)
        with candidate_code():
            getattr(import_entry(job.folder, solution), _HOOK)(dict(request.axes))
        kernels = (
            usage.artefact(request.gpu_arch)
            for cubin in sorted(cubins.rglob("*.cubin"))
            for usage in kernel_usage(cubin)
        )
        return Outcome(ok=True, artefacts=(module, *kernels))

    def load(self, folder: Path, solution: Solution) -> Callable[..., Any]:
        return load_entry(folder, solution)


BUILDER = _PythonBuilder()
