"""Memory that a solution kept, and memory that somebody else took meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kopt_harness import device_health as module
from kopt_harness.catalog import Catalog
from kopt_harness.layout import Arena
from kopt_harness.options import MeasureOptions
from kopt_harness.setting import Setting
from kopt_harness.workers import Workers

GIB = 1 << 30
NOBODY = (1 << 22) + 1
"""No process has this id."""


class Judge:
    """Answers as the judge of a device would that has so many bytes free."""

    def __init__(self, free: int) -> None:
        self._free = free

    def request(self, _kind: str, **_fields: Any) -> dict[str, Any]:
        return {"ok": True, "free_bytes": self._free}


@pytest.fixture
def opened(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    """Of a session that had 100 GiB free when it began; nothing is waited for."""
    monkeypatch.setattr(module, "_MEMORY_BACK_S", 0.0)
    setting = Setting.here(catalog, "simulated", MeasureOptions())
    definition = catalog.resolve("gdn_decode")
    arena = Arena.for_workloads(definition, catalog.workloads(definition)[:1])
    workers = Workers(setting, definition, arena, salt=1)
    workers._health._free_bytes = 100 * GIB
    yield workers
    workers.close()


@pytest.mark.parametrize(
    ("free", "listed", "fault"),
    [
        (100, {}, False),
        (90, {}, True),
        (90, {os.getpid(): 10 * GIB}, False),
        (90, {os.getpid(): 4 * GIB}, True),
        (90, {NOBODY: 10 * GIB}, True),
    ],
    ids=["all back", "kept", "taken by another", "taken in part", "of a process that is gone"],
)
def test_what_living_processes_took_is_not_missing(
    opened: Workers, monkeypatch: pytest.MonkeyPatch, free: int, listed: dict[int, int], fault: bool
) -> None:
    """Two checks on one device do not take it out of use; a solution that keeps memory does."""
    monkeypatch.setattr(module, "device_memory", lambda _uuid: listed)
    found = opened._health.fault_of(Judge(free * GIB), in_use=False)  # type: ignore[arg-type]
    assert bool(found) == fault
    assert not fault or "did not come back" in found


def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next_one(opened: Workers) -> None:
    """Who was interrupted in a request ends the session, and the device is looked at as ever."""
    judge = opened.judge()
    judge.send("watch", quiet_s=0.0)
    assert opened._health.fault_of(judge, in_use=True) == ""
    judge.send("no such request")
    assert opened.ask_judge("canary")["ok"]
