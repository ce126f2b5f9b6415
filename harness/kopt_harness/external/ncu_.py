"""Nsight Compute: the hardware's own counters, one kernel at a time.

Seen to work in the whole sandbox of a candidate: another user, no capabilities, no network,
Landlock (one H200, driver 580, ncu 2025.3.1, Linux 6.18, 2026-11-30). Application and
profiler speak over named pipes in the temporary folder. Where the driver gives counters to
administrators only, it says ``ERR_NVGPUCTRPERM``.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .protocol import Bracket
from .report import METRIC

__all__ = ["PROFILER", "Ncu"]

_MARKER_STEP = 4096
"""Elements, so that two sizes have different grids."""
_MARKER_STEPS = 64


@dataclass(frozen=True)
class Ncu:
    """The program ``ncu`` on the path, with one metric."""

    name: str = "ncu"
    program: str = "ncu"
    device_kind: str = "cuda"
    spread_ns: float = 700.0
    """Seen on one H200: 0.7 us more than CUPTI for small kernels, up to 1.35 us for others."""

    def missing(self) -> str:
        """Whether it is installed; whether it may read counters shows when it does."""
        return "" if shutil.which(self.program) else "ncu is not on the path"

    def version(self) -> str:
        """Last line of ``ncu --version``."""
        from kopt_harness.proc import run  # noqa: PLC0415  the sandboxed module needs no psutil

        done = run([self.program, "--version"], timeout_s=30)
        lines = [line for line in done.stdout.splitlines() if line.startswith("Version ")]
        return lines[0].removeprefix("Version ").strip() if done.ok and lines else ""

    def folders(self) -> tuple[str, ...]:
        """Where it really is; usually below /usr or /opt, which everybody reads."""
        found = shutil.which(self.program)
        return () if found is None else (str(Path(found).resolve().parent),)

    def command(self, application: Sequence[str]) -> list[str]:
        """What is reported begins and ends with the bracket; the clocks are left as they are."""
        options = {
            "--profile-from-start": "off",
            "--target-processes": "application-only",
            "--clock-control": "none",
            "--print-units": "base",
        }
        words = [word for pair in options.items() for word in pair]
        return [self.program, *words, *self._collected(), "--csv", *application]

    def _collected(self) -> tuple[str, ...]:
        """One metric takes one pass, so that no kernel is run twice and no memory is restored.

        Caches are not touched: the timer of the call flushes.
        """
        return ("--cache-control", "none", "--metrics", METRIC)

    def bracket(self) -> Bracket:
        """Start and stop of the CUDA profiler; the marker has a grid drawn at random."""
        import torch  # noqa: PLC0415  workers only
        from cuda.bindings import runtime  # noqa: PLC0415

        size = secrets.randbelow(_MARKER_STEPS) + 1
        add = torch.zeros(size * _MARKER_STEP, device="cuda").add_
        return Bracket(runtime.cudaProfilerStart, lambda: add(1), runtime.cudaProfilerStop)


PROFILER = Ncu()
