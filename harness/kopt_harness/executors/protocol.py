"""What an executor is given, and what it has to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from kopt_harness.catalog import Catalog
from kopt_harness.fleet import Checked
from kopt_harness.ledger import Kept
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Solution, SweepResult, Workload
from kopt_harness.setting import Setting
from kopt_harness.watch import Watch

__all__ = ["Executor", "Place", "Swept", "Work", "scope_of"]


class Place(NamedTuple):
    """Where a sweep runs, and how."""

    catalog: Catalog
    target: str
    options: MeasureOptions
    shelf: Path | None = None
    """Where judges of this machine keep input sets; null: nowhere."""
    address: str | None = None
    """Of a cluster; null: this machine alone."""


class Work(NamedTuple):
    """One solution to sweep."""

    candidate: Solution
    incumbent: Solution | None
    """What it is compared with; null: nothing is timed, but baselines."""
    workloads: Sequence[Workload]


Swept = Callable[[Work, SweepResult], None]


@runtime_checkable
class Executor(Protocol):
    """Sweeps solutions; each comparison is made on one device."""

    @property
    def setting(self) -> Setting:
        """Target and options; its device need not be in this machine."""
        ...

    def close(self) -> None:
        """Ends what was started for it."""
        ...

    def sweep(
        self, works: Sequence[Work], ledger: Kept, *, watch: Watch, checked: Checked, swept: Swept
    ) -> list[SweepResult]:
        """Sweeps all of them; results in the order of ``works``.

        Args:
            works: What to sweep.
            ledger: Of this machine; what is complete is taken from it and added to it, under
                ``scope_of`` the setting of whoever measured.
            watch: Is told what everybody does.
            checked: Called after each workload, in whatever thread.
            swept: Called after each solution, in whatever thread.

        Raises:
            InfraError: The machine failed, also when tried again; what is complete is kept.
        """
        ...


def scope_of(setting: Setting) -> str:
    """Beginning of the keys of results that may stand beside each other.

    It is a fingerprint of the device's state and of how it measures: results of two machines
    never have the same.
    """
    options = setting.options
    same = [
        setting.environment["epoch"],
        setting.timer,
        options.cache,
        setting.calls_per_slot,
        options.seed,
    ]
    return hashlib.sha256(json.dumps(same).encode()).hexdigest()[:12]
