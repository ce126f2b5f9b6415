"""What a solution may not import: the answers, and libraries that are a whole answer.

A library that the solution declares among its dependencies can be imported; the result then
carries a flag. Files are kept from candidate code by the sandbox; this hook names the cause.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["LIBRARIES", "install_import_hook", "libraries_in_use"]

LIBRARIES = frozenset(
    {
        "aiter", "deep_gemm", "fla", "flash_attn", "flash_attn_3", "flash_mla", "flashinfer",
        "flashinfer_bench", "lmdeploy", "sgl_kernel", "sglang", "tensorrt_llm", "vllm", "xformers",
    }
)  # fmt: skip
"""Packages that ship whole operators of this field."""

_MODULES_OF = {
    "fla_core": "fla",
    "flash_linear_attention": "fla",
    "flashinfer_python": "flashinfer",
    "sgl_deep_gemm": "deep_gemm",
    "sglang_kernel": "sgl_kernel",
}
"""Modules of distributions that are called otherwise."""

_ANSWERS = frozenset({"inputs", "kernels", "reference", "sota", "solution_reference"})


class _Refusal(MetaPathFinder):
    def __init__(self, allowed: frozenset[str]) -> None:
        self._refused = (LIBRARIES | _ANSWERS) - allowed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        top = fullname.partition(".")[0]
        if top in self._refused:
            hint = (
                "declare it as a dependency" if top in LIBRARIES else "solutions are self-contained"
            )
            raise ImportError(f"a solution may not import {fullname!r}: {hint}", name=fullname)
        return None


def install_import_hook(dependencies: Sequence[str]) -> None:
    """Refuses imports from now on, except of declared dependencies."""
    named = {_distribution(requirement) for requirement in dependencies}
    expanded = named | {_MODULES_OF[name] for name in named & set(_MODULES_OF)}
    sys.meta_path.insert(0, _Refusal(frozenset(expanded)))


def _distribution(requirement: str) -> str:
    """Normalised name at the beginning of a requirement such as ``fla-core==0.6.0``."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]
    return re.sub(r"[-_.]+", "_", name).lower()


def libraries_in_use() -> list[str]:
    """Those of ``LIBRARIES`` that this process has imported."""
    return sorted(LIBRARIES & set(sys.modules))
