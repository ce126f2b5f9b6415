"""What a campaign has spent, counted as it goes, and the end of it where a limit is reached.

What agents have used is in the run's journal. How long the harness has measured and how long the
processes of the campaign have run is in ``costs.jsonl`` beside it, which nothing is decided from:
two runs with the same samples decide the same and take another time. A campaign that was killed
and resumed has spent what all its processes have spent.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kopt_harness.errors import LimitReachedError
from kopt_harness.journal import JournalRecord, read_journal
from kopt_harness.lease import waited_s
from kopt_harness.ledger import Ledger
from kopt_harness.schema import GateResult, Profile, Solution, SweepResult, Validation, Workload

from .costs import (
    Allowance,
    CostReport,
    DeviceUse,
    Limits,
    RoundUse,
    cost_document,
    cost_report,
    device_uses_in,
    total_of,
    uses_in,
)
from .harness import Harness

__all__ = [
    "COSTS_FILE",
    "CompletedLedger",
    "Meter",
    "MeteredHarness",
    "Reached",
    "RunCosts",
    "reached",
    "read_costs",
]

COSTS_FILE = "costs.jsonl"
"""In the folder of a run."""
_WALL = "wall"
_ROUND = re.compile(r"round/(?P<round>\d+)/\d+")
_COUNTED = ("/usage/", "/turn/", "/proposals/")
_STEP_S = 0.5
"""Of wall time, from which on it is worth a record."""


class CompletedLedger(Ledger, Protocol):
    """A ledger that can say what is in it: a journal."""

    def completed(self) -> tuple[str, ...]:
        """Keys of all completed units, in the order of completion."""
        ...


class Reached(NamedTuple):
    """A limit that bars anything further."""

    name: str
    """Field of ``Limits``."""
    used: float
    limit: float
    unit: str

    @property
    def option(self) -> str:
        """Of the command line, that sets it."""
        return f"--{self.name.replace('_', '-')}"

    def __str__(self) -> str:
        return f"the campaign has used {self.used:.6g} {self.unit}, and may use {self.limit:.6g}"


def reached(limits: Limits, spent: CostReport, wall_s: float) -> Reached | None:
    """The first limit that was reached; None where there is something left of each.

    Args:
        limits: Of a campaign.
        spent: In all its rounds.
        wall_s: Of all its processes.
    """
    for name, limit, used, unit in (
        ("max_dollars", limits.max_dollars, spent.total.dollars, "dollars"),
        ("max_tokens", limits.max_tokens, spent.total.tokens, "tokens"),
        ("max_device_s", limits.max_device_s, spent.device_s, "seconds of the device"),
        ("max_wall_s", limits.max_wall_s, wall_s, "seconds"),
    ):
        if limit is not None and used >= limit:
            return Reached(name, used, limit, unit)
    return None


class RunCosts(NamedTuple):
    """What a run has cost, by round."""

    rounds: dict[int, CostReport]
    wall_s: float
    """Of all its processes."""

    @property
    def total(self) -> CostReport | None:
        """Of all rounds; None where nothing was noted of any."""
        return total_of(list(self.rounds.values())) if self.rounds else None

    def document(self) -> dict[str, Any] | None:
        """For JSON; None where nothing was noted."""
        total = self.total
        return None if total is None else {**cost_document(total), "campaign_wall_s": self.wall_s}


def read_costs(folder: Path, journal: Sequence[JournalRecord] = ()) -> RunCosts:
    """The costs of a run, also while it goes on.

    Args:
        folder: Of the run.
        journal: Its records: with them the round that is not closed yet is counted as well.

    Raises:
        InvalidInputError: If its file is damaged.
    """
    path = folder / COSTS_FILE
    records = read_journal(path) if path.exists() else ()
    rounds = {
        int(match["round"]): CostReport.model_validate(record.value)
        for record in records
        if (match := _ROUND.fullmatch(record.key))
    }
    own = {record.key: record.value for record in records}
    uses = uses_in(
        {each.key: each.value for each in journal if any(part in each.key for part in _COUNTED)}
    )
    measured = device_uses_in(own) if journal else ()
    numbers = {use.round for use in uses} | {each.round for each in measured}
    for number in sorted(numbers - rounds.keys()):
        rounds[number] = cost_report(
            [use.usage for use in uses if use.round == number],
            [each for each in measured if each.round == number],
        )
    return RunCosts(rounds, _walls(own))


def _walls(records: Mapping[str, dict[str, Any]]) -> float:
    """Each process has noted again and again how long it has run."""
    last = {
        key.split("/")[1]: float(value["s"])
        for key, value in records.items()
        if key.startswith(f"{_WALL}/")
    }
    return fsum(last.values())


class Meter:
    """Counts for one campaign."""

    def __init__(
        self, journal: CompletedLedger, own: CompletedLedger, limits: Limits, go_on: str = ""
    ) -> None:
        """Starts the clock of this process.

        Args:
            journal: Of the campaign: what agents have used.
            own: Of the meter: how long was measured.
            limits: What the campaign may spend.
            go_on: The command that continues it, for the error.
        """
        self._journal = journal
        self._own = own
        self._limits = limits
        self._go_on = go_on
        self._start = time.monotonic()
        self._seen: dict[str, dict[str, Any]] = {}
        self._read = 0
        known = _values(own)
        self._walls_before_s = _walls(known)
        self._process = len({key.split("/")[1] for key in known if key.startswith(f"{_WALL}/")})
        self._measured = list(device_uses_in(known))
        self._closed = sum(_ROUND.fullmatch(key) is not None for key in known)
        self._written_s = 0.0
        self._walls = 0
        self._has_worked = False
        self._round = 0

    def enter(self, number: int) -> None:
        """From here on the harness measures for another round.

        Args:
            number: Of the round.
        """
        self._round = number

    def close_round(self, number: int) -> None:
        """Keeps what a round has cost, unless it was only read.

        Args:
            number: Of the round.
        """
        if self._has_worked:
            self._own.put(
                f"round/{number}/{self._closed}", self.report(number).model_dump(mode="json")
            )
            self._closed += 1
            self.note_wall()
        self._has_worked = False

    @property
    def limits(self) -> Limits:
        """What the campaign may spend."""
        return self._limits

    def report(self, number: int | None = None) -> CostReport:
        """What was spent.

        Args:
            number: Of a round; None: the whole campaign.
        """
        return cost_report(
            [use.usage for use in self._uses() if number in (None, use.round)],
            [each for each in self._measured if number in (None, each.round)],
        )

    def wall_s(self) -> float:
        """Of all processes of the campaign."""
        return self._walls_before_s + time.monotonic() - self._start

    def left(self) -> Allowance:
        """What of each limit is left; never less than nothing."""
        limits, spent = self._limits, self.report()
        return Allowance(
            dollars=_left(limits.max_dollars, spent.total.dollars),
            tokens=None
            if limits.max_tokens is None
            else max(0, limits.max_tokens - spent.total.tokens),
            device_s=_left(limits.max_device_s, spent.device_s),
            wall_s=_left(limits.max_wall_s, self.wall_s()),
        )

    def check(self) -> None:
        """Ends the campaign where a limit is reached; asked before anything is spent.

        Raises:
            LimitReachedError: It says which, and how to go on with more.
        """
        self._has_worked = True
        self.note_wall()
        found = reached(self._limits, self.report(), self.wall_s())
        if found is not None:
            raise LimitReachedError(
                str(found),
                hint=f"go on with more: {self._go_on} {found.option} N".replace("  ", " "),
            )

    def note_wall(self) -> None:
        """Keeps how long this process has run."""
        now_s = time.monotonic() - self._start
        if now_s - self._written_s >= _STEP_S:
            self._own.put(f"{_WALL}/{self._process}/{self._walls}", {"s": round(now_s, 3)})
            self._written_s = now_s
            self._walls += 1

    @contextmanager
    def measuring(self, what: str, candidate: Solution) -> Iterator[None]:
        """Counts how long the device is used or prepared for, also where it ends in an error.

        Args:
            what: Is done.
            candidate: What is measured.

        Raises:
            LimitReachedError: If nothing is left; the body does not run.
        """
        self.check()
        start, waited_before_s = time.monotonic(), waited_s()
        try:
            yield
        finally:
            # What others have measured meanwhile is not this campaign's.
            used_s = time.monotonic() - start - (waited_s() - waited_before_s)
            use = DeviceUse(
                round=self._round,
                what=what,
                candidate=candidate.sha256,
                device_s=round(max(0.0, used_s), 3),
            )
            self._own.put(f"device/{len(self._measured)}", use.model_dump(mode="json"))
            self._measured.append(use)

    def _uses(self) -> tuple[RoundUse, ...]:
        keys = self._journal.completed()
        for key in keys[self._read :]:
            if any(part in key for part in _COUNTED):
                value = self._journal.get(key)
                if value is not None:
                    self._seen[key] = value
        self._read = len(keys)
        return uses_in(self._seen)


def _values(ledger: CompletedLedger) -> dict[str, dict[str, Any]]:
    found = {key: ledger.get(key) for key in ledger.completed()}
    return {key: value for key, value in found.items() if value is not None}


def _left(limit: float | None, used: float) -> float | None:
    return None if limit is None else max(0.0, limit - used)


class MeteredHarness:
    """A harness whose time is counted, and which measures nothing past a limit."""

    def __init__(self, harness: Harness, meter: Meter) -> None:
        self._harness = harness
        self._meter = meter
        self.target = harness.target

    @property
    def environment(self) -> dict[str, Any]:
        """Of the harness behind it."""
        return self._harness.environment

    def profile(self, solution: Solution, workload: Workload, ledger: Ledger) -> Profile:
        """Profiles one solution on one workload."""
        with self._meter.measuring("profile", solution):
            return self._harness.profile(solution, workload, ledger)

    def prepare(self, solutions: Sequence[Solution]) -> None:
        """Builds, which uses no device."""
        self._harness.prepare(solutions)

    def gate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> GateResult:
        """Builds, checks and times a candidate against the incumbent on representatives."""
        with self._meter.measuring("gate", candidate):
            return self._harness.gate(candidate, incumbent, workloads, ledger)

    def sweep(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
        distinct_inputs: int = 0,
    ) -> SweepResult:
        """The same on every workload, with full correctness."""
        with self._meter.measuring("sweep", candidate):
            return self._harness.sweep(candidate, incumbent, workloads, ledger, distinct_inputs)

    def validate(
        self,
        candidate: Solution,
        incumbent: Solution,
        workloads: Sequence[Workload],
        ledger: Ledger,
    ) -> Validation:
        """Judges archived bytes in processes of their own."""
        with self._meter.measuring("validate", candidate):
            return self._harness.validate(candidate, incumbent, workloads, ledger)

    def close(self) -> None:
        """Ends worker processes."""
        self._harness.close()
