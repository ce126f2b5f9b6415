"""What the lint finds reaches every way of judging; nothing rejected is built or started."""

from __future__ import annotations

from pathlib import Path

import pytest
from kopt_harness.compare import Pair, compare_pair
from kopt_harness.evaluate import build, conclude, evaluate
from kopt_harness.gate import gate
from kopt_harness.ledger import DictLedger
from kopt_harness.replay import replay
from kopt_harness.schema import Solution, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.sweep import sweep

BRIGHT = "import os, sys\n\ndef run(*_):\n    os.write(int(sys.argv[2]), b'')\n"


@pytest.fixture
def bright(make_solution) -> Solution:
    """Crosses a bright line in its fourth line."""
    return make_solution(BRIGHT, name="bright")


@pytest.fixture
def workloads(catalog, gdn_decode) -> list[Workload]:
    """The smallest."""
    return catalog.workloads(gdn_decode)[:1]


def test_nothing_is_built_or_started(setting, gdn_decode, workloads, bright: Solution) -> None:
    """Verdict reject in phase build, with file and line; no build folder and no worker."""
    with Session(setting, gdn_decode, workloads) as session:
        found = evaluate(setting, bright, workloads, DictLedger(), session=session)
        assert not session.isolation, "no process was opened"
    assert (found.verdict, found.phase) == (Verdict.REJECT, "build")
    (reason,) = found.reasons
    assert reason.code == "lint-worker-channel"
    assert reason.detail.startswith("kernel.py:4:")
    assert "lint-environment" in {flag.code for flag in found.flags}
    assert not build(setting, bright).ok
    made = [path.read_text() for path in Path(setting.build_cache).rglob("result.json")]
    assert not any(bright.sha256 in text for text in made)


def test_gate_sweep_and_replay_reject_it(setting, workloads, bright, make_solution) -> None:
    """With the same reason, and without a comparison."""
    incumbent = make_solution("def run(*_): ...\n", name="incumbent")
    gated = gate(setting, bright, incumbent, workloads, DictLedger())
    assert (gated.passed, gated.reason.code) == (False, "verdict-reject")
    swept = sweep(setting, bright, incumbent, workloads, DictLedger())
    tried = replay(setting, bright, workloads, DictLedger(), trials=2).evaluation
    for evaluation in (gated.evaluation, swept.evaluation, tried):
        assert evaluation.verdict == Verdict.REJECT
        assert evaluation.reasons[0].code == "lint-worker-channel"
    assert swept.comparison is None


@pytest.mark.parametrize("first", [True, False])
def test_a_comparison_with_it_is_none(
    setting, gdn_decode, workloads, bright, make_solution, first: bool
) -> None:
    """On either side: ambiguous, and the reason names it."""
    other = make_solution("def run(*_): ...\n", name="other")
    a, b = (bright, other) if first else (other, bright)
    with Session(setting, gdn_decode, workloads) as session:
        comparison = compare_pair(Pair.of(setting, session, DictLedger(), a, b), workloads)
    assert (comparison.decision, comparison.ratio) == ("ambiguous", None)
    assert comparison.reason.startswith("bright: reject: kernel.py:4:")


def test_flags_are_those_of_every_evaluation(setting, make_solution) -> None:
    """Whatever the verdict, they stand beside what the workloads raised."""
    solution = make_solution("import zlib\n\ndef run(*_): ...\n")
    found = conclude(setting, solution, [], isolation={})
    (flag,) = found.flags
    assert flag.code == "lint-encoded-data"
    assert "kernel.py:1" in flag.detail
