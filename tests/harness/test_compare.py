"""Paired comparisons: direction, stopping rule, faults, and replay from recorded blocks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.compare import Pair, compare_pair
from kopt_harness.evaluate import solution_ref
from kopt_harness.ledger import DictLedger, Ledger
from kopt_harness.noise import NoiseFloor, NoiseKey, store_floor
from kopt_harness.options import MeasureOptions
from kopt_harness.root import Root
from kopt_harness.schema import (
    Comparison,
    Definition,
    Flag,
    PairedBlock,
    Solution,
    Verdict,
    Workload,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting

pytestmark = pytest.mark.alone

SLOWER_S = 0.1
OPTIONS = MeasureOptions(trials=1, pool=2, blocks_min=2, blocks_max=6, margin=0.02)


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """B = 1 and B = 4."""
    return [catalog.workloads(gdn_decode)[index] for index in (0, 10)]


@pytest.fixture(scope="module")
def quick(catalog: Catalog) -> Setting:
    """Few blocks, and room for more of them."""
    return Setting.here(catalog, "cpu", OPTIONS)


@pytest.fixture(scope="module")
def warm(quick: Setting, gdn_decode: Definition, workloads: list[Workload]) -> Iterator[Session]:
    """A session that stays open over the tests of this module."""
    with Session(quick, gdn_decode, workloads) as session:
        yield session


@pytest.fixture
def fast(make_solution, honest) -> Solution:
    """A correct solution."""
    return make_solution(honest, name="fast")


@pytest.fixture
def slow(make_solution, honest) -> Solution:
    """The same, a tenth of a second later."""
    line = f"    import time; time.sleep({SLOWER_S})\n"
    return make_solution(honest + line, name="slow")


def never_opened(setting: Setting, definition: Definition, workloads: list[Workload]) -> Session:
    """A session whose workers would have to be started first."""
    return Session(setting, definition, workloads)


def test_the_slower_one_is_found_whichever_is_b(quick, warm, workloads, fast, slow) -> None:
    """``ratio`` is B over A, and every block is a unit of four slots that fit together."""
    ledger = DictLedger()
    forward = compare_pair(Pair.of(quick, warm, ledger, fast, slow), workloads)
    assert (forward.decision, forward.a.name, forward.b.name) == ("slower", "fast", "slow")
    assert forward.ratio is not None
    assert forward.ci is not None
    assert 1 + forward.margin < forward.ci[0] <= forward.ratio <= forward.ci[1]
    assert forward.epoch == quick.environment["epoch"]
    for row in forward.workloads:
        assert row.b_median_us > SLOWER_S * 1e6
        assert OPTIONS.blocks_min <= row.n <= OPTIONS.blocks_max
    for key in ledger.completed():
        block = ledger.get(key)
        assert len(block["a_ns"]) == len(block["b_ns"]) == 2
        assert min(block["b_ns"]) > SLOWER_S * 1e9
        assert block["flags"] == []
        assert block["order"] in ("abba", "baab")
        assert block["flush_bytes"] == warm.flush_bytes > 0

    backward = compare_pair(Pair.of(quick, warm, DictLedger(), slow, fast), workloads)
    assert backward.decision == "faster"
    assert backward.ratio < 1 < forward.ratio


def test_recorded_blocks_give_the_same_document_without_a_process(
    quick, warm, gdn_decode, workloads, fast, slow
) -> None:
    """The decision is a function of the ledger."""
    ledger = DictLedger()
    first = compare_pair(Pair.of(quick, warm, ledger, fast, slow), workloads)
    before = ledger.completed()
    with never_opened(quick, gdn_decode, workloads) as session:
        again = compare_pair(Pair.of(quick, session, ledger, fast, slow), workloads)
        assert not session.isolation
    assert again == first
    assert ledger.completed() == before


def test_an_interrupted_comparison_goes_on_where_it_stopped(
    quick, warm, workloads, fast, slow
) -> None:
    """Completed blocks are taken as they are; only what is missing is measured."""
    whole = DictLedger()
    compare_pair(Pair.of(quick, warm, whole, fast, slow), workloads)
    part = DictLedger()
    for key in whole.completed()[:3]:
        part.put(key, whole.get(key))
    compare_pair(Pair.of(quick, warm, part, fast, slow), workloads)
    assert part.completed()[:3] == whole.completed()[:3]
    assert all(part.get(key) == whole.get(key) for key in whole.completed()[:3])
    assert len(part.completed()) >= 2 * OPTIONS.blocks_min


@pytest.mark.parametrize("wrong_is_b", [False, True])
def test_a_wrong_answer_in_a_timed_call_ends_the_comparison(
    quick, warm, gdn_decode, workloads, fast, make_solution, honest, wrong_is_b
) -> None:
    """Nothing is faster than a wrong answer; who was wrong is recorded, and stays so."""
    source = honest.replace("def run(", "calls = 0\n\ndef run(") + (
        "    global calls\n    calls += 1\n    if calls > 2:\n        new_state[0, 1, 2, 3] = 9\n"
    )
    wrong = make_solution(source, name="wrong")
    pair = (fast, wrong) if wrong_is_b else (wrong, fast)
    ledger = DictLedger()
    found = Pair.of(quick, warm, ledger, *pair)
    try:
        comparison = compare_pair(found, workloads)
    finally:
        warm.discard(wrong.sha256)
    assert comparison.decision == "ambiguous"
    assert comparison.ratio is None
    assert "wrong" in comparison.reason
    assert "new_state" in comparison.reason
    assert found.failure is not None
    assert (found.failure.sha256, found.failure.verdict) == (wrong.sha256, Verdict.FAIL)
    with never_opened(quick, gdn_decode, workloads) as session:
        again = Pair.of(quick, session, ledger, *pair)
        assert compare_pair(again, workloads) == comparison
        assert again.failure == found.failure


MakeBlocks = Callable[[Workload, int], tuple[list[int], list[int]]]


def recorded_blocks(
    a: Solution, b: Solution, workloads: list[Workload], count: int, make: MakeBlocks
) -> DictLedger:
    """A ledger as a comparison leaves it, from samples that a test chooses."""
    ledger = DictLedger()
    for workload in workloads:
        for number in range(count):
            a_ns, b_ns = make(workload, number)
            key = f"block/{a.sha256[:12]}-{b.sha256[:12]}/{workload.uuid}/{number}"
            record = {"a_ns": a_ns, "b_ns": b_ns, "flush_bytes": 1 << 20, "flags": []}
            ledger.put(key, record)
    return ledger


@pytest.fixture
def decide(
    catalog: Catalog, gdn_decode: Definition, workloads: list[Workload], fast, slow
) -> Callable[..., Comparison]:
    """Compares out of a ledger; fails where a block would have to be measured."""

    def run(ledger: Ledger, **options: object) -> Comparison:
        setting = Setting.here(catalog, "cpu", OPTIONS.model_copy(update=options))
        with never_opened(setting, gdn_decode, workloads) as session:
            comparison = compare_pair(Pair.of(setting, session, ledger, fast, slow), workloads)
            assert not session.isolation, "a block was measured"
        return comparison

    return run


def test_sampling_goes_on_where_the_noise_is(decide, workloads, fast, slow) -> None:
    """An undecided comparison spends its further blocks on the workload that is uncertain."""
    noisy = workloads[1]
    rng = random.Random(5)

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        if workload != noisy:
            return [100_000, 100_000], [100_000, 100_000 + number]
        return [100_000, 100_000], [int(100_000 * rng.uniform(0.7, 1.3))] * 2

    blocks = recorded_blocks(fast, slow, workloads, OPTIONS.blocks_max, make)
    asked: list[str] = []

    class Watched(DictLedger):
        def get(self, key: str) -> dict[str, object] | None:
            asked.append(key)
            return blocks.get(key)

    comparison = decide(Watched(), blocks_min=3)
    assert comparison.decision == "ambiguous"
    assert comparison.reason
    beyond = [key for key in asked if int(key.rsplit("/", 1)[1]) >= 3]
    needed = OPTIONS.blocks_max - 3
    assert len(beyond) >= needed
    assert all(noisy.uuid in key for key in beyond[:needed])


def test_a_clear_difference_is_decided_at_the_first_look(decide, workloads, fast, slow) -> None:
    """No block is taken that the decision does not need."""

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        return [100_000 + number, 100_000], [40_000, 40_000 + number]

    comparison = decide(recorded_blocks(fast, slow, workloads, OPTIONS.blocks_max, make))
    assert comparison.decision == "faster"
    assert comparison.ratio == pytest.approx(0.4, rel=1e-3)
    assert {row.n for row in comparison.workloads} == {OPTIONS.blocks_min}
    assert comparison.a_mean_us == pytest.approx(100, rel=1e-3)
    assert comparison.b_mean_us == pytest.approx(40, rel=1e-3)


def test_the_ratio_is_that_of_mean_latencies(decide, workloads, fast, slow) -> None:
    """A long workload counts for more than a short one; the rows have their own ratios."""
    a_ns = {workloads[0].uuid: 10_000, workloads[1].uuid: 990_000}
    factor = {workloads[0].uuid: 3.0, workloads[1].uuid: 0.4}

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        slots = [a_ns[workload.uuid] + number] * 2
        return slots, [int(ns * factor[workload.uuid]) for ns in slots]

    comparison = decide(recorded_blocks(fast, slow, workloads, OPTIONS.blocks_max, make))
    assert comparison.ratio == pytest.approx((30 + 396) / 1000, rel=1e-2)
    assert [row.ratio for row in comparison.workloads] == pytest.approx([3.0, 0.4], rel=1e-2)
    assert comparison.decision == "faster"


def test_equal_latencies_are_the_same(decide, workloads, fast, slow) -> None:
    """Within the margin is an answer of its own."""

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        return [100_000, 100_100], [100_050 + number, 100_050]

    ledger = recorded_blocks(fast, slow, workloads, OPTIONS.blocks_max, make)
    assert decide(ledger).decision == "same"
    assert decide(ledger, margin=0.0, budget_s=1e-9).decision == "ambiguous"


def test_the_budget_ends_an_undecided_comparison(decide, workloads, fast, slow) -> None:
    """Ambiguous is an answer too, after the blocks that every workload gets."""
    rng = random.Random(7)

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        return [100_000, 100_000], [int(100_000 * rng.uniform(0.7, 1.3))] * 2

    ledger = recorded_blocks(fast, slow, workloads, OPTIONS.blocks_max, make)
    started = time.monotonic()
    comparison = decide(ledger, budget_s=1e-9)
    assert comparison.decision == "ambiguous"
    assert {row.n for row in comparison.workloads} == {OPTIONS.blocks_min}
    assert time.monotonic() - started < 60


def test_a_flag_counts_when_most_blocks_of_a_workload_raise_it(
    quick, gdn_decode, workloads, fast, slow
) -> None:
    """One block out of three is a busy machine; two are the solution."""
    session = never_opened(quick, gdn_decode, workloads)
    pair = Pair(quick, session, DictLedger(), fast, slow, {})
    uuid = workloads[0].uuid
    flag = Flag(code="timer-disagrees", detail="one clock and the other")
    pair.blocks[uuid] = [PairedBlock(a_ns=(1,), b_ns=(1,))] * 3
    pair.raised[uuid] = [flag]
    assert not pair.flags
    pair.raised[uuid] = [flag, flag]
    assert pair.flags == {"timer-disagrees": flag}


@pytest.mark.parametrize("code", ["batch-disagrees", "kernels-missing", "pointer-bound"])
def test_a_flag_that_only_the_first_block_can_raise_counts_at_once(
    quick, gdn_decode, workloads, fast, slow, code: str
) -> None:
    """Pointers move, and calls are back to back, in one block of each workload."""
    session = never_opened(quick, gdn_decode, workloads)
    pair = Pair(quick, session, DictLedger(), fast, slow, {})
    uuid = workloads[0].uuid
    flag = Flag(code=code, detail="seen, and seen again")
    pair.blocks[uuid] = [PairedBlock(a_ns=(1,), b_ns=(1,))] * 3
    pair.raised[uuid] = [flag]
    assert pair.flags == {code: flag}


def test_neighbouring_blocks_have_either_order(quick, warm, workloads, fast, slow) -> None:
    """What the first slot of a block suffers hits both; old records are all of one order."""
    ledger = DictLedger()
    pair = Pair.of(quick, warm, ledger, fast, slow)
    for _ in range(2):
        pair.measure(workloads[0], 4)
    orders = [block.order for block in pair.blocks[workloads[0].uuid]]
    assert {*orders[:2]} == {*orders[2:]} == {"abba", "baab"}
    # A run that goes on after an odd number of blocks completes the pair that it had begun.
    part = DictLedger()
    for key in ledger.completed()[:3]:
        part.put(key, ledger.get(key))
    again = Pair.of(quick, warm, part, fast, slow)
    again.measure(workloads[0], 4)
    assert [block.order for block in again.blocks[workloads[0].uuid]] == orders
    old = recorded_blocks(fast, slow, workloads, 2, lambda w, n: ([1, 2], [3, 4]))
    before = Pair.of(quick, warm, old, fast, slow)
    before.measure(workloads[0], 2)
    assert [block.order for block in before.blocks[workloads[0].uuid]] == ["abba", "abba"]


def test_a_workload_that_may_be_slower_is_looked_into(decide, workloads, fast, slow) -> None:
    """B is faster at once, but for one workload: it gets blocks until that is known."""
    small, large = workloads
    rng = random.Random(2)

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        if workload == large:
            return [9_000_000 + number, 9_000_000], [3_000_000 + number, 3_000_000]
        return [100_000, 100_000], [int(100_000 * rng.uniform(1.12, 1.14)), 113_000]

    comparison = decide(recorded_blocks(fast, slow, workloads, 6, make))
    assert comparison.decision == "faster"
    rows = {row.uuid: row for row in comparison.workloads}
    assert rows[large.uuid].n == OPTIONS.blocks_min
    assert rows[small.uuid].n >= 4, "three are not enough to know"
    assert [row.uuid for row in comparison.regressions] == [small.uuid]
    assert rows[small.uuid].p_slower < 0.05 < rows[large.uuid].p_slower
    assert comparison.secondary.worst == pytest.approx(rows[small.uuid].ratio)
    assert comparison.secondary.worst_regime_ratio == pytest.approx(rows[small.uuid].ratio)
    assert comparison.secondary.median == pytest.approx((1.13 + 1 / 3) / 2, rel=0.01)


def test_few_blocks_are_the_reason_where_they_are(decide, workloads, fast, slow) -> None:
    """Not the noise: there is none."""

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        return [100_000, 100_000], [70_000 + number, 70_000]

    ledger = recorded_blocks(fast, slow, workloads, 2, make)
    comparison = decide(ledger, blocks_max=2)
    assert comparison.decision == "ambiguous"
    assert "too few blocks" in comparison.reason


def test_a_margin_that_nobody_gave_stays_that_of_the_run(
    catalog, gdn_decode, workloads, fast, slow, tmp_path
) -> None:
    """A noise floor that is stored in between does not change what samples say."""
    root = Root(tmp_path)
    for name in ("kernels", "configs"):
        (tmp_path / name).symlink_to(catalog.root.path / name)
    options = OPTIONS.model_copy(update={"margin": None})
    setting = Setting.here(Catalog(root), "cpu", options)

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        return [100_000, 100_000], [99_000 + number, 99_000]

    def run(ledger: Ledger) -> Comparison:
        session = never_opened(setting, gdn_decode, workloads)
        return compare_pair(Pair.of(setting, session, ledger, fast, slow), workloads)

    begun = recorded_blocks(fast, slow, workloads, OPTIONS.blocks_max, make)
    first = run(begun)
    assert (first.margin, first.margin_source, first.decision) == (0.02, "default", "same")
    floor = NoiseFloor(
        key=NoiseKey.of(setting, gdn_decode),
        date="2026-11-29",
        solution=solution_ref(fast),
        comparisons=30,
        resamples=2000,
        floor=0.005,
        half_width=0.004,
        process_spread=0.001,
        blocks_max=6,
    )
    store_floor(root, floor)
    assert run(begun) == first
    fresh = run(recorded_blocks(fast, slow, workloads, OPTIONS.blocks_max, make))
    assert (fresh.margin, fresh.margin_source) == (0.005, "noise-floor")
    assert fresh.decision == "faster"


MODES = """
    import time; time.sleep(MODE)
"""


@pytest.mark.parametrize("ahead", [1, 3])
def test_rounds_come_from_processes_of_their_own(
    catalog, gdn_decode, workloads, make_solution, honest, ahead
) -> None:
    """What a process does to all of its calls differs by round, and is the same in a round."""
    counts = {"blocks_min": 4, "blocks_max": 4, "rounds_ahead": ahead}
    options = OPTIONS.model_copy(update={"rounds": True, **counts})
    setting = Setting.here(catalog, "cpu", options)
    head = "import os\nMODE = 0.05 * (os.urandom(1)[0] % 8)\n"
    one, other = (make_solution(head + honest + MODES, name=n) for n in ("one", "other"))
    ledger = DictLedger()
    with Session(setting, gdn_decode, workloads) as session:
        found = compare_pair(Pair.of(setting, session, ledger, one, other), workloads)
    assert found.processes == 4
    levels: dict[str, list[list[int]]] = {w.uuid: [] for w in workloads}
    for key in ledger.completed():
        if "/block/" in f"/{key}":
            block = ledger.get(key)
            levels[key.split("/")[-2]].append([min(block["a_ns"]), min(block["b_ns"])])
    small, large = (levels[w.uuid] for w in workloads)
    assert len(small) == len(large) == 4
    modes = [[round(ns / 5e7) for ns in pair] for pair in small]
    assert len({tuple(pair) for pair in modes}) > 1
    for a, b in zip(small, large, strict=True):
        for ns, same in zip(a, b, strict=True):
            assert abs(ns - same) < 5e7


SLOW_AT_FIRST = """
    global CALLS
    CALLS += 1
    if CALLS <= 2:
        import time; time.sleep(0.3)
"""


def test_the_first_timed_call_of_a_process_does_not_count(
    catalog, gdn_decode, workloads, make_solution, honest
) -> None:
    """In later rounds it is the second call: one to compile, one that is timed in vain."""
    counts = {"blocks_min": 3, "blocks_max": 3, "rounds_ahead": 1}
    setting = Setting.here(catalog, "cpu", OPTIONS.model_copy(update={"rounds": True, **counts}))
    one, other = (
        make_solution(f"CALLS = 0\n{honest}{SLOW_AT_FIRST}", name=n) for n in ("one", "other")
    )
    ledger = DictLedger()
    with Session(setting, gdn_decode, workloads[:1]) as session:
        compare_pair(Pair.of(setting, session, ledger, one, other), workloads[:1])
    blocks = [ledger.get(k) for k in ledger.completed() if "/block/" in f"/{k}"]
    assert len(blocks) == 3
    assert max(ns for block in blocks for ns in (*block["a_ns"], *block["b_ns"])) < 2e8


def test_blocks_of_one_process_are_no_rounds(
    catalog, gdn_decode, workloads, make_solution, honest
) -> None:
    """Without rounds a solution has one process, whose mode is in all of its blocks."""
    setting = Setting.here(catalog, "cpu", OPTIONS)
    head = "import os\nMODE = 0.02 * (os.urandom(1)[0] % 8)\n"
    one, other = (make_solution(head + honest + MODES, name=n) for n in ("one", "other"))
    ledger = DictLedger()
    with Session(setting, gdn_decode, workloads[:1]) as session:
        pair = Pair.of(setting, session, ledger, one, other)
        found = compare_pair(pair, workloads[:1])
        pair.measure(workloads[0], found.workloads[0].n + 1)
    assert found.processes == 1
    blocks = [ledger.get(k) for k in ledger.completed() if "/block/" in f"/{k}"]
    for name in ("a_ns", "b_ns"):
        fastest = [min(block[name]) for block in blocks]
        assert max(fastest) - min(fastest) < 2e7
