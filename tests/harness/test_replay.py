"""Replay: distinct inputs, all failures counted, repeats, moved pointers, continuation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kopt_harness.bench.detection import failure_rate_upper
from kopt_harness.catalog import Catalog
from kopt_harness.errors import NotFoundError
from kopt_harness.evaluate import MAX_DEATHS
from kopt_harness.ledger import DictLedger
from kopt_harness.replay import CHUNK_TRIALS, plan, replay
from kopt_harness.schema import Definition, Solution, Verdict, Workload
from kopt_harness.setting import Setting
from kopt_harness.trials import Chunk, Part, Replay, Trial, results
from kopt_harness.watched import WatchedSession

TRIALS = 20

Run = Callable[..., Replay]


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """The two smallest sizes."""
    return [catalog.workloads(gdn_decode)[index] for index in (0, 10)]


@pytest.fixture(scope="module")
def watched(
    setting: Setting, gdn_decode: Definition, workloads: list[Workload]
) -> Iterator[WatchedSession]:
    """Judge and witness, warm over all tests."""
    with WatchedSession(setting, gdn_decode, workloads) as session:
        yield session


@pytest.fixture
def run(setting: Setting, workloads: list[Workload], watched: WatchedSession) -> Iterator[Run]:
    """Replays a solution in the warm session."""
    opened: list[str] = []

    def call(solution: Solution, *, trials: int = TRIALS, **options: object) -> Replay:
        opened.append(solution.sha256)
        ledger = options.pop("ledger", None) or DictLedger()
        chosen = options.pop("workloads", workloads)
        return replay(
            setting,
            solution,
            chosen,  # type: ignore[arg-type]
            ledger,  # type: ignore[arg-type]
            trials=trials,
            session=watched,
            **options,  # type: ignore[arg-type]
        )

    yield call
    for sha in opened:
        watched.discard(sha)


def wrong_now_and_then(honest: str, every: int) -> str:
    """Honest but for one call in ``every``, whose state has one wrong element."""
    return (
        "CALLS = [0]\n"
        + honest
        + f"\n    CALLS[0] += 1\n    if CALLS[0] % {every} == 0:\n"
        + "        new_state[0, 1, 2, 3] += 1.0\n"
    )


def test_an_honest_solution_passes_on_distinct_inputs(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """Every trial has contents of its own, spread over workloads and all generators."""
    result = run(make_solution(honest), trials=40)
    assert result.evaluation.verdict == Verdict.PASS
    assert not result.evaluation.flags
    document = result.document()
    assert document["trials"] == document["planned"] == document["distinct"] == 40
    assert document["failures"] == 0
    assert [row["trials"] for row in document["workloads"]] == [20, 20]
    counts = [row["trials"] for row in document["generators"].values()]
    assert max(counts) - min(counts) <= 1
    assert document["p_upper_95"] == failure_rate_upper(40, 0)
    assert document["detection_probability"] == pytest.approx(1 - 0.99**40)
    json.dumps(document, allow_nan=False)


def test_failures_are_counted_and_do_not_end_it(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """A fault of one call in seven: every trial runs, each failure has its trial and element."""
    result = run(make_solution(wrong_now_and_then(honest, 7)), trials=40)
    assert len(result.trials) == 40
    assert result.evaluation.verdict == Verdict.FAIL
    # 40 trials with their repeats are at least 40 calls.
    assert 40 // 7 <= len(result.failures) <= 40 // 3
    for failure in result.failures:
        assert failure.reason.code == "wrong-answer"
        assert failure.first_wrong is not None
        assert failure.first_wrong.index == (0, 1, 2, 3)
        assert failure.first_wrong.output == "new_state"
    document = result.document()
    assert document["failures"] == len(result.failures) == len(document["failed"])
    assert document["p_upper_95"] == failure_rate_upper(40, len(result.failures))
    (reason,) = result.evaluation.reasons
    assert f"first trial {result.failures[0].trial} (" in reason.detail


def test_a_result_that_changes_in_its_last_bits_is_flagged(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """Right within the bound, but not the same twice: kept, with a flag."""
    noisy = honest.replace(
        "new_state.copy_(fresh)", "new_state.copy_(fresh * (1 + 3e-7 * torch.rand_like(fresh)))"
    )
    result = run(make_solution(noisy))
    assert result.evaluation.verdict == Verdict.PASS
    assert [flag.code for flag in result.evaluation.flags] == ["non-deterministic"]
    repeats = result.document()["repeats"]
    assert repeats["calls"] == repeats["different"] >= 2


def test_a_repeated_call_that_is_wrong_is_a_failure(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """What is wrong only when it meets the same inputs again is seen by the second call."""
    source = (
        "LAST = [None]\n"
        + honest
        + "\n    if LAST[0] is not None and torch.equal(LAST[0], q):\n        output.zero_()\n"
        "    LAST[0] = q.clone()\n"
    )
    result = run(make_solution(source))
    assert result.failures
    assert all(failure.repeated for failure in result.failures)


def test_addresses_of_earlier_calls_are_stale(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """A solution that keeps its first tensors fails where pointers have moved."""
    source = honest.replace(
        "def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):",
        "KEPT = {}\n\n"
        "def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):\n"
        "    output, new_state = KEPT.setdefault(q.shape, (output, new_state))",
    )
    result = run(make_solution(source), trials=6 * CHUNK_TRIALS)
    moved = {trial.number for _, trial in result.trials if trial.moved}
    assert moved
    assert result.evaluation.verdict == Verdict.FAIL


def test_crashes_end_it_after_a_few(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """A dead process is started again, up to the cap of an evaluation."""
    result = run(make_solution(honest + "\n    raise ValueError('no')\n"))
    assert result.evaluation.verdict == Verdict.CRASH
    assert len(result.trials) == len(result.failures) == MAX_DEATHS
    assert result.document()["p_upper_95"] == 1.0


def test_a_solution_that_does_not_build_has_no_trials(
    setting: Setting, workloads: list[Workload], make_solution: Callable[..., Solution]
) -> None:
    """The verdict is that of the build, and nothing is proved."""
    result = replay(setting, make_solution("def run(:\n"), workloads, DictLedger(), trials=3)
    assert result.evaluation.verdict == Verdict.CRASH
    assert result.evaluation.phase in ("build", "load")
    document = result.document()
    assert document["detection_probability"] == pytest.approx(1 - 0.99 ** document["trials"])
    assert document["p_upper_95"] == 1.0


def test_chosen_generators_alone_are_used(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """In the order given, each once."""
    result = run(make_solution(honest), trials=6, generators=["no-state", "typical", "no-state"])
    assert [t.generator for _, t in result.trials] == ["no-state", "typical"] * 3


def test_an_unknown_generator_is_named(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """With those that there are in the hint."""
    with pytest.raises(NotFoundError, match="'tpyical'") as caught:
        run(make_solution(honest), generators=["tpyical"])
    assert "typical" in caught.value.hint


def test_recorded_chunks_are_not_run_again(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """The second run takes every trial from the ledger and comes to the same document."""
    ledger = DictLedger()
    solution = make_solution(wrong_now_and_then(honest, 5))
    first = run(solution, ledger=ledger)
    before = ledger.completed()
    assert len([key for key in before if key.startswith("replay/")]) >= 2
    again = run(solution, ledger=ledger)
    assert ledger.completed() == before
    assert again.trials == first.trials
    assert again.document() == first.document()


class _Cut(DictLedger):
    """Takes one chunk; the next is interrupted."""

    def put(self, key: str, value: dict[str, object]) -> None:
        """Keeps the first chunk."""
        if any(known.startswith("replay/") for known in self.completed()):
            raise KeyboardInterrupt
        super().put(key, value)


def test_an_interrupted_replay_goes_on_with_new_inputs(
    run: Run, make_solution: Callable[..., Solution], honest: str
) -> None:
    """What was complete is kept, and no inputs occur in both parts."""
    ledger, solution = _Cut(), make_solution(honest)
    with pytest.raises(KeyboardInterrupt):
        run(solution, ledger=ledger, trials=3 * CHUNK_TRIALS)
    kept = [k for k in ledger.completed() if k.startswith("replay/")]
    rest = DictLedger()
    for key in kept:
        rest.put(key, ledger.get(key) or {})
    result = run(solution, ledger=rest, trials=3 * CHUNK_TRIALS)
    assert len(kept) == 1
    assert result.distinct == len(result.trials) == 3 * CHUNK_TRIALS


def test_inputs_that_occur_twice_prove_nothing(workloads: list[Workload]) -> None:
    """Two trials with one digest on a workload are invalid; on two workloads they are not."""

    def chunk(first: int, digest: str) -> Chunk:
        return Chunk(trials=(Trial(number=first, generator="typical", digest=digest),))

    one, other = workloads
    twice = results(
        [
            (Part(one, 0, ("typical",)), chunk(0, "a")),
            (Part(one, 1, ("typical",)), chunk(1, "a")),
            (Part(other, 2, ("typical",)), chunk(2, "a")),
        ]
    )
    assert [result.verdict for result in twice] == [Verdict.INVALID, Verdict.PASS]
    assert [reason.code for reason in twice[0].reasons] == ["repeated-inputs"]


def test_other_bits_are_no_news_where_several_answers_are_right(workloads: list[Workload]) -> None:
    """A selection in any order may leave another one with each call."""
    trial = Trial(number=0, generator="ties", digest="a", same_bits=False)
    done = [(Part(workloads[0], 0, ("ties",)), Chunk(trials=(trial,)))]
    (flagged,), (fine,) = results(done), results(done, several_answers=True)
    assert [flag.code for flag in flagged.flags] == ["non-deterministic"]
    assert fine.flags == ()


def test_a_digest_is_that_of_the_contents(
    run: Run, watched: WatchedSession, make_solution: Callable[..., Solution], honest: str
) -> None:
    """Two calls on one set have one digest, wherever the tensors lie; another set has another."""
    solution = make_solution(honest)
    run(solution, trials=1, generators=["typical"])
    options = {"phase": "check", "timed": False, "full": True}
    numbers = [watched.fresh_set("typical") for _ in range(2)]
    seen = []
    for number, shifts in ((numbers[0], None), (numbers[0], {}), (numbers[1], None)):
        places = watched.random_shifts(some=False) if shifts is not None else None
        watched.call_again(number)
        watched.call(solution.sha256, number, shifts=places, **options)
        seen.append((watched.inputs_digest(), watched.outputs_digest()))
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[2][0]
    assert seen[0][1] != seen[2][1]


@pytest.mark.parametrize("trials", [1, 5, 54, 200, 1001])
def test_a_plan_has_every_trial_once(catalog: Catalog, gdn_decode: Definition, trials: int) -> None:
    """Spread evenly, numbered without a gap, in chunks of bounded size."""
    every = catalog.workloads(gdn_decode)
    parts = plan(gdn_decode, every, ["a", "b", "c"], trials)
    numbers = [part.first + n for part in parts for n in range(len(part.generators))]
    assert numbers == list(range(trials))
    assert all(1 <= len(part.generators) <= CHUNK_TRIALS for part in parts)
    by_workload = {w.uuid: 0 for w in every}
    for part in parts:
        by_workload[part.workload.uuid] += len(part.generators)
    assert max(by_workload.values()) - min(by_workload.values()) <= 1


def test_large_input_sets_are_not_held_together(catalog: Catalog, gdn_decode: Definition) -> None:
    """Chunks of the largest batch are smaller than those of one sequence."""
    every = sorted(catalog.workloads(gdn_decode), key=lambda w: w.axes["batch_size"])
    small = plan(gdn_decode, every[:1], ["a"], 64)
    large = plan(gdn_decode, every[-1:], ["a"], 64)
    assert len(small[0].generators) == CHUNK_TRIALS > len(large[0].generators)


def test_no_process_but_workers_loads_torch() -> None:
    """The orchestrator's side of replay runs without the GPU stack."""
    folder = Path(__file__).parents[2] / "harness" / "kopt_harness"
    for name in ("replay.py", "trials.py", "watched.py", "bench/detection.py"):
        assert not re.search(r"^\s*(import|from) torch", (folder / name).read_text(), re.MULTILINE)
