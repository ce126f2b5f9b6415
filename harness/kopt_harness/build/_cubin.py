"""Reading cubins: registers, static shared memory and stack of each kernel in one."""

from __future__ import annotations

import importlib.util
import re
import shutil
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kopt_harness.environ import cuda_home
from kopt_harness.proc import run
from kopt_harness.schema import Artefact

from ._ptxas import demangle

__all__ = ["CUBIN_FOLDER", "KernelUsage", "extract_cubins", "find_cuobjdump", "kernel_usage"]

CUBIN_FOLDER = "cubins"
"""Folder of a build for what was compiled for the device."""

_FUNCTION = re.compile(r"^\s*Function (?P<name>\S+):\s*$")
_USAGE = re.compile(r"REG:(?P<registers>\d+) STACK:(?P<stack>\d+) SHARED:(?P<shared>\d+)")
_TIMEOUT_S = 60.0


class KernelUsage(NamedTuple):
    """What one kernel takes, read from its cubin."""

    name: str
    """Demangled."""
    registers: int
    """Per thread."""
    smem_bytes: int
    """Static only: dynamic shared memory is a launch argument."""
    stack_bytes: int
    """Per thread; spills, and arrays that are indexed at run time."""

    def artefact(self, arch: str, *, smem_bytes: int | None = None) -> Artefact:
        """The kernel as an artefact.

        Args:
            arch: As ``sm_90a``.
            smem_bytes: Static and dynamic, where the compiler that made it knows.
        """
        return Artefact(
            kind="cubin",
            arch=arch,
            name=self.name,
            registers=self.registers,
            smem_bytes=self.smem_bytes if smem_bytes is None else smem_bytes,
            spill_bytes=self.stack_bytes,
        )


@cache
def find_cuobjdump() -> str | None:
    """``cuobjdump`` of the toolkit, of the path, or the one inside the triton package."""
    home = cuda_home()
    if home is not None and (home / "bin" / "cuobjdump").is_file():
        return str(home / "bin" / "cuobjdump")
    found = shutil.which("cuobjdump")
    spec = None if found else importlib.util.find_spec("triton")
    if spec is not None and spec.origin is not None:
        tool = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        found = str(tool) if tool.is_file() else None
    return found


def kernel_usage(cubin: Path) -> tuple[KernelUsage, ...]:
    """Resource usage of every kernel of a cubin; empty where ``cuobjdump`` is not to be had."""
    tool = find_cuobjdump()
    if tool is None:
        return ()
    done = run([tool, "--dump-resource-usage", cubin], timeout_s=_TIMEOUT_S)
    mangled: list[str] = []
    rows: list[tuple[int, int, int]] = []
    for line in done.output.splitlines():
        if match := _FUNCTION.match(line):
            mangled.append(match["name"])
        elif mangled and len(rows) < len(mangled) and (match := _USAGE.search(line)):
            rows.append((int(match["registers"]), int(match["shared"]), int(match["stack"])))
    names = demangle(mangled)
    return tuple(KernelUsage(name, *row) for name, row in zip(names, rows, strict=False))


def extract_cubins(library: Path, folder: Path) -> None:
    """Copy the cubins inside a shared object into a folder, where ``cuobjdump`` is there."""
    tool = find_cuobjdump()
    if tool is not None:
        folder.mkdir(exist_ok=True)
        run([tool, "--extract-elf", "all", library], timeout_s=_TIMEOUT_S, cwd=folder)
