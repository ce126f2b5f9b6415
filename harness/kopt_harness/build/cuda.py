"""CUDA C++: one nvcc command for exactly the target's architecture; needs no GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from kopt_harness.environ import cuda_home, cxx
from kopt_harness.errors import UnavailableError
from kopt_harness.schema import Artefact, Solution

from . import _native
from ._cubin import CUBIN_FOLDER, extract_cubins
from ._ptxas import parse_ptxas
from .protocol import SOURCE_FOLDER, BuildRequest, Job, Outcome, Plan

__all__ = ["BUILDER"]

_SUFFIXES = _native.CPP_SUFFIXES | {".cu"}
_FLAGS = (
    "-O3",
    "-std=c++20",
    "-lineinfo",
    "--expt-relaxed-constexpr",
    "-shared",
    "-Xcompiler=-fPIC,-pthread",
    "-Xptxas=-v",
)
_LIBRARIES = {
    "cublas": "-lcublas",
    "cublaslt": "-lcublasLt",
    "cuda": "-lcuda",
    "cudnn": "-lcudnn",
    "cufft": "-lcufft",
    "curand": "-lcurand",
    "nvrtc": "-lnvrtc",
}
"""Libraries that a solution may name under ``dependencies``."""


@cache
def _find_nvcc() -> str:
    home = cuda_home()
    if home is not None and (home / "bin" / "nvcc").is_file():
        return str(home / "bin" / "nvcc")
    found = shutil.which("nvcc")
    if found is None:
        raise UnavailableError(
            "nvcc not found: CUDA C++ solutions are compiled with the CUDA toolkit",
            hint="install the CUDA toolkit (12.8 or newer for sm_100a) and set CUDA_HOME",
        )
    return found


class _CudaBuilder:
    language = "cuda"
    native = True

    def plan(self, request: BuildRequest) -> Plan:
        if request.kind != "cuda":
            raise UnavailableError(
                f"a CUDA C++ solution cannot be built for the target {request.target!r}",
                hint="build it for a GPU target, as --target h200; that needs no GPU",
            )
        nvcc = _find_nvcc()
        linkage = _native.linkage(request)
        virtual = request.gpu_arch.replace("sm_", "compute_")
        host = ("-ccbin", cxx() or "") if cxx() else ()
        libraries = [_LIBRARIES.get(d.lower(), "") for d in request.solution.spec.dependencies]
        return Plan(
            flags=(
                f"-gencode=arch={virtual},code={request.gpu_arch}",
                *_FLAGS,
                *host,
                f"-I{SOURCE_FOLDER}",
                *linkage.flags,
                *filter(None, libraries),
            ),
            toolchain={
                nvcc: _native.tool_version(nvcc),
                "host": _native.find_compiler().version,
                **linkage.toolchain,
            },
        )

    def compile(self, job: Job) -> Outcome:
        solution = job.request.solution
        library = job.folder / _native.LIBRARY_NAME
        sources = _native.source_paths(solution, _SUFFIXES)
        argv = [_find_nvcc(), *sources, *job.plan.flags, "-o", library.name]
        done = _native.run_compiler(argv, job.folder, job.timeout_s)
        if not done.ok:
            return done
        if not _native.exports_entry(library, solution):
            return _native.missing_entry(solution, done.log)
        extract_cubins(library, job.folder / CUBIN_FOLDER)
        host = Artefact(kind="shared-object", arch=job.request.host_arch, name=library.name)
        return Outcome(ok=True, artefacts=(host, *parse_ptxas(done.log)), log=done.log)

    def load(self, folder: Path, solution: Solution) -> Callable[..., Any]:
        return _native.load_shared_object(folder, solution)


BUILDER = _CudaBuilder()
