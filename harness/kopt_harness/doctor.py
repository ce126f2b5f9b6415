"""What this machine can do: targets, tools, isolation, disk; and how to get what is missing.

Everything is found without importing a GPU library: packages by their metadata, tools by
running them with ``--version``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ._unshare_probe import NAMESPACES
from .cubin import find_cuobjdump
from .environ import cuda_home, cxx, worker_environment
from .lease import CPU_DEVICE, quarantined
from .proc import run
from .root import Root
from .sandbox import Policy, landlock_abi
from .sandbox import launch as sandbox
from .targets import Target, list_targets

__all__ = ["Home", "Report", "TargetReport", "Tool", "counters", "examine", "find_program"]

_VERSION = re.compile(r"\d+(?:\.\d+)+")
_TIMEOUT_S = 20.0
_PROBE = "kopt_harness.sandbox.probe"
_DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
_ADMIN_ONLY = re.compile(r"^RmProfilingAdminOnly:\s*(?P<value>\d+)", re.MULTILINE)
_GPU_EXTRA = "for GPU targets: pip install -e '.[gpu]'"


@dataclass(frozen=True)
class TargetReport:
    """One target on this machine."""

    name: str
    present: bool
    can_build: bool
    can_run: bool
    reason: str
    languages: tuple[str, ...]
    """That can be built for it here."""
    device: str
    uuid: str


@dataclass(frozen=True)
class Tool:
    """A program or package."""

    name: str
    kind: str
    """``compiler``, ``timer``, ``profiler``, ``package`` or ``agent``."""
    version: str
    """Empty where it is missing or does not say."""
    ok: bool
    hint: str
    """How to get it; empty if ok."""


@dataclass(frozen=True)
class Report:
    """Everything that was found."""

    targets: tuple[TargetReport, ...]
    tools: tuple[Tool, ...]
    isolation: dict[str, Any]
    quarantine: tuple[dict[str, Any], ...]
    """Devices that are out of use, with the reason."""
    disk: dict[str, Any]
    platform: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """The JSON document of ``kopt doctor``."""
        return asdict(self)


class Home(NamedTuple):
    """Where a program is asked for its version that is not trusted with this user's own."""

    folder: Path | None
    env: Mapping[str, str] | None
    timeout_s: float


class _Program(NamedTuple):
    name: str
    kind: str
    hint: str


class _Package(NamedTuple):
    name: str
    kind: str
    hint: str


_PROGRAMS = (
    _Program("nvcc", "compiler", "for CUDA C++: install the CUDA toolkit, 12.8 or newer"),
    _Program("ncu", "profiler", "for GPU counters: install Nsight Compute"),
)
_PACKAGES = (
    _Package("torch", "package", "references and checks need it: pip install torch"),
    _Package("apache-tvm-ffi", "package", "C++ solutions need it: pip install apache-tvm-ffi"),
    _Package("numpy", "package", "statistics need it: pip install numpy"),
    _Package("triton", "package", _GPU_EXTRA),
    _Package("nvidia-cutlass-dsl", "package", _GPU_EXTRA),
    _Package("cuda-bindings", "package", _GPU_EXTRA),
    _Package("nvidia-ml-py", "package", _GPU_EXTRA),
    _Package(
        "flashinfer-bench", "package", "the contest's own evaluator: pip install -e '.[official]'"
    ),
)


def examine(root: Root | None = None) -> Report:
    """Look at everything.

    Args:
        root: Its file system is the one whose space is reported; default: the working directory.
    """
    tools = tuple(_tools())
    targets = tuple(_target(target, tools) for target in list_targets())
    return Report(
        targets=targets,
        tools=tools,
        isolation=_isolation(root),
        quarantine=tuple(_quarantine(targets)),
        disk=_disk(root.path if root else Path.cwd()),
        platform={
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "logical_processors": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "root": str(root.path) if root else None,
            "root_found_by": root.found_by if root else None,
        },
    )


def find_program(
    name: str, *, kind: str, hint: str, path: str | None = None, home: Home | None = None
) -> Tool:
    """A program on the path and its version.

    Args:
        name: What to call it.
        kind: See ``Tool``.
        hint: How to get it.
        path: Where it is, if that is known.
        home: Where it is asked for its version; default: here, as this user.
    """
    found = path or shutil.which(name)
    if found is None:
        return Tool(name, kind, "", ok=False, hint=hint)
    asked = home or Home(None, None, _TIMEOUT_S)
    done = run([found, "--version"], timeout_s=asked.timeout_s, cwd=asked.folder, env=asked.env)
    versions = _VERSION.findall(done.output)
    return Tool(name, kind, max(versions, key=len) if versions else "", ok=True, hint="")


def _tools() -> Iterator[Tool]:
    compiler = cxx() or next((c for c in ("g++", "clang++") if shutil.which(c)), None)
    missing = "for C++ solutions: install g++ or clang++, or set CXX"
    yield find_program("c++", kind="compiler", hint=missing, path=_which(compiler))
    home = cuda_home()
    for program in _PROGRAMS:
        in_toolkit = home / "bin" / program.name if home else None
        path = str(in_toolkit) if in_toolkit and in_toolkit.is_file() else None
        yield find_program(program.name, kind=program.kind, hint=program.hint, path=path)
    yield find_program(
        "cuobjdump",
        kind="compiler",
        hint="for register counts: install the CUDA toolkit, or triton",
        path=find_cuobjdump(),
    )
    yield counters(_DRIVER_PARAMETERS, is_root=os.geteuid() == 0)
    yield Tool("cpu", "timer", platform.python_version(), ok=True, hint="")
    yield _package("cupti-python", "timer", _GPU_EXTRA)
    torch = _package("torch", "profiler", "pip install torch")
    yield Tool("torch.profiler", "profiler", torch.version, torch.ok, torch.hint)
    for package in _PACKAGES:
        yield _package(package.name, package.kind, package.hint)


def counters(parameters: Path, *, is_root: bool) -> Tool:
    """Whether the driver lets this user read the GPU's performance counters.

    What it says is a permission, not a proof: a container or a virtual machine may have none.

    Args:
        parameters: Where the driver shows how its module was loaded.
        is_root: Whether this user is root, whom it always lets.
    """
    name, kind = "gpu counters", "profiler"
    try:
        text = parameters.read_text(encoding="utf-8", errors="replace")
    except OSError:
        hint = "there is no NVIDIA driver here; kopt profile --profiler sass needs none"
        return Tool(name, kind, "", ok=False, hint=hint)
    match = _ADMIN_ONLY.search(text)
    if match is None:
        hint = f"the driver does not say in {parameters}; kopt profile --profiler ncu finds out"
        return Tool(name, kind, "", ok=False, hint=hint)
    if match["value"] == "0":
        return Tool(name, kind, "for all users", ok=True, hint="")
    if is_root:
        return Tool(name, kind, "for root", ok=True, hint="")
    hint = "run as root, or load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0"
    return Tool(name, kind, "", ok=False, hint=hint)


@cache
def _nvcc_architectures() -> frozenset[str]:
    """What the CUDA compiler here can compile for, as ``sm_90``."""
    home = cuda_home()
    path = str(home / "bin" / "nvcc") if home else shutil.which("nvcc")
    if path is None or not Path(path).is_file():
        return frozenset()
    return frozenset(run([path, "--list-gpu-code"], timeout_s=_TIMEOUT_S).stdout.split())


def _which(name: str | None) -> str | None:
    return shutil.which(name) if name else None


def _package(name: str, kind: str, hint: str) -> Tool:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Tool(name, kind, "", ok=False, hint=hint)
    return Tool(name, kind, version, ok=True, hint="")


def _target(target: Target, tools: tuple[Tool, ...]) -> TargetReport:
    have = {tool.name: tool for tool in tools if tool.ok}
    needs = {"python": "torch", "cpp": "c++"}
    if target.kind == "cuda":
        needs |= {"triton": "triton", "python": "nvidia-cutlass-dsl"}
        # The compiler lists sm_90 and accepts sm_90a, the same with its own instructions.
        if (target.arch or "").rstrip("af") in _nvcc_architectures():
            needs["cuda"] = "nvcc"
    languages = tuple(sorted(name for name, tool in needs.items() if tool in have))
    presence = target.present()
    obstacles = [] if presence.ok else [presence.reason]
    if "torch" not in have:
        obstacles.append("torch is not installed")
    elif target.kind == "cuda" and presence.ok:
        if have["torch"].version.endswith("+cpu"):
            obstacles.append("the installed torch is a CPU build")
        if "cupti-python" not in have:
            obstacles.append("cupti-python is not installed")
        if "cuda-bindings" not in have:
            obstacles.append("cuda-bindings is not installed")
    return TargetReport(
        name=target.name,
        present=presence.ok,
        can_build=bool(languages),
        can_run=not obstacles,
        reason="; ".join(obstacles) or presence.reason,
        languages=languages,
        device=presence.device,
        uuid=presence.uuid,
    )


def _isolation(root: Root | None) -> dict[str, Any]:
    if not sys.platform.startswith("linux"):
        return {"note": "namespaces, Landlock and cgroups are features of Linux"}
    done = run([sys.executable, "-P", "-m", "kopt_harness._unshare_probe"], timeout_s=_TIMEOUT_S)
    mask = done.returncode if done.returncode > 0 else 0
    granted = {name: bool(mask >> bit & 1) for bit, name in enumerate(NAMESPACES)}
    version = 2 if Path("/sys/fs/cgroup/cgroup.controllers").is_file() else 1
    probed = _sandbox(root)
    return {
        "namespaces": granted,
        "landlock_abi": landlock_abi(),
        "other_uid": bool(probed["record"].get("other_uid", False)),
        "cgroup_version": version if Path("/sys/fs/cgroup").is_dir() else None,
        "cgroup_writable": os.access("/sys/fs/cgroup", os.W_OK),
        "sandbox": probed,
    }


def _sandbox(root: Root | None) -> dict[str, Any]:
    """A process in the sandbox of a candidate that tries to get out of it."""
    protected = root.path if root else Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory(prefix=sandbox.WORKER_PREFIX) as folder:
        home = Path(folder) / "home"
        home.mkdir()
        environment = worker_environment(home)
        policy_fd = Policy(
            home=str(home),
            search=sandbox.search_paths(environment),
            protected=sandbox.protected_paths([root.path] if root else []),
            title="probe",
        ).to_file()
        try:
            done = run(
                sandbox.command(policy_fd, _PROBE, os.getpid(), protected / "kernels"),
                timeout_s=_TIMEOUT_S,
                cwd=home,
                env=environment,
                pass_fds=(policy_fd,),
                ask_first=True,
            )
        finally:
            os.close(policy_fd)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        last = [line for line in done.output.splitlines() if line.strip()][-1:]
        reason = last[0] if last else f"the probe ended with exit code {done.returncode}"
        return {"starts": False, "reason": reason, "record": {}, "holds": {}, "start_ms": None}
    return {"starts": True, "reason": "", "start_ms": round(done.seconds * 1e3), **said}


def _quarantine(targets: tuple[TargetReport, ...]) -> Iterator[dict[str, Any]]:
    for device in dict.fromkeys([CPU_DEVICE, *(t.uuid for t in targets if t.uuid)]):
        found = quarantined(device)
        if found is not None:
            yield found._asdict()


def _disk(path: Path) -> dict[str, Any]:
    usage = shutil.disk_usage(path)
    return {"path": str(path), "free_bytes": usage.free, "total_bytes": usage.total}
