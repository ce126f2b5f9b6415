"""Comparisons in rounds: which workloads are timed in each, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.compare import Pair, compare_pair
from kopt_harness.conclusion import shape_of
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Comparison, Definition, Solution, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting

Make = Callable[[Workload, int], tuple[list[int], list[int]]]


@pytest.fixture
def fast(make_solution, honest) -> Solution:
    """A correct solution."""
    return make_solution(honest, name="fast")


@pytest.fixture
def slow(make_solution, honest) -> Solution:
    """Another one."""
    return make_solution(honest + "\n", name="slow")


def test_later_rounds_time_one_workload_of_each_shape(catalog, gdn_decode, fast, slow) -> None:
    """Four workloads of one shape take turns; that of another shape is in every round."""
    large, other = by_shape(catalog, gdn_decode)[:2]
    four = large[:4]
    workloads = [*four, other[0]]
    asked: list[tuple[str, int]] = []

    class Watched(DictLedger):
        def get(self, key: str) -> dict[str, object] | None:
            found = super().get(key)
            if found is not None:
                asked.append((key.split("/")[-2], int(key.rsplit("/", maxsplit=1)[-1])))
            return found

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        place = workloads.index(workload)
        return [100_000 + 1_000 * place] * 2, [90_000 + 1_000 * place + 100 * number] * 2

    found = rounds_of(catalog, gdn_decode, workloads, fast, slow, make, Watched())
    assert {row.n for row in found.workloads} == {6}
    assert found.processes == 6
    turns = [*four, *four[:2]]
    pairs = zip([(w.uuid, n // 4) for n, w in enumerate(turns)], range(6), strict=True)
    assert asked == [each for turn, n in pairs for each in (turn, (workloads[-1].uuid, n))]
    levels = [(100, 90), (101, 91), (102, 92), (103, 93), (100, 90.1), (101, 91.1)]
    ratio = math.exp(sum(math.log(b / a) for a, b in levels) / 6)
    for row in found.workloads[:4]:
        assert row.ratio == pytest.approx(ratio, rel=1e-9)
        assert row.a_median_us == pytest.approx(101)


def test_what_a_sweep_has_timed_is_the_first_round(catalog, gdn_decode, fast, slow) -> None:
    """The first round is then the mean over all workloads of a shape."""
    workloads = by_shape(catalog, gdn_decode)[0][:3]

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        place = workloads.index(workload)
        return [100_000] * 2, [90_000 + 1_000 * place + 500 * number] * 2

    found = rounds_of(catalog, gdn_decode, workloads, fast, slow, make, DictLedger(), swept=True)
    levels = [91.0, 91.5, 92.5, 90.5, 92.0, 93.0]
    ratio = math.exp(sum(math.log(b / 100) for b in levels) / 6)
    assert {row.n for row in found.workloads} == {6}
    assert found.workloads[2].ratio == pytest.approx(ratio, rel=1e-9)


def test_a_shape_goes_on_without_a_workload_that_is_skipped(
    catalog, gdn_decode, fast, slow
) -> None:
    """A workload that is too slow has no time; the others of its shape have all rounds."""
    workloads = by_shape(catalog, gdn_decode)[0][:2]

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        return [100_000] * 2, [90_000 + number] * 2

    ledger = DictLedger()
    key = f"block/{fast.sha256[:12]}-{slow.sha256[:12]}/{workloads[0].uuid}/0"
    ledger.put(key, {"skipped": "one call takes 11 s"})
    found = rounds_of(catalog, gdn_decode, workloads, fast, slow, make, ledger)
    assert [row.n for row in found.workloads] == [0, 6]
    assert found.workloads[0].ratio is None
    assert found.workloads[1].ratio == pytest.approx(0.9, rel=1e-3)
    assert "11 s" in found.reason


@pytest.mark.parametrize("thorough", [False, True])
def test_a_faster_solution_is_measured_until_nothing_bars_it_by_chance(
    catalog, gdn_decode, fast, slow, thorough: bool
) -> None:
    """Six rounds make it faster and leave a regime 4 % slower by noise; more do not."""
    by_batch = {dict(shape_of(w[0]))["batch_size"]: w for w in by_shape(catalog, gdn_decode)}
    workloads = [by_batch[1][0], by_batch[64][0]]

    def make(workload: Workload, number: int) -> tuple[list[int], list[int]]:
        if workload is workloads[1]:
            return [1_000_000] * 2, [900_000 + 100 * number] * 2
        noise = (11_500, 9_500, 10_300, 11_500, 9_500, 10_300)
        return [10_000] * 2, [noise[number] if number < 6 else 9_700 + number] * 2

    found = rounds_of(
        catalog, gdn_decode, workloads, fast, slow, make, DictLedger(), most=16, thorough=thorough
    )
    assert found.decision == "faster"
    assert all((row.n > 6) == thorough for row in found.workloads)
    assert found.secondary is not None
    assert (found.secondary.worst_regime_ratio <= 1.02) == thorough


def by_shape(catalog: Catalog, definition: Definition) -> list[list[Workload]]:
    """Workloads of equal axes together, the largest group first."""
    shapes: dict[object, list[Workload]] = {}
    for workload in catalog.workloads(definition):
        shapes.setdefault(shape_of(workload), []).append(workload)
    return sorted(shapes.values(), key=len, reverse=True)


def rounds_of(
    catalog: Catalog,
    definition: Definition,
    workloads: list[Workload],
    a: Solution,
    b: Solution,
    make: Make,
    ledger: DictLedger,
    *,
    swept: bool = False,
    most: int = 6,
    thorough: bool = False,
) -> Comparison:
    """Compares six rounds or more of a ledger that has them all."""
    for workload in workloads:
        for number in range(most):
            key = f"block/{a.sha256[:12]}-{b.sha256[:12]}/{workload.uuid}/{number}"
            if key not in ledger.completed():
                a_ns, b_ns = make(workload, number)
                record = {"a_ns": a_ns, "b_ns": b_ns, "flush_bytes": 1 << 20, "flags": []}
                ledger.put(key, record)
    options = MeasureOptions(rounds=True, blocks_min=6, blocks_max=most, margin=0.02)
    setting = Setting.here(catalog, "cpu", options)
    with Session(setting, definition, workloads) as session:
        pair = Pair.of(setting, session, ledger, a, b)
        for workload in workloads if swept else ():
            pair.measure(workload, 1)
        found = compare_pair(pair, workloads, thorough=thorough)
        assert not session.isolation, "a block was measured"
    return found
