"""Verdicts of real solutions, run through judge and candidate processes on the CPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.compare import Pair, compare_pair
from kopt_harness.evaluate import evaluate
from kopt_harness.ledger import DictLedger
from kopt_harness.schema import Definition, Evaluation, Solution, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """B = 1 and B = 4."""
    return [catalog.workloads(gdn_decode)[index] for index in (0, 10)]


class Judge:
    """Evaluates on a warm session; the candidate's process ends with each evaluation."""

    def __init__(self, setting: Setting, session: Session, workloads: list[Workload]) -> None:
        self.setting, self.session, self.workloads = setting, session, workloads

    def __call__(self, solution: Solution, *, timed: bool = False) -> Evaluation:
        try:
            return evaluate(
                self.setting,
                solution,
                self.workloads,
                DictLedger(),
                timed=timed,
                session=self.session,
            )
        finally:
            self.session.discard(solution.sha256)


@pytest.fixture(scope="module")
def judge(setting: Setting, session: Session, workloads: list[Workload]) -> Judge:
    """A judge that stays warm over the tests of this module."""
    return Judge(setting, session, workloads)


def only_reason(evaluation: Evaluation) -> str:
    """Code of the one reason."""
    assert len(evaluation.reasons) == 1
    return evaluation.reasons[0].code


def test_an_honest_solution_passes_and_is_timed(judge, make_solution, honest) -> None:
    """Both tiers pass on every set, and each timing carries what must travel with it."""
    evaluation = judge(make_solution(honest), timed=True)
    assert evaluation.verdict == Verdict.PASS, evaluation.reasons
    assert not evaluation.flags
    for result in evaluation.workloads:
        assert {name: tier.verdict for name, tier in result.tiers.items()}["strict"] == "pass"
        assert result.trials >= judge.setting.options.trials
        timing = result.timing
        assert timing is not None
        assert timing["timer"] == "cpu"
        assert timing["cache"] == "cold"
        assert timing["flush_bytes"] > 0
        assert timing["n"] == len(timing["samples_ns"]) == judge.setting.options.bench_calls
        assert timing["median_us"] > 0
    assert evaluation.isolation["judge"]["non_dumpable"]


def test_a_returning_solution_passes(judge, make_solution, honest) -> None:
    """Returned tensors are taken where destination passing is off."""
    source = honest.replace("scale, output, new_state)", "scale)").replace(
        "    batch = q.shape[0]\n",
        "    batch = q.shape[0]\n"
        "    output = torch.empty(batch, 1, 8, 128, dtype=torch.bfloat16)\n"
        "    new_state = torch.empty(batch, 8, 128, 128)\n",
    )
    evaluation = judge(
        make_solution(source + "    return output, new_state\n", destination_passing=False)
    )
    assert evaluation.verdict == Verdict.PASS, evaluation.reasons


def test_a_wrong_element_is_named(judge, make_solution, honest, workloads) -> None:
    """The first wrong workload, output, element, expected and actual value are in the reason."""
    evaluation = judge(make_solution(honest + "    new_state[0, 3, 5, 7] += 0.5\n"))
    assert evaluation.verdict == Verdict.FAIL
    assert evaluation.phase == "check"
    detail = evaluation.reasons[0].detail
    assert workloads[0].uuid in detail
    assert "new_state" in detail
    assert "[0, 3, 5, 7]" in detail
    first = evaluation.workloads[0].tiers["strict"].outputs[1].first_wrong
    assert first is not None
    assert first.index == (0, 3, 5, 7)
    assert float(first.actual) == pytest.approx(float(first.expected) + 0.5, abs=1e-3)


def test_an_output_that_is_not_written_fails(judge, make_solution, honest) -> None:
    """Poison is no answer."""
    evaluation = judge(make_solution(honest.replace("    new_state.copy_(fresh)\n", "")))
    assert evaluation.verdict == Verdict.FAIL
    assert "new_state" in evaluation.reasons[0].detail


def test_answers_remembered_by_address_fail(judge, make_solution, honest) -> None:
    """The contents behind the same pointer change from call to call."""
    source = honest.replace("def run(", "def compute(") + (
        "\nmemory = {}\n"
        "def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):\n"
        "    key = q.data_ptr(), q.shape\n"
        "    if key not in memory:\n"
        "        compute(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state)\n"
        "        memory[key] = output.clone(), new_state.clone()\n"
        "    output.copy_(memory[key][0])\n"
        "    new_state.copy_(memory[key][1])\n"
    )
    assert judge(make_solution(source)).verdict == Verdict.FAIL


def test_addresses_kept_from_the_first_call_fail_when_pointers_move(
    judge, make_solution, honest
) -> None:
    """After timing, calls with moved tensors show who computes on old addresses."""
    source = honest.replace(
        "    batch = q.shape[0]\n",
        "    batch = q.shape[0]\n    v = kept.setdefault(batch, v)\n",
    ).replace("def run(", "kept = {}\n\ndef run(")
    evaluation = judge(make_solution(source), timed=True)
    assert evaluation.verdict == Verdict.FAIL
    assert evaluation.phase == "bench"


def test_honest_answers_that_stop_when_checking_seems_over_fail(
    judge, make_solution, honest
) -> None:
    """Timed outputs are compared as well."""
    calls = judge(make_solution(honest)).workloads[0].trials
    source = honest.replace("def run(", "calls = 0\n\ndef run(").replace(
        "    batch = q.shape[0]\n",
        "    global calls\n    calls += 1\n"
        f"    if calls > {calls}:\n        return\n"
        "    batch = q.shape[0]\n",
    )
    evaluation = judge(make_solution(source), timed=True)
    assert evaluation.verdict == Verdict.FAIL
    assert evaluation.phase == "bench"


@pytest.mark.parametrize(
    ("line", "verdict", "code"),
    [
        ("v.zero_()", Verdict.FAIL, "input-modified"),
        ("raise ValueError('no')", Verdict.CRASH, "exception"),
        ("import os; os._exit(0)", Verdict.CRASH, "process-ended"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", Verdict.CRASH, "process-ended"),
        ("raise SystemExit(0)", Verdict.CRASH, "exception"),
        (
            "import ctypes; ctypes.memset(output.data_ptr() + output.numel() * 2, 7, 64)",
            Verdict.FAIL,
            "out-of-bounds-write",
        ),
        ("print('PASS 0.1 us', flush=True)", Verdict.PASS, None),
    ],
)
def test_faults_become_verdicts(judge, make_solution, honest, line, verdict, code) -> None:
    """What the candidate does to itself or to memory decides about it alone."""
    evaluation = judge(make_solution(honest + f"    {line}\n"))
    assert evaluation.verdict == verdict, evaluation.reasons
    assert (only_reason(evaluation) if code else None) == code


def test_an_import_error_is_a_crash_in_phase_load(judge, make_solution, honest) -> None:
    """The phase says where it broke."""
    evaluation = judge(make_solution("import no_such_module\n" + honest))
    assert (evaluation.verdict, evaluation.phase) == (Verdict.CRASH, "load")
    assert "no_such_module" in evaluation.reasons[0].detail


def test_a_call_that_never_returns_times_out(
    setting, session, workloads, make_solution, honest
) -> None:
    """The process is killed at the deadline, and the judge goes on to the next solution."""
    options = setting.options.model_copy(update={"call_timeout_s": 0.5})
    short = Setting(setting.catalog, setting.target, options)
    session._setting, before = short, session._setting
    solution = make_solution(honest + "    while True: pass\n")
    try:
        evaluation = evaluate(short, solution, workloads[:1], DictLedger(), session=session)
    finally:
        session._setting = before
    assert evaluation.verdict == Verdict.TIMEOUT
    assert (
        evaluate(
            setting, make_solution(honest), workloads[:1], DictLedger(), session=session
        ).verdict
        == Verdict.PASS
    )


def test_a_call_over_the_wall_budget_is_checked_and_not_timed(
    setting, session, workloads, make_solution, honest
) -> None:
    """The timing is null with its reason, alone and in a pair, and the verdict stays."""
    options = setting.options.model_copy(update={"timed_call_s": 1e-6})
    strict = Setting(setting.catalog, setting.target, options)
    solution = make_solution(honest)
    evaluation = evaluate(
        strict, solution, workloads[:1], DictLedger(), timed=True, session=session
    )
    timing = evaluation.workloads[0].timing
    assert evaluation.verdict == Verdict.PASS
    assert timing is not None
    assert timing["median_us"] is None
    assert "more than the" in timing["reason"]
    session.discard(solution.sha256)
    pair = Pair.of(strict, session, DictLedger(), solution, solution)
    comparison = compare_pair(pair, workloads[:1])
    assert comparison.decision == "ambiguous"
    assert comparison.ratio is None
    assert "more than the" in comparison.reason


def test_a_build_that_fails_says_why(setting, workloads, gdn_decode, make_solution) -> None:
    """A compiler error is the candidate's fault, in phase build."""
    made = make_solution("x = 1\n\ndef run():\n    pass\n")
    broken = made.model_copy(
        update={
            "spec": made.spec.model_copy(
                update={"language": "cpp", "entry_point": "kernel.cpp::run"}
            ),
            "sources": (made.sources[0].model_copy(update={"path": "kernel.cpp"}),),
        }
    )
    evaluation = evaluate(setting, broken, workloads, DictLedger())
    assert (evaluation.verdict, evaluation.phase) == (Verdict.CRASH, "build")
    assert "error" in evaluation.reasons[0].detail


def test_completed_workloads_are_not_measured_again(
    setting, session, workloads, make_solution, honest
) -> None:
    """A second run over the same ledger starts no process and gives the same document."""
    ledger = DictLedger()
    solution = make_solution(honest)
    first = evaluate(setting, solution, workloads, ledger, session=session)
    session.discard(solution.sha256)
    again = evaluate(setting, solution, workloads, ledger)
    assert again.workloads == first.workloads
    assert again.isolation == first.isolation


@pytest.mark.parametrize(
    "started", ["Popen(command)", "run([sys.executable, '-c', twice, *command])"]
)
def test_no_process_of_a_candidate_survives(
    setting, workloads, make_solution, honest, started
) -> None:
    """Children that a solution leaves behind are ended with it, orphans in a new session too."""
    marker = "kopt-test-orphan"
    source = honest.replace(
        "def run(",
        "import subprocess, sys\n"
        f"command = [sys.executable, '-c', 'import time; time.sleep(60)', '{marker}']\n"
        "twice = 'import subprocess, sys; "
        "subprocess.Popen(sys.argv[1:], start_new_session=True)'\n"
        f"subprocess.{started}\n"
        "\ndef run(",
    )
    evaluation = evaluate(setting, make_solution(source), workloads[:1], DictLedger())
    assert evaluation.verdict == Verdict.PASS, evaluation.reasons
    left = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_bytes()
        except OSError:
            continue
        if marker.encode() in text and entry.parent.name != str(os.getpid()):
            left.append(entry.parent.name)
    assert not left


def test_an_error_class_of_kopt_raised_by_a_candidate_is_its_crash(
    judge, make_solution, honest
) -> None:
    """A solution cannot blame the machine, in a call or while it loads."""
    raising = "from kopt_harness.errors import InfraError; raise InfraError('no disk')"
    for source in (honest + f"    {raising}\n", f"{raising}\n{honest}"):
        evaluation = judge(make_solution(source))
        assert evaluation.verdict == Verdict.CRASH
        assert "InfraError: no disk" in evaluation.reasons[0].detail


def test_a_patched_clock_and_a_patched_flush_are_named(judge, make_solution, honest) -> None:
    """The timer has bound its functions before; the attempt alone is evidence."""
    source = honest.replace(
        "def run(",
        "import time\n"
        "time.perf_counter_ns = lambda: 0\n"
        "torch.Tensor.fill_ = lambda self, value: self\n"
        "\ndef run(",
    )
    evaluation = judge(make_solution(source), timed=True)
    assert evaluation.verdict == Verdict.REJECT
    assert evaluation.phase == "load"
    assert evaluation.reasons[0].code == "patched-function"
    assert "time.perf_counter_ns" in evaluation.reasons[0].detail
    assert "torch.Tensor.fill_" in evaluation.reasons[0].detail
