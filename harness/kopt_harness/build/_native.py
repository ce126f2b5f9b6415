"""What C++ and CUDA C++ share: compilers, headers and libraries, and what a shared object is.

Headers and libraries of tvm-ffi and torch are found without importing either.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.machinery
import importlib.metadata
import importlib.util
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kopt_harness.environ import cuda_home, cxx
from kopt_harness.errors import UnavailableError
from kopt_harness.proc import run
from kopt_harness.schema import Solution

from .protocol import SOURCE_FOLDER, BuildRequest, Outcome

__all__ = [
    "CPP_SUFFIXES",
    "LIBRARY_NAME",
    "Compiler",
    "Linkage",
    "cuda_host_flags",
    "exports_entry",
    "find_compiler",
    "linkage",
    "load_shared_object",
    "missing_entry",
    "package_folder",
    "package_version",
    "run_compiler",
    "source_paths",
    "tool_version",
]

LIBRARY_NAME = "solution.so"
CPP_SUFFIXES = frozenset({".cpp", ".cc", ".cxx", ".c++"})
_VERSION_TIMEOUT_S = 30.0
_LOG_BYTES = 256 * 1024


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler, identified well enough to be part of a key."""

    path: str
    version: str
    native: str
    """What ``-march=native`` means on this machine."""


@dataclass(frozen=True)
class Linkage:
    """How to compile against one binding."""

    flags: tuple[str, ...]
    """Definitions, include folders, library folders and libraries, in order."""
    toolchain: dict[str, str]


@cache
def tool_version(path: str) -> str:
    """First lines of what a tool says of its version."""
    return run([path, "--version"], timeout_s=_VERSION_TIMEOUT_S).output.strip()


@cache
def find_compiler() -> Compiler:
    """The C++ compiler: ``$CXX``, else g++, else clang++.

    Raises:
        UnavailableError: If there is none.
    """
    preferred = cxx()
    names = [preferred] if preferred else ["g++", "clang++"]
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        raise UnavailableError(
            f"no C++ compiler found (looked for {', '.join(map(repr, names))})",
            hint="install g++ 11 or newer (apt-get install g++), or set CXX",
        )
    # The driver prints the resolved command line instead of running it.
    probe = [path, "-march=native", "-###", "-E", "-x", "c++", "/dev/null"]
    shown = run(probe, timeout_s=_VERSION_TIMEOUT_S).stderr
    native = next((line for line in shown.splitlines() if "cc1" in line), shown)
    return Compiler(path=path, version=tool_version(path), native=native.strip())


@cache
def package_version(distribution: str) -> str:
    """Version of an installed distribution; empty if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


@cache
def package_folder(name: str, *, hint: str) -> Path:
    """Folder of an installed top-level package, which is not imported.

    Raises:
        UnavailableError: If it is not installed.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise UnavailableError(f"the package {name!r} is not installed", hint=hint)
    return Path(spec.origin).parent


def linkage(request: BuildRequest) -> Linkage:
    """Flags for the solution's binding."""
    if request.solution.spec.binding == "torch":
        return _torch_linkage(request)
    folder = package_folder("tvm_ffi", hint="pip install apache-tvm-ffi")
    library = folder / "lib"
    return Linkage(
        flags=(
            f"-I{folder / 'include'}",
            f"-L{library}",
            *_rpath(library),
            "-ltvm_ffi",
            # A missing symbol is an error here and now, not when the solution is loaded.
            "-Xlinker",
            "--no-undefined",
        ),
        toolchain={"apache-tvm-ffi": package_version("apache-tvm-ffi")},
    )


def _torch_linkage(request: BuildRequest) -> Linkage:
    folder = package_folder("torch", hint="pip install torch")
    library, include = folder / "lib", folder / "include"
    libraries = ["c10", "torch_cpu", "torch", "torch_python"]
    if request.kind == "cuda":
        if not (library / "libtorch_cuda.so").is_file():
            raise UnavailableError(
                f"binding 'torch' for the target {request.target!r} needs a PyTorch with CUDA, "
                f"and {package_version('torch')!r} has none",
                hint="install a CUDA build of torch, or use binding = 'tvm-ffi'",
            )
        libraries += ["c10_cuda", "torch_cuda"]
    flags = (
        f"-DTORCH_EXTENSION_NAME={_extension_name(request.solution)}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        f"-I{include}",
        f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}",
        f"-I{sysconfig.get_path('include')}",
        f"-L{library}",
        *_rpath(library),
        *(f"-l{name}" for name in libraries),
    )
    return Linkage(flags=flags, toolchain={"torch": package_version("torch")})


def _rpath(folder: Path) -> tuple[str, ...]:
    # g++ and nvcc both take the two-word form of a linker flag.
    return ("-Xlinker", "-rpath", "-Xlinker", str(folder))


def _extension_name(solution: Solution) -> str:
    return f"kopt_extension_{solution.sha256[:16]}"


def cuda_host_flags() -> tuple[str, ...]:
    """Headers and runtime of the CUDA toolkit, for host code; empty where there is none."""
    home = cuda_home()
    library = home / "lib64" if home is not None else Path()
    if home is None or not (library / "libcudart_static.a").is_file():
        return ()
    return (f"-I{home / 'include'}", f"-L{library}", "-lcudart_static", "-ldl", "-lrt")


def source_paths(solution: Solution, suffixes: frozenset[str]) -> list[str]:
    """Translation units, relative to the build folder, in a fixed order."""
    names = [s.path for s in solution.sources if Path(s.path).suffix in suffixes]
    return [f"{SOURCE_FOLDER}/{name}" for name in sorted(names)]


def run_compiler(argv: Sequence[str], folder: Path, timeout_s: float) -> Outcome:
    """Run one compiler command in the build folder; its output is the log."""
    done = run(argv, timeout_s=timeout_s, cwd=folder, max_output_bytes=_LOG_BYTES, merge=True)
    tail = f"\nended after {timeout_s:.0f} s: the time limit of the build" if done.timed_out else ""
    return Outcome(ok=done.ok, log=done.stdout + tail)


def exports_entry(library: Path, solution: Solution) -> bool:
    """Whether a shared object has the entry function under its binding's symbol name."""
    if solution.spec.binding == "torch":
        symbol = f"PyInit_{_extension_name(solution)}"
    else:
        symbol = f"__tvm_ffi_{solution.spec.entry_function}"
    # Names in a symbol table stand between NUL bytes; looking for that needs no binutils.
    return b"\0" + symbol.encode() + b"\0" in library.read_bytes()


def missing_entry(solution: Solution, log: str) -> Outcome:
    """The outcome of a build that compiled, and exports something else."""
    name = solution.spec.entry_function
    if solution.spec.binding == "torch":
        need = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)"
    else:
        need = f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, ...)"
    text = f"the entry function {name!r} is not exported: the sources lack {need}"
    return Outcome(ok=False, log=f"{log}\n{text}" if log else text)


def load_shared_object(folder: Path, solution: Solution) -> Callable[..., Any]:
    """The entry function of a built shared object; only in a candidate worker.

    What is loaded is a copy for this process alone, which has no name any more afterwards.
    Processes that load one file share the memory that it lies in; what that does to times would be
    in all comparisons of a solution and in its validation, and should be drawn for each.
    """
    library = folder / LIBRARY_NAME
    with contextlib.ExitStack() as stack:
        try:
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="kopt-library-"))
            library = Path(shutil.copy(library, own))
        except OSError as error:
            # A full disk is nothing to hold against a solution: the build's own file is as right.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        return _load(library, solution)


def _load(library: Path, solution: Solution) -> Callable[..., Any]:
    if solution.spec.binding == "torch":
        import torch  # noqa: F401  # its libraries must be loaded before the extension's

        name = _extension_name(solution)
        loader = importlib.machinery.ExtensionFileLoader(name, str(library))
        spec = importlib.util.spec_from_file_location(name, library, loader=loader)
        assert spec is not None, library
        module: Any = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader.exec_module(module)
    else:
        import tvm_ffi

        module = tvm_ffi.load_module(str(library))
    function: Callable[..., Any] = getattr(module, solution.spec.entry_function)
    return function
