"""Replay of token selection: the published selector fault is found, and by which inputs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.ledger import DictLedger
from kopt_harness.replay import replay
from kopt_harness.schema import BuildSpec, Solution, SourceFile, Verdict, Workload
from kopt_harness.setting import Setting
from kopt_harness.trials import Replay
from kopt_harness.watched import WatchedSession

pytestmark = pytest.mark.slow

EXACT = "place_BK = scores_BL.topk(_TOPK, dim=1, sorted=False).indices"

COARSE = """\
bits_BL = scores_BL.view(torch.int32).long()
            key_BL = torch.where(bits_BL < 0, -bits_BL - 2**31, bits_BL) + 2**31
            half_BL = scores_BL.half().view(torch.int16).long()
            coarse_BL = (torch.where(half_BL < 0, -half_BL - 2**15, half_BL) + 2**15) >> 8
            rank_BL = (coarse_BL << 24 | key_BL & 0xFFFFFF).double()
            place_BK = rank_BL.topk(_TOPK, dim=1, sorted=False).indices"""
"""The top byte of the score in half precision, rounded, then the float32 key without its top byte:
a score just below a power of two rounds up into a bin in which its low bytes rank above all."""


@pytest.fixture(scope="module")
def workloads(catalog: Catalog) -> list[Workload]:
    """The two smallest that have long rows."""
    found = catalog.workloads(catalog.resolve("dsa_topk"))
    return [w for w in found if w.axes["max_num_pages"] in (34, 43) and w.axes["batch_size"] == 4]


@pytest.fixture(scope="module")
def watched(
    setting: Setting, catalog: Catalog, workloads: list[Workload]
) -> Iterator[WatchedSession]:
    """Judge and witness, warm over all tests."""
    with WatchedSession(setting, catalog.resolve("dsa_topk"), workloads) as session:
        yield session


def _replayed(
    setting: Setting,
    catalog: Catalog,
    workloads: list[Workload],
    watched: WatchedSession,
    change: tuple[str, str] | None,
    generators: list[str] | None,
    trials: int,
) -> Replay:
    """A replay of torch-vectorized, changed or as it is."""
    definition = catalog.resolve("dsa_topk")
    folder = catalog.root.kernels / definition.name / "solutions" / "torch-vectorized"
    source = (folder / "solution" / "python" / "kernel.py").read_text()
    if change is not None:
        assert source.count(change[0]) == 1
        source = source.replace(*change)
    solution = Solution(
        name="selector",
        definition=definition.name,
        author="tests",
        spec=BuildSpec(
            language="python",
            target_hardware=("cpu",),
            entry_point="kernel.py::run",
            destination_passing_style=True,
        ),
        sources=(SourceFile(path="kernel.py", content=source),),
    )
    try:
        return replay(
            setting,
            solution,
            workloads,
            DictLedger(),
            trials=trials,
            session=watched,
            generators=generators,
        )
    finally:
        watched.discard(solution.sha256)


def test_the_published_selector_fails_just_below_a_power_of_two(
    setting: Setting, catalog: Catalog, workloads: list[Workload], watched: WatchedSession
) -> None:
    """Most trials of the generator made for it show the wrong member; one in ten would do."""
    result = _replayed(
        setting, catalog, workloads, watched, (EXACT, COARSE), ["powers-of-two"], trials=12
    )
    assert result.evaluation.verdict == Verdict.FAIL
    assert len(result.trials) == 12
    assert len(result.failures) > 2
    for failure in result.failures:
        assert failure.reason.code == "wrong-member"
        assert failure.first_wrong is not None


def test_an_exact_selector_passes_all_generators(
    setting: Setting, catalog: Catalog, workloads: list[Workload], watched: WatchedSession
) -> None:
    """The same solution without the fault, so that the failures above are the fault's."""
    result = _replayed(setting, catalog, workloads, watched, None, None, trials=20)
    assert result.evaluation.verdict == Verdict.PASS
    assert not result.failures
    assert set(result.document()["generators"]) >= {"powers-of-two", "near-ties", "one-place"}
