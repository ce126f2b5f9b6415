"""This machine: all devices of the target, several workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kopt_harness.errors import UsageError
from kopt_harness.fleet import Checked
from kopt_harness.ledger import Kept
from kopt_harness.schema import SweepResult
from kopt_harness.setting import Setting
from kopt_harness.sweeps import Request, devices_for, sweep_all
from kopt_harness.watch import Watch

from .protocol import Place, Swept, Work, scope_of

__all__ = ["LocalExecutor", "create"]


def create(place: Place) -> LocalExecutor:
    """The executor of this machine.

    Raises:
        UnavailableError: The target is not here.
    """
    if place.address is not None:
        raise UsageError(
            f"the executor local knows no address {place.address!r}", hint="add --executor ray"
        )
    setting = Setting.here(place.catalog, place.target, place.options)
    return LocalExecutor(replace(setting, shelf=place.shelf))


class LocalExecutor:
    """See ``kopt_harness.sweeps``."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def close(self) -> None:
        """Nothing outlives a sweep."""

    def sweep(
        self, works: Sequence[Work], ledger: Kept, *, watch: Watch, checked: Checked, swept: Swept
    ) -> list[SweepResult]:
        """Solutions go to devices in turn."""
        settings = devices_for(self.setting, len(works))
        requests = [
            Request(setting, *work, ledger.scoped(scope_of(setting)))
            for setting, work in zip(settings, works, strict=True)
        ]

        def done(request: Request, result: SweepResult) -> None:
            swept(Work(request.candidate, request.incumbent, request.workloads), result)

        return sweep_all(requests, watch=watch, checked=checked, swept=done)
