"""What a build produced."""

from __future__ import annotations

from typing import Any

from ._base import Model
from .verdict import SolutionRef


class Artefact(Model):
    """One built object; fields that a kind does not have are null."""

    kind: str
    """``shared-object``, ``cubin``, ``ptx``, ``module``."""
    arch: str
    """``x86_64``, ``sm_90a``, ``sm_100a``, ..."""
    name: str = ""
    """Kernel or file name."""
    registers: int | None = None
    """Per thread."""
    smem_bytes: int | None = None
    """Static shared memory, plus dynamic where the compiler knows it."""
    spill_bytes: int | None = None
    """Spill stores plus loads as ptxas prints them; where only the cubin is known, the stack
    frame of a thread, which holds spills and arrays indexed at run time."""


class BuildResult(Model):
    """The outcome of one build."""

    solution: SolutionRef
    target: str
    ok: bool
    artefacts: tuple[Artefact, ...] = ()
    log: str = ""
    """Compiler output, capped."""
    key: str
    """Hash over the sources, every flag, the toolchain versions and the target."""
    path: str = ""
    """Folder of the artefact in the build cache."""
    seconds: float = 0.0
    cached: bool = False
    timed_out: bool = False
    """Whether the builder process was ended at its time limit; then ``ok`` is false."""

    def document(self) -> dict[str, Any]:
        """The JSON document of ``kopt build``."""
        return {"schema": 1, **self.model_dump(mode="json")}
