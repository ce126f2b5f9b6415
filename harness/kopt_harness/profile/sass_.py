"""Machine code as it was compiled: registers, shared memory, spills, instructions by class.

Reads cubins with ``cuobjdump`` (of the CUDA toolkit or of the triton package) and needs no GPU.
The code is counted, not run: a loop's body counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kopt_harness.cubin import KernelCode, KernelUsage, kernel_code, kernel_usage
from kopt_harness.files import read_toml

__all__ = ["read_build"]

_CLASSES = Path(__file__).with_name("opcodes.toml")
_SPILL = "local"
_OTHER = "other"
_NOTE = "instructions as they stand in the code; nothing was run, and no time is known"


def read_build(cubins: Sequence[Path]) -> dict[str, Any]:
    """The kernels of all cubins, in the order of their files.

    Raises:
        UnavailableError: If ``cuobjdump`` is not here.
    """
    compiled = []
    for cubin in cubins:
        usages = {usage.name: usage for usage in kernel_usage(cubin)}
        compiled += [_kernel(code, usages.get(code.name)) for code in kernel_code(cubin)]
    return {
        "total_us": None,
        "launches": None,
        "kernels": [],
        "compiled": compiled,
        "notes": [_NOTE],
    }


def _kernel(code: KernelCode, usage: KernelUsage | None) -> dict[str, Any]:
    mix: dict[str, int] = {}
    for opcode, count in code.opcodes.items():
        kind = _class_of(opcode)
        mix[kind] = mix.get(kind, 0) + count
    return {
        "name": code.name,
        "arch": code.arch,
        "registers": None if usage is None else usage.registers,
        "smem_bytes": None if usage is None else usage.smem_bytes,
        "stack_bytes": None if usage is None else usage.stack_bytes,
        "spill_instructions": mix.get(_SPILL, 0),
        "instructions": sum(mix.values()),
        "mix": _largest_first(mix),
        "opcodes": _largest_first(code.opcodes),
    }


def _largest_first(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _class_of(opcode: str) -> str:
    """By the longest known beginning of the name."""
    known = _prefixes()
    for length in range(len(opcode), 0, -1):
        if (found := known.get(opcode[:length])) is not None:
            return found
    return _OTHER


@cache
def _prefixes() -> dict[str, str]:
    """Beginnings of opcodes to their class."""
    table = read_toml(_CLASSES, "table of opcodes")["class"]
    return {prefix: name for name, prefixes in table.items() for prefix in prefixes}
