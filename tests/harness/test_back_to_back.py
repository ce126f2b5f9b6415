"""Calls back to back, by the orchestrator's clock: what they contradict, and what they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kopt_harness import crosscheck
from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import build
from kopt_harness.lint import LintReport
from kopt_harness.options import MeasureOptions
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.pack import load
from kopt_harness.schema import Definition, Solution
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.timed import TimedCalls

TESTS = Path(__file__).parents[1]
HONEST = TESTS / "controls" / "solutions" / "k01-full-graph-key"
LIAR = TESTS / "exploits" / "solutions" / "t10-shortened-records"

Timed = Callable[[Setting, Solution], TimedCalls]


@pytest.fixture
def timed(
    catalog: Catalog, gdn_decode: Definition, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Timed]:
    """Timed calls of a solution on the smallest workload."""
    monkeypatch.setattr("kopt_harness.evaluate.lint", lambda solution: LintReport())
    sessions = []

    def measure(setting: Setting, solution: Solution) -> TimedCalls:
        workload = catalog.workloads(gdn_decode)[0]
        session = Session(setting, gdn_decode, [workload])
        sessions.append(session)
        session.bind(workload)
        session.open(solution, build(setting, solution).path)
        calls = TimedCalls(setting, session, workload)
        calls.slot(solution.sha256, 4)
        return calls

    yield measure
    for session in sessions:
        session.close()


@pytest.fixture
def simulated(catalog: Catalog) -> Setting:
    """The device without hardware."""
    return Setting.here(catalog, "simulated", MeasureOptions(trials=1, pool=1))


def codes(calls: TimedCalls, solution: Solution) -> set[str]:
    """Of the flags."""
    return {flag.code for flag in calls.flags(solution.sha256)}


LIES = """
from kopt_harness.bench.timers import simulated
from .device import enqueue

honest = simulated.take_census

def census(records, markers, **fields):
    short = [r._replace(end_ns=r.start_ns + 30_000) if r.name == "slow" else r for r in records]
    return honest(short, markers, **fields)

simulated.take_census = census

def run(*arguments):
    enqueue(arguments, name="slow", ns=30_000_000)
"""


def liar(catalog: Catalog) -> Solution:
    """An attack on the records of the device, which leaves no trace where kopt looks."""
    solution = load(LIAR, known=catalog).solution
    sources = tuple(
        source.model_copy(update={"content": LIES}) if source.path == "kernel.py" else source
        for source in solution.sources
    )
    return solution.model_copy(update={"sources": sources})


def test_a_lie_that_is_larger_than_stated_is_flagged(
    timed: Timed, simulated: Setting, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 ms are claimed as 30 us: too little for the clock around single calls to say so."""
    monkeypatch.setattr(crosscheck, "MAX_BATCH_LAUNCHES", 4)
    monkeypatch.setattr(crosscheck, "BATCH_TRIES", 1)
    solution = liar(catalog)
    calls = timed(simulated, solution)
    assert codes(calls, solution) == set()
    calls.back_to_back(solution.sha256, even_simulated=True)
    assert codes(calls, solution) == {"batch-disagrees"}


def test_an_honest_simulated_solution_is_not(
    timed: Timed, simulated: Setting, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels take the time of Python, which is allowed for."""
    monkeypatch.setattr(crosscheck, "MAX_BATCH_LAUNCHES", 8)
    honest = load(HONEST, known=catalog).solution
    calls = timed(simulated, honest)
    calls.back_to_back(honest.sha256, even_simulated=True)
    assert codes(calls, honest) == set()


def test_a_processors_claim_of_a_tenth_is_flagged_and_the_whole_is_not(
    timed: Timed, setting: Setting, make_solution: Any, honest: str
) -> None:
    """A real process and a real clock; what is claimed is changed on the way here."""
    slow = "import time\n" + honest.replace("def run(", "def work(") + SLEEPS
    solution = make_solution(slow)
    calls = timed(setting, solution)
    calls.back_to_back(solution.sha256)
    assert "batch-disagrees" not in codes(calls, solution)
    claims = calls._claims_ns[solution.sha256]
    calls._claims_ns[solution.sha256] = [ns // 10 for ns in claims]
    calls.back_to_back(solution.sha256)
    assert "batch-disagrees" in codes(calls, solution)


SLEEPS = """
def run(*arguments):
    work(*arguments)
    time.sleep(0.02)
"""


def test_what_is_wrong_only_when_it_is_called_again_is_wrong(
    timed: Timed, setting: Setting, make_solution: Any, honest: str
) -> None:
    """The last of many calls is compared as any other."""
    solution = make_solution(honest.replace("def run(", "def work(") + FORGETS)
    calls = timed(setting, solution)
    with pytest.raises(CandidateFailedError) as caught:
        calls.back_to_back(solution.sha256)
    assert caught.value.reason.code == "wrong-answer"


FORGETS = """
last = None

def run(*arguments):
    global last
    now = [a.clone() for a in arguments[:8] if isinstance(a, torch.Tensor)]
    same = last is not None and all(torch.equal(a, b) for a, b in zip(last, now))
    last = now
    work(*arguments)
    if same:
        arguments[-1].zero_()
"""
