"""Where and how something is measured: catalog, target, options, and the environment."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from kopt_harness import __version__
from kopt_harness.catalog import Catalog
from kopt_harness.conditions import gpu_driver
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Definition
from kopt_harness.targets import Target, get_target, require_present

__all__ = ["Setting"]

_PACKAGES = ("torch", "triton", "apache-tvm-ffi", "nvidia-cutlass-dsl", "cupti-python", "numpy")
_BLOCKS_MIN = 3
_ROUNDS_MIN = 6
_BLOCKS_MAX = 16
_ROUNDS_MAX = 63
"""Rounds are the only independent samples of a comparison: five degrees of freedom at the first
look, and at the last enough for 1.02 % on an H200 (docs/measurement.md)."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Setting:
    """Everything but the solutions and the workloads."""

    catalog: Catalog
    target: Target
    options: MeasureOptions
    builds: Path | None = None
    """Folder of built solutions; null: the root's own."""
    threads: int | None = None
    """Processors for each worker; null: all."""
    shelf: Path | None = None
    """Where judges keep input sets for later sweeps; null: nowhere, every set is new."""

    @classmethod
    def here(cls, catalog: Catalog, target: str, options: MeasureOptions) -> Setting:
        """The setting for a target that must be in this machine.

        Raises:
            NotFoundError: no such target.
            UnavailableError: this machine does not have it.
        """
        chosen = get_target(target)
        require_present(chosen)
        return cls(catalog, chosen, options)

    @property
    def timer(self) -> str:
        """Name of the timer."""
        return self.options.timer or self.target.timer

    @property
    def calls_per_slot(self) -> int:
        """Timed calls in each slot of an ABBA block."""
        return self.options.calls_per_slot or self.target.calls_per_slot

    @property
    def blocks_min(self) -> int:
        """Blocks of each workload before the data is looked at."""
        least = _ROUNDS_MIN if self.rounds else _BLOCKS_MIN
        return self.options.blocks_min or min(least, self.blocks_max)

    @property
    def blocks_max(self) -> int:
        """Blocks of each workload at most."""
        return self.options.blocks_max or (_ROUNDS_MAX if self.rounds else _BLOCKS_MAX)

    @property
    def rounds(self) -> bool:
        """Whether the n-th blocks of all workloads come from processes of their own."""
        chosen = self.options.rounds
        return self.target.rounds if chosen is None else chosen

    @property
    def rounds_ahead(self) -> int:
        """Rounds whose processes are opened side by side."""
        return self.options.rounds_ahead or self.target.rounds_ahead

    @property
    def device_id(self) -> str:
        """GPU UUID, ``cpu`` or ``simulated``: what a lease is taken on."""
        return self.target.present().uuid or self.target.kind

    def on_each_device(self) -> tuple[Setting, ...]:
        """One setting for each device of the target in this machine."""
        return tuple(replace(self, target=target) for target in self.target.each())

    @property
    def worker_variables(self) -> dict[str, str]:
        """What makes the target's device the first that a worker sees, and its threads."""
        uuid = self.target.present().uuid
        variables = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
        return variables | ({} if self.threads is None else {"OMP_NUM_THREADS": str(self.threads)})

    @property
    def l2_bytes(self) -> int | None:
        """Size of the cache that a cold call must not hit."""
        figure = self.target.l2_bytes
        return None if figure is None else int(figure.value)

    @property
    def build_cache(self) -> Path:
        """Folder of built solutions."""
        return self.builds or self.catalog.root.local / "builds"

    def rules(self, definition: Definition) -> dict[str, Any]:
        """By what an answer of a definition is judged here, resolved: for the result."""
        options = self.options.model_dump(mode="json")
        chosen = {"timer": self.timer, "calls_per_slot": self.calls_per_slot}
        chosen |= {"blocks_min": self.blocks_min, "blocks_max": self.blocks_max}
        chosen["rounds"] = self.rounds
        return {
            "contest": definition.kopt.contest.model_dump(mode="json"),
            "strict": {
                name: bound.model_dump(mode="json")
                for name, bound in definition.kopt.strict.items()
            },
            "options": options | chosen,
        }

    @cached_property
    def environment(self) -> dict[str, Any]:
        """What a result depends on beside the solution; ``epoch`` names the device's state."""
        presence = self.target.present()
        device = {
            "device": presence.device,
            "gpu_uuid": presence.uuid or None,
            "driver": gpu_driver() if presence.uuid else None,
            "boot_id": _BOOT_ID.read_text().strip() if _BOOT_ID.is_file() else None,
        }
        software = {name: _version(name) for name in _PACKAGES}
        return {
            "epoch": hashlib.sha256(json.dumps(device).encode()).hexdigest()[:12],
            "kopt": __version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}",
            "cores": os.cpu_count(),
            "timer": self.timer,
            "cache": self.options.cache,
            **device,
            "packages": {name: version for name, version in software.items() if version},
        }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
