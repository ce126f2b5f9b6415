"""Cubins of a build: where they lie in it, and how they come out of a library."""

from __future__ import annotations

from pathlib import Path

from kopt_harness.cubin import find_cuobjdump
from kopt_harness.proc import run

__all__ = ["CUBIN_FOLDER", "extract_cubins"]

CUBIN_FOLDER = "cubins"
"""Folder of a build for what was compiled for the device."""

_TIMEOUT_S = 60.0


def extract_cubins(library: Path, folder: Path) -> None:
    """Copy the cubins inside a shared object into a folder, where ``cuobjdump`` is there."""
    tool = find_cuobjdump()
    if tool is not None:
        folder.mkdir(exist_ok=True)
        run([tool, "--extract-elf", "all", library], timeout_s=_TIMEOUT_S, cwd=folder)
