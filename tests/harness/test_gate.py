"""The gate: a candidate must be right, and must not be shown to be slower."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.gate import gate
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import (
    Definition,
    GateResult,
    Solution,
    SourceFile,
    Verdict,
    Workload,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting

pytestmark = pytest.mark.alone

SLEEP = "    import time; time.sleep(0.1)\n"


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """B = 1 and B = 4."""
    return [catalog.workloads(gdn_decode)[index] for index in (0, 10)]


class Gate:
    """A gate on a warm session; what it has measured stays in its ledger."""

    def __init__(self, setting: Setting, session: Session, workloads: list[Workload]) -> None:
        self.setting, self.session, self.workloads = setting, session, workloads
        self.ledger = DictLedger()

    def __call__(self, candidate: Solution, incumbent: Solution) -> GateResult:
        return gate(
            self.setting,
            candidate,
            incumbent,
            self.workloads,
            self.ledger,
            session=self.session,
        )


@pytest.fixture(scope="module")
def warm(catalog: Catalog, gdn_decode: Definition, workloads: list[Workload]) -> Iterator[Session]:
    """One judge for all tests of this module."""
    options = MeasureOptions(trials=1, pool=1, blocks_min=2, blocks_max=6)
    setting = Setting.here(catalog, "cpu", options)
    with Session(setting, gdn_decode, workloads) as session:
        yield session


@pytest.fixture
def run(warm: Session, workloads: list[Workload]) -> Gate:
    """A gate with an empty ledger."""
    return Gate(warm._setting, warm, workloads)


@pytest.fixture
def good(make_solution, honest) -> Solution:
    """Correct and fast."""
    return make_solution(honest, name="good")


@pytest.fixture
def slow(make_solution, honest) -> Solution:
    """Correct, a tenth of a second slower."""
    return make_solution(honest + SLEEP, name="slow")


def test_faster_passes_and_slower_does_not(run, good, slow) -> None:
    """The reason is the decision of the comparison, the evaluation has the timings of B."""
    faster = run(good, slow)
    assert (faster.passed, faster.reason.code) == (True, "faster")
    assert faster.comparison is not None
    assert (faster.comparison.a.name, faster.comparison.b.name) == ("slow", "good")
    for result in faster.evaluation.workloads:
        assert result.timing["timer"] == "cpu"
        assert result.timing["n"] == len(result.timing["samples_ns"])
    slower = run(slow, good)
    assert (slower.passed, slower.reason.code) == (False, "slower")
    assert slower.evaluation.verdict == Verdict.PASS


def test_a_gate_is_read_back_from_its_ledger(run, good, slow, gdn_decode, workloads) -> None:
    """Gating again over the same ledger measures nothing and decides the same."""
    first = run(good, slow)
    before = run.ledger.completed()
    with Session(run.setting, gdn_decode, workloads) as cold:
        again = gate(run.setting, good, slow, workloads, run.ledger, session=cold)
        assert not cold.isolation
    assert again.model_copy(update={"evaluation": first.evaluation}) == first
    assert again.evaluation.verdict == first.evaluation.verdict
    assert run.ledger.completed() == before


def test_a_wrong_candidate_is_not_timed(run, make_solution, honest, good) -> None:
    """No ratio of a wrong answer exists, and the reason names the element."""
    wrong = make_solution(honest + "    output[0, 0, 1, 2] = 7\n", name="wrong")
    result = run(wrong, good)
    assert not result.passed
    assert result.comparison is None
    assert result.reason.code == "verdict-fail"
    assert "output" in result.reason.detail
    assert "[0, 0, 1, 2]" in result.reason.detail
    assert not any("block" in key for key in run.ledger.completed())


def test_a_candidate_that_is_wrong_only_when_timed_fails(
    run, catalog, gdn_decode, make_solution, honest, good
) -> None:
    """The verdict of the check does not stand against a wrong timed call."""
    inputs = (catalog.folder(gdn_decode) / "inputs.py").read_text()
    checked = inputs.count('Generator("') * len(run.workloads)
    source = honest.replace("def run(", "calls = 0\n\ndef run(") + (
        f"    global calls\n    calls += 1\n    if calls > {checked + 2}:\n        output.zero_()\n"
    )
    result = run(make_solution(source, name="turns"), good)
    assert not result.passed
    assert result.evaluation.verdict == Verdict.FAIL
    assert result.evaluation.phase == "bench"
    assert result.reason.code == "verdict-fail"


def test_a_broken_incumbent_is_not_the_candidates_fault(run, make_solution, honest, good) -> None:
    """The candidate keeps its verdict; the gate says who failed."""
    broken = make_solution(honest + "    raise RuntimeError('worn out')\n", name="broken")
    result = run(good, broken)
    assert not result.passed
    assert result.evaluation.verdict == Verdict.PASS
    assert result.reason.code == "incumbent-failed"
    assert "broken" in result.reason.detail
    assert "worn out" in result.reason.detail


def test_a_missing_toolchain_says_nothing_of_the_candidate(
    run, catalog, gdn_decode, good, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One candidate that this machine cannot build is infra, and does not end a round."""
    monkeypatch.setenv("CXX", "/nowhere/g++")
    known = catalog.solution(gdn_decode, "cpp-recurrent").solution
    novel = SourceFile(path="unused.txt", content="so that the cache of builds has no copy")
    result = run(known.model_copy(update={"sources": (*known.sources, novel)}), good)
    assert not result.passed
    assert result.evaluation.verdict == Verdict.INFRA
    assert result.evaluation.reasons[0].code == "toolchain-missing"
    assert "/nowhere/g++" in result.reason.detail
