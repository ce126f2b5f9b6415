"""Whose kernels a call has launched, by their names: evidence from what ran, not from a text.

A CUDA solution that is there for show has kernels that no call launches, and one that hands the
operator to a library launches kernels that nobody finds in its build. For solutions in CUDA C++
alone: kernels that a Python process compiles have names of its own choosing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kopt_harness.schema import BuildResult, Flag, Solution

__all__ = ["kernel_flags"]

_VENDORS = re.compile(
    r"cublas|cudnn|cutlass|flashinfer|deep_gemm|nvjet|xmma|(ampere|turing|volta|hopper)_|sm\d\d_",
    re.IGNORECASE,
)
"""In names of kernels that libraries ship."""


def kernel_flags(
    solution: Solution, built: BuildResult, census: Mapping[str, Any]
) -> tuple[Flag, ...]:
    """What the names of launched kernels say against a solution.

    Args:
        solution: Its language decides whether names mean anything.
        built: Its artefacts name its own kernels.
        census: Of its timed calls, as ``TimedCalls.census`` has it; empty without records.
    """
    own = {_base(each.name) for each in built.artefacts if each.registers is not None} - {""}
    seen = [kernel["name"] for kernel in census.get("kernels", ())]
    if solution.spec.language != "cuda" or not own or not seen:
        return ()
    flags = []
    if not any(_is(name, base) for name in seen for base in own):
        detail = f"none of its kernels ran ({', '.join(sorted(own)[:4])}), but {seen[0][:80]!r}"
        flags.append(Flag(code="no-candidate-kernel", detail=detail))
    foreign = [name for name in seen if not any(_is(name, base) for base in own)]
    if vendor := next((name for name in foreign if _VENDORS.search(name)), None):
        detail = f"its calls run {vendor[:80]!r}, which is none of its own kernels"
        flags.append(Flag(code="library-call", detail=detail))
    return tuple(flags)


def _base(name: str) -> str:
    """``score_rows`` of ``void topk::score_rows<2, true>(topk::Problem)``, or of its symbol."""
    if mangled := re.match(r"_ZN?(?=L?\d)", name):
        return _last_of(name[mangled.end() :])
    plain = name.replace("(anonymous namespace)::", "").partition("(")[0].partition("<")[0].split()
    return plain[-1].rpartition("::")[2] if plain else ""


def _last_of(lengths: str) -> str:
    """``index_rows`` of ``4topk10index_rowsILb1``: names with their lengths in front."""
    last = ""
    while found := re.match(r"L?(\d+)", lengths):
        end = found.end() + int(found[1])
        last, lengths = lengths[found.end() : end], lengths[end:]
    return last


def _is(name: str, base: str) -> bool:
    """Whether a launched kernel is an instance of one of this name."""
    return _base(name) == base
