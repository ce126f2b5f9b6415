"""C++ for the host, on any target: one compiler command, one shared object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kopt_harness.schema import Artefact, Solution

from . import _native
from .protocol import SOURCE_FOLDER, BuildRequest, Job, Outcome, Plan

__all__ = ["BUILDER"]

_FLAGS = ("-O3", "-march=native", "-std=c++20", "-fPIC", "-shared", "-pthread", "-Wall")


class _CppBuilder:
    language = "cpp"
    native = True

    def plan(self, request: BuildRequest) -> Plan:
        compiler = _native.find_compiler()
        linkage = _native.linkage(request)
        cuda = _native.cuda_host_flags() if request.kind == "cuda" else ()
        return Plan(
            flags=(*_FLAGS, f"-I{SOURCE_FOLDER}", *linkage.flags, *cuda),
            toolchain={
                compiler.path: compiler.version,
                "-march=native": compiler.native,
                **linkage.toolchain,
            },
        )

    def compile(self, job: Job) -> Outcome:
        solution = job.request.solution
        sources = _native.source_paths(solution, _native.CPP_SUFFIXES)
        argv = [_native.find_compiler().path, *sources, *job.plan.flags, "-o", _native.LIBRARY_NAME]
        done = _native.run_compiler(argv, job.folder, job.timeout_s)
        if not done.ok:
            return done
        if not _native.exports_entry(job.folder / _native.LIBRARY_NAME, solution):
            return _native.missing_entry(solution, done.log)
        library = Artefact(
            kind="shared-object", arch=job.request.host_arch, name=_native.LIBRARY_NAME
        )
        return Outcome(ok=True, artefacts=(library,), log=done.log)

    def load(self, folder: Path, solution: Solution) -> Callable[..., Any]:
        return _native.load_shared_object(folder, solution)


BUILDER = _CppBuilder()
