"""Scores: the official rule, the ratio of means, and what their evidence is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, NotFoundError, UsageError
from kopt_harness.foreign import Knowledge
from kopt_harness.score_evidence import choose, measured, read_sheets
from kopt_harness.scores import TRACKS, Measured, definition_score, track_scores

TIMES = st.floats(min_value=0.1, max_value=1e6)
PAIRS = st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=12)


def table(pairs: list[tuple[float, float]]) -> dict[str, Measured]:
    """Passed workloads out of (solution, baseline)."""
    return {f"w{i}": Measured(True, ours, base) for i, (ours, base) in enumerate(pairs)}


def test_the_two_numbers_of_an_example() -> None:
    """Ratios 4 and 1 have the mean 2.5; 8 + 100 over 2 + 100 is another number."""
    found = definition_score(["a", "b"], {"a": Measured(True, 2, 8), "b": Measured(True, 100, 100)})
    assert found.score == 2.5
    assert found.ratio_of_means == pytest.approx(108 / 102)
    assert (found.workloads, found.failed, found.missing) == (2, (), ())


@given(st.lists(TIMES, min_size=1, max_size=20))
def test_a_solution_against_itself_has_1(times: list[float]) -> None:
    """By both numbers, whatever its times."""
    found = definition_score(
        [f"w{i}" for i in range(len(times))], table([(time, time) for time in times])
    )
    assert found.score == pytest.approx(1)
    assert found.ratio_of_means == pytest.approx(1)


@given(PAIRS, st.data())
def test_a_faster_workload_raises_both_numbers(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    """Halving one time of the solution makes no number smaller."""
    which = data.draw(st.integers(0, len(pairs) - 1))
    faster = [
        (ours / 2, base) if i == which else (ours, base) for i, (ours, base) in enumerate(pairs)
    ]
    uuids = [f"w{i}" for i in range(len(pairs))]
    before, after = definition_score(uuids, table(pairs)), definition_score(uuids, table(faster))
    assert after.score > before.score
    assert before.ratio_of_means is not None
    assert after.ratio_of_means is not None
    assert after.ratio_of_means >= before.ratio_of_means


@given(PAIRS, st.data())
def test_one_failure_makes_the_score_0(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    """A wrong, an untimed or a missing workload, whichever it is; it is named."""
    which = f"w{data.draw(st.integers(0, len(pairs) - 1))}"
    uuids = [f"w{i}" for i in range(len(pairs))]
    wrong = table(pairs) | {which: Measured(False, 1.0, 1e9)}
    untimed = table(pairs) | {which: Measured(True, None, 1.0)}
    missing = {uuid: one for uuid, one in table(pairs).items() if uuid != which}
    for found in (definition_score(uuids, wrong), definition_score(uuids, untimed)):
        assert (found.score, found.ratio_of_means, found.failed) == (0, None, (which,))
    found = definition_score(uuids, missing)
    assert (found.score, found.ratio_of_means, found.missing) == (0, None, (which,))


@given(PAIRS, st.floats(min_value=0.01, max_value=100))
def test_the_unit_does_not_matter(pairs: list[tuple[float, float]], factor: float) -> None:
    """All times in another unit give the same numbers."""
    uuids = [f"w{i}" for i in range(len(pairs))]
    scaled = [(ours * factor, base * factor) for ours, base in pairs]
    one, other = definition_score(uuids, table(pairs)), definition_score(uuids, table(scaled))
    assert one.score == pytest.approx(other.score)
    assert one.ratio_of_means == pytest.approx(other.ratio_of_means)


def test_workloads_that_are_not_expected_do_not_count() -> None:
    """Neither a failure nor a win outside the definition changes anything."""
    one = {"a": Measured(True, 1, 2)}
    more = one | {"x": Measured(False, None, None), "y": Measured(True, 1, 1000)}
    assert definition_score(["a"], more) == definition_score(["a"], one)


@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, 0.0), (1.0, None), (float("nan"), 1.0)])
def test_a_time_that_is_none_is_refused(times: tuple[float, float | None]) -> None:
    """A division that makes no sense is an error, not a number."""
    with pytest.raises(ValueError, match="not positive"):
        definition_score(["a"], {"a": Measured(True, *times)})


def test_no_workloads_no_score() -> None:
    """An empty definition is an error."""
    with pytest.raises(ValueError, match="without workloads"):
        definition_score([], {})


def test_tracks_divide_by_the_expected_number(catalog: Catalog) -> None:
    """An absent definition counts as 0; the tracks are of definitions that exist."""
    names = {name for track in TRACKS for name in track.definitions}
    assert names == {definition.name for definition in catalog.definitions()}
    found = {t.name: t for t in track_scores({"gdn_decode_qk4_v8_d128_k_last": 3.0, "other": 9.0})}
    assert found["gated_delta_net"].score == 1.5
    assert found["gated_delta_net"].absent == ("gdn_prefill_qk4_v8_d128_k_last",)
    assert (found["fused_moe"].score, found["fused_moe"].expected) == (0.0, 1)
    assert found["sparse_attention"].expected == 2


def summary(**baselines: float) -> dict[str, Any]:
    """What a promotion keeps, of two workloads."""
    return {
        "schema": 1,
        "definition": "gdn_decode_qk4_v8_d128_k_last",
        "target": "h200",
        "solution": {"name": "ours", "sha256": "ab" * 32},
        "epoch": "e1",
        "workloads": [
            {"uuid": uuid, "axes": {}, "median_us": 2.0, "floor_us": None, "baselines": baselines}
            for uuid in ("a", "b")
        ],
    } | {"baselines": {}}


def bench(name: str, time_us: float, epoch: str = "e1", verdict: str = "pass") -> dict[str, Any]:
    """A document of ``kopt bench``."""
    return {
        "schema": 1,
        "solution": {
            "name": name,
            "definition": "gdn_decode_qk4_v8_d128_k_last",
            "sha256": name.ljust(64, "0"),
        },
        "target": "h200",
        "verdict": verdict,
        "workloads": [
            {"uuid": "a", "verdict": "pass", "median_us": time_us},
            {"uuid": "b", "verdict": verdict, "median_us": time_us},
        ],
        "environment": {"epoch": epoch},
    }


def write(folder: Path, **documents: Any) -> Path:
    """JSON files in a folder."""
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder


def test_a_summary_has_its_baselines_inside(tmp_path: Path, catalog: Catalog) -> None:
    """Times of the solution and of the named baseline come out, by workload."""
    folder = write(tmp_path, summary=summary(reference=8.0, other=1.0))
    (sheet,) = read_sheets([folder], Knowledge(catalog))
    assert measured(sheet, "reference") == {u: Measured(True, 2.0, 8.0) for u in ("a", "b")}
    assert measured(sheet, "other")["a"].baseline_us == 1.0
    with pytest.raises(NotFoundError, match="no baseline 'third'") as caught:
        measured(sheet, "third")
    assert "it has other, reference" in caught.value.hint
    assert "kopt sweep" in caught.value.hint


def test_a_baseline_measured_beside_counts_only_in_the_same_epoch(
    tmp_path: Path, catalog: Catalog
) -> None:
    """Two bench documents of one epoch make a ratio, of two epochs an error."""
    folder = write(tmp_path, ours=bench("ours", 2.0), reference=bench("reference", 6.0))
    sheets = read_sheets([folder], Knowledge(catalog))
    (sheet,) = choose(sheets, "reference", None)
    assert sheet.solution == "ours"
    assert measured(sheet, "reference", sheets)["b"] == Measured(True, 2.0, 6.0)
    write(folder, reference=bench("reference", 6.0, epoch="e2"))
    sheets = read_sheets([folder], Knowledge(catalog))
    with pytest.raises(NotFoundError, match="no baseline"):
        measured(choose(sheets, "reference", None)[0], "reference", sheets)


def test_a_sweep_gives_the_paired_times(tmp_path: Path, catalog: Catalog) -> None:
    """Those measured side by side with the baseline count, not those of the check."""
    paired = {
        "a": {"name": "reference"},
        "workloads": [{"uuid": u, "a_median_us": 9.0, "b_median_us": 3.0} for u in ("a", "b")],
    }
    sweep = bench("ours", 2.0) | {"complete": True, "comparison": None, "baseline": paired}
    folder = write(tmp_path, result={"sweeps": [sweep]})
    (sheet,) = read_sheets([folder], Knowledge(catalog))
    assert measured(sheet, "reference")["a"] == Measured(True, 3.0, 9.0)


def test_every_baseline_of_a_sweep_can_be_scored_against(tmp_path: Path, catalog: Catalog) -> None:
    """Only the first has its comparison in the document; of all there are medians by workload."""
    sweep = bench("ours", 2.0) | {"comparison": None, "baseline": None}
    for row in sweep["workloads"]:
        row["baselines"] = {"fla": 3.0, "reference": 8.0}
    folder = write(tmp_path, result={"sweeps": [sweep]})
    (sheet,) = read_sheets([folder], Knowledge(catalog))
    assert measured(sheet, "reference")["b"] == Measured(True, 2.0, 8.0)
    assert measured(sheet, "fla")["a"] == Measured(True, 2.0, 3.0)


def test_damaged_samples_are_an_error_only_where_they_are_needed(
    tmp_path: Path, catalog: Catalog
) -> None:
    """Blocks beside the evidence are read for the solution that was replaced, and for no other."""
    document = summary(reference=8.0) | {"incumbent": {"name": "old"}}
    (write(tmp_path, summary=document) / "samples.json.gz").write_bytes(b"no gzip")
    (sheet,) = read_sheets([tmp_path / "summary.json"], Knowledge(catalog))
    assert measured(sheet, "reference")["a"].baseline_us == 8.0
    with pytest.raises(InvalidInputError, match=r"samples\.json\.gz"):
        measured(sheet, "old")


@pytest.mark.parametrize(
    ("verdict", "expected"), [("fail", (False, True)), ("infra", (True, False))]
)
def test_a_failure_counts_and_a_failed_machine_is_missing(
    tmp_path: Path, catalog: Catalog, verdict: str, expected: tuple[bool, bool]
) -> None:
    """``infra`` says nothing: its workload is not there; ``fail`` is."""
    folder = write(
        tmp_path, ours=bench("ours", 2.0, verdict=verdict), reference=bench("reference", 6.0)
    )
    sheets = read_sheets([folder], Knowledge(catalog))
    found = measured(choose(sheets, "reference", None)[0], "reference", sheets)
    is_missing, is_failed = expected
    assert ("b" not in found) is is_missing
    assert ("b" in found and not found["b"].passed) is is_failed


def test_two_results_of_one_definition_are_not_chosen_between(
    tmp_path: Path, catalog: Catalog
) -> None:
    """Which one counts is the user's to say; also of two targets."""
    folder = write(tmp_path, one=bench("one", 2.0), two=bench("two", 3.0))
    sheets = read_sheets([folder], Knowledge(catalog))
    with pytest.raises(UsageError, match=r"'one' in .* and 'two' in"):
        choose(sheets, "reference", None)
    write(folder, two=bench("two", 3.0) | {"target": "b200"})
    sheets = read_sheets([folder], Knowledge(catalog))
    with pytest.raises(UsageError, match="several targets: b200, h200"):
        choose(sheets, "reference", None)
    assert [sheet.solution for sheet in choose(sheets, "reference", "b200")] == ["two"]
    with pytest.raises(NotFoundError, match="no evidence of 'cpu'"):
        choose(sheets, "reference", "cpu")


def test_a_baseline_that_lacks_a_workload_is_an_error(tmp_path: Path, catalog: Catalog) -> None:
    """It is not the solution's failure, so it must not become a 0."""
    document = summary(reference=8.0)
    document["workloads"][1]["baselines"] = {}
    (sheet,) = read_sheets([write(tmp_path, summary=document)], Knowledge(catalog))
    with pytest.raises(InvalidInputError, match="lacks 1 of 2 workloads, as 'b'"):
        measured(sheet, "reference")


@pytest.mark.parametrize(
    "change", [{"workloads": [{"uuid": "a"}]}, {"solution": "x"}, {"workloads": [3]}]
)
def test_a_document_that_was_changed_is_one_clear_error(
    tmp_path: Path, catalog: Catalog, change: dict[str, Any]
) -> None:
    """It names the file and does not crash."""
    write(tmp_path, summary=summary(reference=8.0) | change)
    with pytest.raises(InvalidInputError, match=r"summary\.json"):
        read_sheets([tmp_path / "summary.json"], Knowledge(catalog))
