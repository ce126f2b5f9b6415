"""The one module that reads environment variables."""

from __future__ import annotations

import os
import re
import shutil
import site
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = [
    "SIMULATED_COUNTERS",
    "agent_environment",
    "cache_environment",
    "cuda_home",
    "cuda_visible_devices",
    "cxx",
    "kopt_root",
    "secret_variables",
    "simulated_counters",
    "variable",
    "without_private",
    "worker_environment",
]

SIMULATED_COUNTERS = "KOPT_SIMULATED_COUNTERS"
"""Set by the profiler of the simulated device for what it starts."""
_PASSED = (
    "CC",
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CXX",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_CORETYPE",  # set where the detected kernels are known to be wrong
    "OPENBLAS_L2_SIZE",
    "PATH",
    "PYTHONPATH",
    "TZ",
)
"""What a worker sees of the caller's environment: where tools and devices are, and no more."""

_PRIVATE = {
    "CUDA_CACHE_PATH": "cuda",
    "CUTE_DSL_CACHE_DIR": "cute",
    "TMPDIR": "tmp",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "TRITON_CACHE_DIR": "triton",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "XDG_CACHE_HOME": "cache",
}
"""Folders below the worker's home, so that no cache is shared between solutions."""

_COMPILED = (
    "CUDA_CACHE_PATH",
    "CUTE_DSL_CACHE_DIR",
    "DG_JIT_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
)
"""Where libraries keep what they have compiled."""

_AGENT_PASSED = (
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LC_ALL",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "PATH",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TZ",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""What the program of an agent sees beside its own variables: where programs and networks are."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_LEAST_SECRET = 8
"""Characters; a shorter value is a flag, and taking it out of a text would ruin the text."""


def kopt_root() -> Path | None:
    """``$KOPT_ROOT``: the checkout to work in, where the command line names none."""
    value = os.environ.get("KOPT_ROOT")
    return Path(value).expanduser() if value else None


def cuda_home() -> Path | None:
    """The CUDA toolkit: ``$CUDA_HOME``, ``$CUDA_PATH``, or the one of the ``nvcc`` on the path."""
    value = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if value:
        return Path(value).expanduser()
    default = Path("/usr/local/cuda")
    if (default / "bin" / "nvcc").is_file():
        return default
    nvcc = shutil.which("nvcc")
    return Path(nvcc).resolve().parents[1] if nvcc else None


def cuda_visible_devices() -> str | None:
    """``$CUDA_VISIBLE_DEVICES``: which GPUs CUDA shows; None shows all, "" shows none."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def cxx() -> str | None:
    """``$CXX``: the C++ compiler that the user prefers."""
    return os.environ.get("CXX") or None


def simulated_counters() -> int | None:
    """Descriptor that the simulated device reports to; None where no profiler listens."""
    value = os.environ.get(SIMULATED_COUNTERS, "")
    return int(value) if value.isdigit() else None


def cache_environment(folder: Path) -> dict[str, str]:
    """Variables by which libraries keep what they compile below a folder, for several processes.

    Args:
        folder: It is there; the folders below it are created.
    """
    environment = {}
    for name in _COMPILED:
        path = folder / name.lower()
        path.mkdir(exist_ok=True)
        environment[name] = str(path)
    return environment


def worker_environment(home: Path) -> dict[str, str]:
    """The whole environment of a worker process, and its private folders.

    Args:
        home: The worker's own folder; it and the cache folders below it are created.

    Returns:
        Variables from an allow-list, and ``HOME``, ``TMPDIR`` and caches below ``home``.
    """
    environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
    environment.setdefault("PATH", os.defpath)
    environment["HOME"] = str(home)
    # A sandbox's user is in no list of users; packages that ask for its name read these first.
    environment["USER"] = environment["LOGNAME"] = "kopt"
    # A private HOME would hide packages that were installed with ``pip install --user``.
    environment["PYTHONUSERBASE"] = site.getuserbase()
    # Importing a built solution must not write into the build cache.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    # As every Triton up to 3.9 compiles; 3.10 changes the default, and with it the numbers.
    environment["TRITON_DEFAULT_FP_FUSION"] = "1"
    # The log of a worker that is killed ends at its last line, not at its last full buffer.
    environment["PYTHONUNBUFFERED"] = "1"
    # Threads of OpenMP that wait by spinning make every process on a shared machine slower,
    # tenfold where cores are oversubscribed; all solutions are measured under the same rule.
    environment["OMP_WAIT_POLICY"] = "PASSIVE"
    for name, folder in _PRIVATE.items():
        path = home / folder
        path.mkdir(parents=True, exist_ok=True)
        environment[name] = str(path)
    return environment


def without_private(environment: Mapping[str, str]) -> dict[str, str]:
    """What all workers of a session have in common: no folder of one of them."""
    private = {"HOME", *_PRIVATE}
    return {name: value for name, value in environment.items() if name not in private}


def variable(name: str) -> str | None:
    """A variable by its name; None where it is not set, or empty."""
    return os.environ.get(name) or None


def secret_variables(names: Iterable[str] = ()) -> dict[str, str]:
    """Variables whose values nobody may see: by what they are called, and those that are named.

    Args:
        names: Variables that hold a secret, whatever they are called.
    """
    given = set(names)
    return {
        name: value
        for name, value in os.environ.items()
        if (name in given or _SECRET_NAME.search(name)) and len(value) >= _LEAST_SECRET
    }


def agent_environment(home: Path, own: Iterable[str]) -> dict[str, str]:
    """The whole environment of an agent's program, without any variable of kopt.

    Args:
        home: Its private home; temporary files and caches go below it.
        own: Variables that the program itself needs, its key among them.
    """
    names = (*_AGENT_PASSED, *own)
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment.setdefault("PATH", os.defpath)
    environment["HOME"] = str(home)
    environment["USER"] = environment["LOGNAME"] = "kopt"
    folders = {"TMPDIR": "tmp", "XDG_CACHE_HOME": ".cache", "XDG_CONFIG_HOME": ".config"}
    for name, folder in folders.items():
        path = home / folder
        path.mkdir(parents=True, exist_ok=True)
        environment[name] = str(path)
    return environment
