"""Profiles of what a solution compiles to; nothing of it runs, and the target need not be here."""

from __future__ import annotations

from pathlib import Path

from .errors import InvalidInputError, ProfileError, UnavailableError
from .evaluate import build, solution_ref
from .profile import read_build
from .schema import Profile, Solution, Workload
from .setting import Setting

__all__ = ["profile_build"]


def profile_build(
    setting: Setting, solution: Solution, workload: Workload, profiler: str
) -> Profile:
    """Builds for the shapes of a workload, and reads the machine code.

    Raises:
        InvalidInputError: If the solution does not build.
        UnavailableError: If the target has no machine code of a GPU, or a tool is missing.
        ProfileError: If nothing was compiled for the GPU.
    """
    target = setting.target
    if target.kind != "cuda":
        raise UnavailableError(
            f"the profiler {profiler!r} reads machine code of GPUs, and the target "
            f"{target.name!r} has none",
            hint="name a GPU, as --target h200; it need not be here",
        )
    built = build(setting, solution, workload)
    if not built.ok:
        raise InvalidInputError(
            f"{solution.name!r} does not build for {target.name!r}: {_last_line(built.log)}",
            hint="kopt build shows the whole log",
        )
    cubins = sorted(Path(built.path).rglob("*.cubin"))
    if not cubins:
        raise ProfileError(
            f"the build of {solution.name!r} has no cubin: {_last_line(built.log)}",
            hint="kernels that are compiled in their first call need precompile() to be built "
            "ahead; those of a library need cuobjdump",
        )
    return Profile(
        profiler=profiler,
        solution=solution_ref(solution),
        target=target.name,
        uuid=workload.uuid,
        axes=workload.axes,
        **read_build(profiler, cubins),
    )


def _last_line(log: str) -> str:
    lines = log.strip().splitlines()
    return lines[-1] if lines else "the log is empty"
