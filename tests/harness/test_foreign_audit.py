"""Findings of an audit: each with a case in which it is there and one in which it is not."""

from __future__ import annotations

from typing import Any

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.foreign import (
    Finding,
    FindingCode,
    ForeignResult,
    Knowledge,
    Place,
    Severity,
    audit,
)
from kopt_harness.schema import Definition
from kopt_harness.targets import get_target

DECODE = "gdn_decode_qk4_v8_d128_k_last"
Code = FindingCode


@pytest.fixture(scope="module")
def knowledge(catalog: Catalog) -> Knowledge:
    """The project's definitions, on nothing in particular."""
    return Knowledge(catalog)


@pytest.fixture(scope="module")
def uuids(catalog: Catalog, gdn_decode: Definition) -> list[str]:
    """All workloads of gdn_decode."""
    return [workload.uuid for workload in catalog.workloads(gdn_decode)]


def result(**change: Any) -> ForeignResult:
    """A mean of one evaluation over all 54 workloads, 20 us against 4 ms."""
    given: dict[str, Any] = {
        "reader": "test",
        "kind": "mean",
        "definition": DECODE,
        "workload_count": 54,
        "status": "success",
        "outcome": "passed",
        "latency_ms": 0.02,
        "reference_latency_ms": 4.0,
        "environment": {"hardware": "NVIDIA B200"},
        "samples": 50,
        "timestamp": "2026-01-01",
        "source_sha256": "aa" * 32,
    } | change
    number = given.pop("at", 0)
    place = Place(file=given.pop("file", "f.json"), position=str(number))
    return ForeignResult(place=place, **given)


def means(*times: tuple[float, float], **change: Any) -> list[ForeignResult]:
    """Evaluations of different sources: (latency, reference) in milliseconds."""
    return [
        result(
            **{
                "at": i,
                "source_sha256": f"{i:02x}" * 32,
                "latency_ms": ours,
                "reference_latency_ms": ref,
            }
            | change
        )
        for i, (ours, ref) in enumerate(times)
    ]


def sweep(uuids: list[str], **change: Any) -> list[ForeignResult]:
    """One solution on workloads."""
    return [
        result(**{"kind": "workload", "workload": uuid, "solution": "ours", "at": i} | change)
        for i, uuid in enumerate(uuids)
    ]


def found(results: list[ForeignResult], knowledge: Knowledge, code: FindingCode) -> list[Finding]:
    """Findings of one code."""
    return [finding for finding in audit(results, knowledge) if finding.code is code]


def test_nothing_to_say_about_a_complete_careful_sweep(
    knowledge: Knowledge, uuids: list[str]
) -> None:
    """Right on every workload, with samples, hardware, hash and date: no finding at all."""
    assert audit(sweep(uuids), knowledge) == ()


@pytest.mark.parametrize(
    "message",
    [
        "workspace billing cycle spend limit",
        "Connection reset by peer",
        "No space left on device",
        "RuntimeError: No CUDA-capable device is detected",
        "the worker died",
        "HTTP 429 Too Many Requests",
    ],
)
def test_a_failed_machine_is_no_failed_solution(knowledge: Knowledge, message: str) -> None:
    """What no solution can cause is an infrastructure error."""
    failed = result(outcome="failed", status="error", message=message, score=0.0, latency_ms=None)
    (finding,) = found([failed, result(at=1)], knowledge, Code.INFRA_AS_FAILURE)
    assert finding.severity is Severity.WRONG
    assert finding.evidence == ("f.json:0",)
    assert "1 of 2 results" in finding.detail
    assert "1 of them with a score of 0" in finding.detail


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("TIMEOUT", ""),
        ("RUNTIME_ERROR", "torch.OutOfMemoryError: CUDA out of memory. Tried"),
        ("COMPILE_ERROR", "ModuleNotFoundError: No module named 'cutlass'"),
    ],
)
def test_what_a_solution_can_also_cause_is_only_possible(
    knowledge: Knowledge, status: str, message: str
) -> None:
    """A time limit, memory, an import."""
    failed = [result(outcome="failed", status=status, message=message, latency_ms=None)]
    (finding,) = found(failed, knowledge, Code.POSSIBLE_INFRA)
    assert finding.severity is Severity.DOUBTFUL
    assert not found(failed, knowledge, Code.INFRA_AS_FAILURE)


@pytest.mark.parametrize("message", ["error: expected ';'", "12 elements differ", ""])
def test_an_honest_failure_is_left_alone(knowledge: Knowledge, message: str) -> None:
    """A compile error and a wrong answer are the solution's; a passed entry is not asked."""
    failed = [result(outcome="failed", status="error", message=message, latency_ms=None)]
    passed = [result(at=1, message="warning: connection refused, trying again")]
    assert not found(failed + passed, knowledge, Code.INFRA_AS_FAILURE)
    assert not found(failed + passed, knowledge, Code.POSSIBLE_INFRA)


def test_one_source_with_two_times(knowledge: Knowledge) -> None:
    """A factor is an epoch change, two per cent are not, and two sources may differ."""
    apart = [result(), result(at=1, latency_ms=0.06)]
    (finding,) = found(apart, knowledge, Code.SAME_SOURCE_OTHER_TIME)
    assert (finding.severity, finding.figures["factor"]) == (Severity.WRONG, pytest.approx(3))
    assert finding.evidence == ("f.json:0", "f.json:1")
    near = [result(), result(at=1, latency_ms=0.0204)]
    assert not found(near, knowledge, Code.SAME_SOURCE_OTHER_TIME)
    other = [result(), result(at=1, latency_ms=0.06, source_sha256="bb" * 32)]
    assert not found(other, knowledge, Code.SAME_SOURCE_OTHER_TIME)
    elsewhere = [result(), result(at=1, latency_ms=0.06, workload_count=3)]
    assert not found(elsewhere, knowledge, Code.SAME_SOURCE_OTHER_TIME)


def test_a_search_that_improves_without_a_change(knowledge: Knowledge) -> None:
    """Two successive bests of one source with other scores; repeats of a best are none."""

    def best(number: int, score: float, source: str) -> ForeignResult:
        when = f"2026-01-0{number}"
        return result(
            kind="selected", at=number, score=score, source_sha256=source * 32, timestamp=when
        )

    chosen = [best(3, 777, "aa"), best(1, 97, "aa"), best(2, 97, "aa"), best(4, 800, "bb")]
    (finding,) = found(chosen, knowledge, Code.IMPROVEMENT_WITHOUT_CHANGE)
    assert finding.evidence == ("f.json:2", "f.json:3")
    assert finding.figures["factor"] == pytest.approx(777 / 97)
    chosen[0] = best(3, 777, "bb")
    assert not found(chosen, knowledge, Code.IMPROVEMENT_WITHOUT_CHANGE)


def test_references_in_two_states(knowledge: Knowledge) -> None:
    """A gap of a factor parts them; a wide spread without a gap does not."""
    two = means((0.02, 4.0), (0.02, 4.4), (0.01, 16.0), (0.01, 17.0))
    (finding,) = found(two, knowledge, Code.MIXED_EPOCHS)
    assert finding.figures == {"states": 2, "gap": pytest.approx(16 / 4.4)}
    wide = means((0.02, 4.0), (0.02, 5.0), (0.01, 6.5), (0.01, 8.0))
    assert not found(wide, knowledge, Code.MIXED_EPOCHS)


def test_mixed_environments(knowledge: Knowledge) -> None:
    """Hardware, clocks and software each have their finding; equal ones have none."""
    environments = [
        {"hardware": "NVIDIA B200", "sm_clock_mhz": 1800, "libs": {"torch": "2.8"}},
        {"hardware": "NVIDIA H200", "sm_clock_mhz": 1980, "libs": {"torch": "2.9"}},
    ]
    mixed = [result(at=i, environment=e) for i, e in enumerate(environments)]
    for code, severity in (
        (Code.MIXED_HARDWARE, Severity.WRONG),
        (Code.MIXED_CLOCKS, Severity.WRONG),
        (Code.MIXED_SOFTWARE, Severity.DOUBTFUL),
    ):
        (finding,) = found(mixed, knowledge, code)
        assert finding.severity is severity
        assert len(finding.evidence) == 2
        same = [result(at=i, environment=environments[0]) for i in range(2)]
        assert not found(same, knowledge, code)
        apart = [
            result(environment=environments[0]),
            result(environment=environments[1], at=1, workload_count=3),
        ]
        assert not found(apart, knowledge, code), "they are not compared with each other"


def test_a_winner_by_its_denominator(knowledge: Knowledge) -> None:
    """The best by speed-up is second by latency: its reference was slower than usual."""
    runs = means((0.0200, 4.0), (0.0190, 3.9), (0.0195, 4.6))
    (finding,) = found(runs, knowledge, Code.NOISY_DENOMINATOR)
    assert finding.severity is Severity.WRONG
    assert finding.evidence == ("f.json:2", "f.json:1")
    assert finding.figures["latency_rank"] == 2
    assert finding.figures["owed"] == pytest.approx(4.6 / 4.0 - 1)
    assert finding.figures["swapped_pairs"] == 1
    assert "02" * 6 in finding.detail


def test_a_noisy_denominator_that_chose_nobody_is_doubtful(knowledge: Knowledge) -> None:
    """The fastest also has the best speed-up; a steady reference is nothing at all."""
    (finding,) = found(means((0.02, 4.0), (0.01, 4.4)), knowledge, Code.NOISY_DENOMINATOR)
    assert finding.severity is Severity.DOUBTFUL
    steady = means((0.02, 4.0), (0.0199, 3.95), (0.01, 4.0))
    assert not found(steady, knowledge, Code.NOISY_DENOMINATOR)
    assert not found(means((0.02, 4.0)), knowledge, Code.NOISY_DENOMINATOR)


def test_a_reference_that_varies_between_equal_shapes(
    knowledge: Knowledge, uuids: list[str], catalog: Catalog, gdn_decode: Definition
) -> None:
    """With a steady solution it is the machine, and the mean speed-up swings with it."""
    alike = [w.uuid for w in catalog.workloads(gdn_decode) if w.axes == {"batch_size": 64}]
    results = sweep(uuids)
    varied = [
        r.model_copy(update={"reference_latency_ms": 4.0 + 4.0 * (r.workload == alike[0])})
        for r in results
    ]
    (finding,) = found(varied, knowledge, Code.UNEQUAL_REFERENCES)
    assert finding.severity is Severity.WRONG
    assert len(finding.evidence) == len(alike)
    assert finding.figures["least"] == pytest.approx(200)
    assert finding.figures["greatest"] == pytest.approx(200 * (1 + len(alike) / 54))
    assert not found(results, knowledge, Code.UNEQUAL_REFERENCES)
    both = [
        r.model_copy(update={"latency_ms": 0.02 + 0.02 * (r.workload == alike[0])}) for r in varied
    ]
    assert not found(both, knowledge, Code.UNEQUAL_REFERENCES), "the inputs may cost both more"
    different = [
        r.model_copy(update={"reference_latency_ms": 1.0 + knowledge_axes[r.workload or ""]})
        for knowledge_axes in [
            {w.uuid: w.axes["batch_size"] for w in catalog.workloads(gdn_decode)}
        ]
        for r in results
    ]
    assert not found(different, knowledge, Code.UNEQUAL_REFERENCES), "shapes may differ"


def test_coverage(knowledge: Knowledge, uuids: list[str]) -> None:
    """A part of the workloads is doubtful; with a mean stated for the definition it is wrong."""
    part = sweep(uuids[:12])
    (finding,) = found(part, knowledge, Code.PARTIAL_SWEEP)
    assert finding.figures == {"missing": 42, "of": 54}
    assert uuids[12] in finding.detail
    stated = result(kind="summary", at="s", workload_count=12)
    (finding,) = found([*part, stated], knowledge, Code.SUBSET_CLAIM)
    assert (finding.severity, finding.evidence) == (Severity.WRONG, ("f.json:s",))
    assert not found([*part, stated], knowledge, Code.PARTIAL_SWEEP)
    whole = [*sweep(uuids), stated]
    for code in (Code.PARTIAL_SWEEP, Code.SUBSET_CLAIM):
        assert not found(whole, knowledge, code)


def test_means_over_a_part(knowledge: Knowledge) -> None:
    """An evaluation that says how few workloads it covers."""
    (finding,) = found(
        [result(workload_count=5), result(at=1, workload_count=5)], knowledge, Code.SUBSET_CLAIM
    )
    assert finding.figures == {"workloads": 5, "of": 54, "runs": 2}
    assert not found([result()], knowledge, Code.SUBSET_CLAIM)
    assert not found([result(workload_count=None)], knowledge, Code.SUBSET_CLAIM)


def test_failures_that_a_mean_leaves_out(knowledge: Knowledge, uuids: list[str]) -> None:
    """A stated mean beside a failed workload."""
    stated = result(kind="summary", at="s")
    results = sweep(uuids)
    broken = results[3].model_copy(update={"outcome": "failed", "latency_ms": None})
    (finding,) = found(
        [*results[:3], broken, *results[4:], stated], knowledge, Code.FAILURES_LEFT_OUT
    )
    assert finding.figures == {"failed": 1, "of": 54}
    assert finding.evidence == ("f.json:s", "f.json:3")
    assert not found([*results, stated], knowledge, Code.FAILURES_LEFT_OUT)
    assert not found([*results[:3], broken, *results[4:]], knowledge, Code.FAILURES_LEFT_OUT)


def test_unknown_names(knowledge: Knowledge, uuids: list[str]) -> None:
    """A workload that the definition does not have; a definition that is not known."""
    (finding,) = found(sweep([*uuids, "mine"]), knowledge, Code.UNKNOWN_WORKLOADS)
    assert "mine" in finding.detail
    assert not found(sweep(uuids), knowledge, Code.UNKNOWN_WORKLOADS)
    (finding,) = found([result(definition="other_op")], knowledge, Code.UNKNOWN_DEFINITION)
    assert "'other_op'" in finding.detail
    by_uuid = sweep(uuids, definition="somebody's name for it")
    assert not found(by_uuid, knowledge, Code.UNKNOWN_DEFINITION)


def test_a_lead_within_the_noise(knowledge: Knowledge) -> None:
    """A lead of 1 % where one source alone differs by 4 %; none where repeats agree."""
    runs = means((0.0200, 4.0), (0.0202, 4.0), (0.030, 4.0))
    repeat = result(at=3, source_sha256="02" * 32, latency_ms=0.0312)
    inside = found([*runs, repeat], knowledge, Code.INSIDE_NOISE)
    assert {finding.detail.split(" the best")[0] for finding in inside} == {
        "by speed-up",
        "by latency",
    }
    assert inside[0].figures["margin"] == pytest.approx(0.01)
    assert inside[0].figures["noise"] == pytest.approx(0.04)
    assert inside[0].figures["within"] == 1
    steady = result(at=3, source_sha256="02" * 32, latency_ms=0.0301)
    assert not found([*runs, steady], knowledge, Code.INSIDE_NOISE)


def test_nothing_measured_twice(knowledge: Knowledge) -> None:
    """Without a repeat there is no noise to compare with; one solution alone needs none."""
    runs = means((0.02, 4.0), (0.03, 4.0))
    (finding,) = found(runs, knowledge, Code.NO_REPEATS)
    assert finding.figures == {"runs": 2}
    repeat = result(at=2, source_sha256="01" * 32, latency_ms=0.03)
    assert not found([*runs, repeat], knowledge, Code.NO_REPEATS)
    assert not found(runs[:1], knowledge, Code.NO_REPEATS)


@pytest.mark.parametrize(
    ("code", "lacking"),
    [
        (Code.NO_SPREAD, {"samples": None}),
        (Code.NO_SPREAD, {"samples": 1}),
        (Code.NO_ENVIRONMENT, {"environment": {"libs": {"torch": "2.8"}}}),
        (Code.NO_SOURCE, {"source_sha256": None}),
        (Code.NO_VERDICT, {"outcome": "unknown"}),
        (Code.NO_TIMESTAMP, {"timestamp": None}),
    ],
)
def test_what_a_number_lacks(
    knowledge: Knowledge, code: FindingCode, lacking: dict[str, Any]
) -> None:
    """Each absence has its code; a number that has everything has none; failures need nothing."""
    (finding,) = found([result(), result(at=1, **lacking)], knowledge, code)
    assert finding.evidence == ("f.json:1",)
    assert not found([result()], knowledge, code)
    failed = result(at=1, status="x", latency_ms=None, **{"outcome": "failed"} | lacking)
    assert not found([result(), failed], knowledge, code)


def test_a_spread_by_another_name(knowledge: Knowledge) -> None:
    """A file that keeps its samples or a percentile has a spread."""
    kept = [result(samples=None, extra={"latency_p95_ms": 1.0})]
    assert not found(kept, knowledge, Code.NO_SPREAD)


def test_a_speedup_that_does_not_follow(knowledge: Knowledge, uuids: list[str]) -> None:
    """From the times beside it; two digits of rounding do."""
    results = sweep(uuids, speedup=199.0)
    assert not found(results, knowledge, Code.SPEEDUP_MISMATCH)
    wrong = results[5].model_copy(update={"speedup": 400.0})
    (finding,) = found([*results[:5], wrong, *results[6:]], knowledge, Code.SPEEDUP_MISMATCH)
    assert finding.evidence == ("f.json:5",)
    assert finding.figures["worst_error"] == pytest.approx(1.0)


def test_a_summary_that_does_not_follow(knowledge: Knowledge, uuids: list[str]) -> None:
    """From its own entries."""
    right = result(kind="summary", at="s", latency_ms=0.02, speedup=200.0)
    assert not found([*sweep(uuids), right], knowledge, Code.SUMMARY_MISMATCH)
    wrong = right.model_copy(update={"latency_ms": 0.018})
    (finding,) = found([*sweep(uuids), wrong], knowledge, Code.SUMMARY_MISMATCH)
    assert finding.figures == {"latency_ms": pytest.approx(0.9)}


def test_two_means_that_tell_different_stories(knowledge: Knowledge, uuids: list[str]) -> None:
    """One long workload with another ratio moves the ratio of means alone."""
    results = sweep(uuids)
    assert not found(results, knowledge, Code.MEANS_DISAGREE)
    long = results[0].model_copy(update={"latency_ms": 10.0, "reference_latency_ms": 20.0})
    (finding,) = found([long, *results[1:]], knowledge, Code.MEANS_DISAGREE)
    assert finding.figures["mean_of_ratios"] == pytest.approx((53 * 200 + 2) / 54)
    assert finding.figures["ratio_of_means"] == pytest.approx((53 * 4 + 20) / (53 * 0.02 + 10))
    (finding,) = found([result(speedup=120.0)], knowledge, Code.MEANS_DISAGREE)
    assert finding.figures["ratio_of_means"] == pytest.approx(200)


def test_times_that_cannot_be(
    knowledge: Knowledge, uuids: list[str], catalog: Catalog, gdn_decode: Definition
) -> None:
    """Not positive, less than an empty kernel, and less than the bytes need."""
    largest = next(w for w in catalog.workloads(gdn_decode) if w.axes == {"batch_size": 64})
    at = uuids.index(largest.uuid)
    floor = knowledge.floor(gdn_decode, largest, "NVIDIA B200")
    assert floor is not None
    assert floor.hardware == "b200"
    assert 0 < floor.outputs_us < floor.cost_us
    cases = {
        0.0: (Severity.WRONG, "not positive"),
        0.4: (Severity.WRONG, "empty kernel"),
        0.8 * floor.outputs_us: (Severity.WRONG, "writing the outputs alone"),
        0.8 * floor.cost_us: (Severity.DOUBTFUL, "cost model"),
    }
    results = sweep(uuids)
    assert not found(results, knowledge, Code.IMPOSSIBLE_LATENCY)
    for time_us, (severity, words) in cases.items():
        wrong = results[at].model_copy(update={"latency_ms": time_us / 1e3})
        (finding,) = found(
            [*results[:at], wrong, *results[at + 1 :]], knowledge, Code.IMPOSSIBLE_LATENCY
        )
        assert finding.severity is severity
        assert words in finding.detail
        assert finding.evidence == (f"f.json:{at}",)
    slower = results[at].model_copy(update={"latency_ms": 0.95 * floor.cost_us / 1e3})
    assert not found(
        [*results[:at], slower, *results[at + 1 :]], knowledge, Code.IMPOSSIBLE_LATENCY
    )


def test_a_floor_needs_to_know_the_hardware(
    catalog: Catalog, gdn_decode: Definition, knowledge: Knowledge
) -> None:
    """Named by the file, else by the user, else the fastest that is known; none on a CPU."""
    workload = catalog.workloads(gdn_decode)[-1]
    h200 = knowledge.floor(gdn_decode, workload, "{'hardware': 'NVIDIA_H200'}")
    unknown = knowledge.floor(gdn_decode, workload, "{}")
    assert h200 is not None
    assert unknown is not None
    assert h200.cost_us > unknown.cost_us
    assert unknown.hardware.endswith("the fastest known")
    told = Knowledge(catalog, get_target("h200")).floor(gdn_decode, workload, "{}")
    assert told == h200
    assert knowledge.floor(gdn_decode, workload, "{'hardware': 'cpu'}") is None


def test_one_measurement_under_two_names(knowledge: Knowledge, uuids: list[str]) -> None:
    """Equal within rounding on nearly every workload; not by chance on few."""

    def named(name: str, factor: float, count: int = 54) -> list[ForeignResult]:
        return [
            r.model_copy(update={"latency_ms": factor * (1 + 0.01 * i)})
            for i, r in enumerate(sweep(uuids[:count], solution=name))
        ]

    three = [*named("a", 1.0), *named("b", 1.0004), *named("c", 1.01)]
    (finding,) = found(three, knowledge, Code.SAME_NUMBERS)
    assert finding.detail.startswith("a, b have times")
    assert not found([*named("a", 1.0), *named("c", 1.01)], knowledge, Code.SAME_NUMBERS)
    few = [*named("a", 1.0, 9), *named("b", 1.0, 9)]
    assert not found(few, knowledge, Code.SAME_NUMBERS)


def test_the_worst_comes_first(knowledge: Knowledge, uuids: list[str]) -> None:
    """By severity, whatever the order of the checks."""
    results = [*sweep(uuids[:3], samples=None, source_sha256=None), *means((0.02, 4), (0.019, 3))]
    severities = [list(Severity).index(f.severity) for f in audit(results, knowledge)]
    assert len(set(severities)) == 3
    assert severities == sorted(severities)


def test_every_finding_has_evidence_and_a_sentence(knowledge: Knowledge, uuids: list[str]) -> None:
    """Places that can be opened, and numbers in the words."""
    results = [*sweep(uuids[:3]), *means((0.02, 4.0), (0.019, 3.0), samples=None)]
    for finding in audit(results, knowledge):
        assert finding.evidence
        assert all(place.startswith("f.json:") for place in finding.evidence)
        assert any(character.isdigit() for character in finding.detail)
