"""The audit over real results of other people: what it must find there, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.foreign import (
    Finding,
    FindingCode,
    Knowledge,
    Reading,
    Severity,
    audit,
    import_results,
    read_results,
)

DATA = Path(__file__).parents[3] / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no data beside the checkout")

Code = FindingCode


@pytest.fixture(scope="module")
def search() -> Reading:
    """The trace of an evolutionary search."""
    return read_results([DATA / "loongflow"])


@pytest.fixture(scope="module")
def search_findings(search: Reading, catalog: Catalog) -> dict[tuple[Code, Severity], Finding]:
    """By code and severity."""
    return {(f.code, f.severity): f for f in audit(search.results, Knowledge(catalog))}


@pytest.fixture(scope="module")
def results() -> Reading:
    """Five runs of a contest team, and a table."""
    return read_results([DATA / "results"])


@pytest.fixture(scope="module")
def result_findings(results: Reading, catalog: Catalog) -> tuple[Finding, ...]:
    """Of the runs and the table together."""
    return audit(results.results, Knowledge(catalog))


def test_every_file_of_the_search_is_read(search: Reading) -> None:
    """133 evaluations, ten checkpoints and their metadata, without a problem."""
    kinds = [result.kind for result in search.results]
    assert (kinds.count("mean"), kinds.count("selected")) == (133, 10)
    assert sum(file.ignored for file in search.files) == 10
    assert search.problems == ()
    assert all(file.reader == "search-trace" for file in search.files)


def test_cut_checkpoints_agree_with_the_evaluations(search: Reading) -> None:
    """What a checkpoint kept is one of the evaluations, number for number."""
    evaluations = {
        (r.source_sha256, r.score, r.latency_ms) for r in search.results if r.kind == "mean"
    }
    for result in search.results:
        if result.kind == "selected":
            assert (result.source_sha256, result.score, result.latency_ms) in evaluations
            assert result.workload_count in (54, None)


def test_infrastructure_errors_of_the_search(
    search_findings: dict[tuple[Code, Severity], Finding],
) -> None:
    """82 evaluations failed for money, the two that did not compile are left alone."""
    finding = search_findings[Code.INFRA_AS_FAILURE, Severity.WRONG]
    assert finding.figures == {"results": 82, "of": 133, "failures": 84}
    assert (Code.POSSIBLE_INFRA, Severity.DOUBTFUL) not in search_findings


def test_epochs_of_the_search(search_findings: dict[tuple[Code, Severity], Finding]) -> None:
    """One source three times, 2.87 apart; references in two states; a best that did not change."""
    same = search_findings[Code.SAME_SOURCE_OTHER_TIME, Severity.WRONG]
    assert same.figures["runs"] == 3
    assert same.figures["factor"] == pytest.approx(2.866, abs=0.001)
    assert search_findings[Code.MIXED_EPOCHS, Severity.WRONG].figures["states"] == 2
    step = search_findings[Code.IMPROVEMENT_WITHOUT_CHANGE, Severity.WRONG]
    assert step.figures["factor"] == pytest.approx(8.01, abs=0.01)


def test_the_winner_of_the_search(search_findings: dict[tuple[Code, Severity], Finding]) -> None:
    """It is second by latency, owes 5.5 % to its reference, and leads by less than the noise."""
    finding = search_findings[Code.NOISY_DENOMINATOR, Severity.WRONG]
    assert finding.figures["latency_rank"] == 2
    assert finding.figures["owed"] == pytest.approx(0.0554, abs=0.0001)
    noise = search_findings[Code.INSIDE_NOISE, Severity.DOUBTFUL].figures
    assert noise["margin"] < noise["noise"]
    assert (Code.SUBSET_CLAIM, Severity.WRONG) not in search_findings


def test_every_workload_of_the_runs_is_read(results: Reading) -> None:
    """324 entries and five summaries; three columns of times for each line of the table."""
    by_reader = {
        reader: sum(r.reader == reader and r.kind == "workload" for r in results.results)
        for reader in ("retained-run", "latency-table")
    }
    assert by_reader == {"retained-run": 324, "latency-table": 3 * 324}
    assert sum(result.kind == "summary" for result in results.results) == 5
    assert results.problems == ()


def test_what_is_right_in_the_runs_is_not_doubted(result_findings: tuple[Finding, ...]) -> None:
    """Complete, with sums that add up, and no time that cannot be."""
    codes = {finding.code for finding in result_findings}
    assert not codes & {
        Code.PARTIAL_SWEEP,
        Code.SUBSET_CLAIM,
        Code.FAILURES_LEFT_OUT,
        Code.IMPOSSIBLE_LATENCY,
        Code.SPEEDUP_MISMATCH,
        Code.SUMMARY_MISMATCH,
        Code.UNKNOWN_DEFINITION,
        Code.UNKNOWN_WORKLOADS,
    }


def test_what_the_runs_lack(result_findings: tuple[Finding, ...]) -> None:
    """No spread, hardware or hash; means that disagree; a reference that varies by a factor."""
    codes = [finding.code for finding in result_findings]
    assert {Code.NO_SPREAD, Code.NO_ENVIRONMENT, Code.NO_SOURCE, Code.SAME_NUMBERS} <= set(codes)
    swing = [
        finding.figures["greatest"] / finding.figures["least"]
        for finding in result_findings
        if finding.code is Code.UNEQUAL_REFERENCES and "gdn_decode" in finding.detail
    ]
    assert swing
    assert min(swing) > 2
    means = [f.figures for f in result_findings if f.code is Code.MEANS_DISAGREE]
    assert any(f["ratio_of_means"] > 2 * f["mean_of_ratios"] for f in means)
    assert any(f["mean_of_ratios"] > 2 * f["ratio_of_means"] for f in means)


def test_importing_all_of_it_twice(tmp_path: Path, search: Reading, results: Reading) -> None:
    """Every result is kept once."""
    everything = (*search.results, *results.results)
    assert import_results(tmp_path, everything) == (len(everything), 0)
    assert import_results(tmp_path, everything) == (0, len(everything))
