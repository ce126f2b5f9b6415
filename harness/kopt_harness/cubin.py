"""Reading cubins: resources and instructions of each kernel, by the toolkit's own programs."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .environ import cuda_home
from .errors import UnavailableError
from .proc import run
from .schema import Artefact

__all__ = [
    "KernelCode",
    "KernelUsage",
    "demangle",
    "find_cuobjdump",
    "kernel_code",
    "kernel_usage",
    "parse_code",
]

_FUNCTION = re.compile(r"^\s*Function (?P<name>\S+):\s*$")
_USAGE = re.compile(r"REG:(?P<registers>\d+) STACK:(?P<stack>\d+) SHARED:(?P<shared>\d+)")
_ARCH = re.compile(r"^\s*code for (?P<arch>sm_\w+)\s*$")
_CODE_OF = re.compile(r"^\s*Function : (?P<name>\S+)\s*$")
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@!?U?P[0-9T]\s+)?(?P<opcode>[A-Z][A-Z0-9_]*)"
)
_PADDING = "NOP"
_TIMEOUT_S = 60.0
_DEMANGLE_TIMEOUT_S = 30.0


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


class KernelCode(NamedTuple):
    """The instructions of one kernel."""

    name: str
    """Demangled."""
    arch: str
    """As ``sm_90a``."""
    opcodes: dict[str, int]
    """How often each stands in the code, without padding; not how often it runs."""


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


def kernel_code(cubin: Path) -> tuple[KernelCode, ...]:
    """The instructions of every kernel of a cubin.

    Raises:
        UnavailableError: If ``cuobjdump`` is not here, or has no disassembler beside it.
    """
    tool = find_cuobjdump()
    if tool is None:
        raise UnavailableError(
            "cuobjdump not found: it reads the instructions of cubins",
            hint="install the CUDA toolkit, or: pip install triton, which carries it",
        )
    done = run([tool, "--dump-sass", cubin], timeout_s=_TIMEOUT_S)
    if not done.ok:
        said = (done.output.strip().splitlines() or ["it said nothing"])[-1]
        raise UnavailableError(
            f"{tool!r} cannot disassemble {cubin.name!r}: {said}",
            hint="cuobjdump needs nvdisasm beside it; use those of a newer CUDA toolkit or triton",
        )
    return parse_code(done.stdout)


def parse_code(listing: str) -> tuple[KernelCode, ...]:
    """The kernels in what ``cuobjdump --dump-sass`` prints, in its order."""
    arch = ""
    found: list[KernelCode] = []
    for line in listing.splitlines():
        if match := _ARCH.match(line):
            arch = match["arch"]
        elif match := _CODE_OF.match(line):
            found.append(KernelCode(match["name"], arch, {}))
        elif found and (match := _INSTRUCTION.match(line)) and match["opcode"] != _PADDING:
            opcodes = found[-1].opcodes
            opcodes[match["opcode"]] = opcodes.get(match["opcode"], 0) + 1
    names = demangle([one.name for one in found])
    return tuple(one._replace(name=name) for one, name in zip(found, names, strict=True))


def demangle(names: Sequence[str]) -> tuple[str, ...]:
    """C++ names of symbols; unchanged where no demangler is installed."""
    tool = shutil.which("cu++filt") or shutil.which("c++filt")
    if tool is None or not names:
        return tuple(names)
    done = run([tool], timeout_s=_DEMANGLE_TIMEOUT_S, stdin="\n".join(names).encode())
    lines = done.stdout.splitlines()
    return tuple(lines) if done.ok and len(lines) == len(names) else tuple(names)
