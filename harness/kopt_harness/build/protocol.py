"""What a builder is, and what goes into and out of one.

To add a language, add a module to this folder that defines ``BUILDER``, an object of the
protocol ``Builder``. Nothing else has to be edited: builders are found by listing the folder.
Modules whose name begins with an underscore are shared helpers.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from kopt_harness.schema import Artefact, Definition, Model, Solution

__all__ = ["SOURCE_FOLDER", "BuildRequest", "Builder", "Job", "Outcome", "Plan"]

SOURCE_FOLDER = "src"
"""Folder of a build that holds the solution's sources; it loads as one package."""


class BuildRequest(Model):
    """What is to be built."""

    solution: Solution
    target: str
    kind: Literal["cpu", "cuda", "simulated"]
    """Of the target."""
    arch: str | None
    """GPU architecture, as ``sm_90a``; None on a CPU."""
    definition: Definition | None = None
    """Shapes and dtypes of representative arguments; without it nothing is compiled ahead."""
    axes: dict[str, int] | None = None
    """All axes, bound, for what is compiled ahead of the first call."""

    @property
    def host_arch(self) -> str:
        """Architecture of host code, as ``x86_64``."""
        return platform.machine()

    @property
    def gpu_arch(self) -> str:
        """Architecture of device code; only for GPU targets."""
        assert self.arch is not None, f"the target {self.target!r} has no GPU architecture"
        return self.arch

    @property
    def capability(self) -> int:
        """``sm_90a`` as 90; only for GPU targets."""
        return int("".join(c for c in self.gpu_arch if c.isdigit()))


class Plan(Model):
    """Everything besides sources and target that decides what a build is; part of its key."""

    flags: tuple[str, ...] = ()
    """Of the compiler command, in order."""
    toolchain: dict[str, str] = {}
    """Tool or package to its version text."""
    environment: dict[str, str] = {}
    """Variables that the builder process needs, beyond those of every worker."""
    ahead: bool = False
    """Whether representative arguments are used, so that definition and axes count."""


class Job(Model):
    """What a builder process is asked to do."""

    request: BuildRequest
    plan: Plan
    folder: Path
    """Absolute; its ``src`` holds the sources."""
    timeout_s: float


class Outcome(Model):
    """What a builder made, or why it did not."""

    ok: bool
    artefacts: tuple[Artefact, ...] = ()
    log: str = ""


@runtime_checkable
class Builder(Protocol):
    """One language.

    ``plan`` runs in the orchestrator and must not load the GPU stack; ``compile`` runs in a
    builder process of its own, ``load`` in a candidate worker.
    """

    @property
    def language(self) -> str:
        """Value of ``build.language`` that it serves."""
        ...

    @property
    def native(self) -> bool:
        """Whether sources are C or C++: then a binding counts, and tunables are a header."""
        ...

    def plan(self, request: BuildRequest) -> Plan:
        """Find the toolchain and settle every flag.

        Raises:
            UnavailableError: If the toolchain is not here, or cannot serve the target.
        """
        ...

    def compile(self, job: Job) -> Outcome:
        """Build into the job's folder, which is also the working directory.

        What the candidate's code raises here may pass through: it is the candidate's fault.
        """
        ...

    def load(self, folder: Path, solution: Solution) -> Callable[..., Any]:
        """The entry function of a built folder."""
        ...
