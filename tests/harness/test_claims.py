"""What a candidate process says is checked for its form before anything is made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import evaluate
from kopt_harness.ledger import DictLedger, dumps
from kopt_harness.lint import LintReport
from kopt_harness.local import LocalHarness
from kopt_harness.schema import Definition, Evaluation, Solution, Verdict
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.worker.claims import CallClaim, ProfileClaim, plain_text, read_claim
from kopt_harness.worker.wire import WireError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("ns", "details", "bad_output", "launches", "kernels", "total_us", "notes")

FORGE = """
import json, os, struct, sys, time

def forge(fields, timed):
    caller = sys._getframe(2)
    while not {"request", "self"} <= set(caller.f_locals):
        caller = caller.f_back
    if caller.f_locals["request"]["timed"] != timed:
        return
    body = {"schema": 1, "seq": caller.f_locals["self"]._channel._sent, **fields}
    data = json.dumps(body).encode()
    os.write(int(sys.argv[2]), struct.pack("<I", len(data)) + data)
    time.sleep(60)
"""
"""Writes a frame into the channel in the name of the worker, whose own answer comes too late."""


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_a_claim_is_refused_or_can_be_recorded(answer: dict[str, object]) -> None:
    """Whatever the fields hold, what is accepted is strict JSON that can be printed."""
    for model in (CallClaim, ProfileClaim):
        try:
            claim = read_claim(model, answer)
        except WireError:
            continue
        dumps(claim.model_dump(mode="json")).encode()


@pytest.mark.parametrize("ns", [None, 0, -1, "1", 1.5, float("nan"), True, 10**30])
def test_a_duration_is_a_positive_whole_number(ns: object) -> None:
    """Anything else is refused, or is no time."""
    try:
        claim = read_claim(CallClaim, {"ns": ns})
    except WireError:
        return
    assert not claim.is_time


def test_nothing_that_ran_on_a_device_takes_no_time() -> None:
    """The judge needs to hear of it: it is a reason to reject."""
    assert read_claim(CallClaim, {"ns": 0, "details": {"launches": 0, "kernels": []}}).is_time


def test_texts_can_be_printed() -> None:
    """Terminal commands and halves of surrogate pairs are written out, and texts have an end."""
    assert plain_text("a\x1b[2J\ud800\nb") == "a\\x1b[2J\\ud800\nb"
    assert len(plain_text("x" * 100_000)) == 2000


def judged(
    setting: Setting, session: Session, catalog: Catalog, solution: Solution, *, timed: bool
) -> Evaluation:
    """Evaluates on the smallest workload; the process ends with it."""
    workload = catalog.workloads(catalog.resolve(solution.definition))[0]
    try:
        return evaluate(setting, solution, [workload], DictLedger(), timed=timed, session=session)
    finally:
        session.discard(solution.sha256)


@pytest.mark.parametrize(
    ("fields", "timed", "verdict"),
    [
        ({"type": "done", "bad_output": {"x": 1}}, False, Verdict.CRASH),
        ({"type": "done", "bad_output": "x" * 9000}, False, Verdict.FAIL),
        ({"type": "done", "phases": [1]}, False, Verdict.CRASH),
        ({"type": "error", "kind": "infra", "message": "no disk"}, False, Verdict.CRASH),
        ({"type": "error", "kind": "unavailable", "message": "no GPU"}, False, Verdict.CRASH),
        ({"type": "done"}, True, Verdict.CRASH),
        ({"type": "done", "details": 7}, True, Verdict.CRASH),
    ],
)
def test_a_forged_answer_is_the_fault_of_the_candidate(
    setting, session, catalog, make_solution, honest, monkeypatch, fields, timed, verdict
) -> None:
    """It ends as a verdict with a short reason: no traceback, no blame on the machine."""
    # The lint would not even load it; it is no defence to rely on.
    monkeypatch.setattr("kopt_harness.evaluate.lint", lambda solution: LintReport())
    source = FORGE + honest + f"    forge({fields!r}, {timed})\n"
    evaluation = judged(setting, session, catalog, make_solution(source), timed=timed)
    assert evaluation.verdict == verdict, evaluation.reasons
    assert len(evaluation.reasons[0].detail) < 3000


def test_an_error_text_that_cannot_be_printed_is_written_out(
    setting, session, catalog, make_solution, honest
) -> None:
    """Half of a surrogate pair in a message of the candidate reaches the report as text."""
    source = honest + "    raise ValueError('\\ud800')\n"
    evaluation = judged(setting, session, catalog, make_solution(source), timed=False)
    assert evaluation.verdict == Verdict.CRASH
    assert evaluation.reasons[0].detail == r"ValueError: \ud800"


def test_a_candidate_that_fails_under_the_profiler_has_an_empty_profile(
    setting: Setting, catalog: Catalog, gdn_decode: Definition, make_solution, honest
) -> None:
    """A round goes on without it: whether the solution is right is for the check to say."""
    source = honest + "    if torch.autograd._profiler_enabled(): raise ValueError('seen')\n"
    workload = catalog.workloads(gdn_decode)[0]
    harness = LocalHarness(catalog.root, catalog, "cpu", setting.options)
    try:
        found = harness.profile(make_solution(source), workload, DictLedger())
    finally:
        harness.close()
    assert found.total_us is None
    assert not found.kernels
    assert "ValueError: seen" in found.notes[0]
