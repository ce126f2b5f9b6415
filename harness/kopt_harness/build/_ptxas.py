"""Reading what ``ptxas -v`` prints: registers, shared memory and spills of each kernel."""

from __future__ import annotations

import re

from kopt_harness.cubin import demangle
from kopt_harness.schema import Artefact

__all__ = ["parse_ptxas"]

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
_PROPERTIES = re.compile(r"Function properties for (?P<name>\S+)")
_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")
_SMEM = re.compile(r"(?P<smem>\d+) bytes smem")


def parse_ptxas(log: str) -> tuple[Artefact, ...]:
    """One artefact per kernel, in the order of the log, with demangled names.

    Args:
        log: Output of a compiler run with ``-Xptxas -v``; other lines are ignored.
    """
    found: dict[str, dict[str, int]] = {}
    arch: dict[str, str] = {}
    entry = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = function = match["name"]
            arch[entry] = match["arch"]
            found[entry] = {"smem_bytes": 0}
        elif match := _PROPERTIES.search(line):
            function = match["name"]
        elif entry and (match := _SPILLS.search(line)):
            # A device function that was not inlined spills on behalf of the kernel above it.
            spilled = int(match["stores"]) + int(match["loads"])
            found[entry]["spill_bytes"] = found[entry].get("spill_bytes", 0) + spilled
        elif entry and function == entry and (match := _REGISTERS.search(line)):
            found[entry]["registers"] = int(match["registers"])
            smem = _SMEM.search(line)
            found[entry]["smem_bytes"] = int(smem["smem"]) if smem else 0
    names = demangle(tuple(found))
    return tuple(
        Artefact(kind="cubin", arch=arch[mangled], name=name, **found[mangled])
        for mangled, name in zip(found, names, strict=True)
    )
