"""How numbers are shown: an interval that says nothing is wide, and one of a thing is singular."""

from typing import Any

import pytest
from kopt_controller.cli.compare import print_comparison
from kopt_controller.costs import Usage, cost_document, cost_report
from kopt_controller.report import cost_line, round_blocks
from kopt_controller.result import CandidateRef, Decision, Review
from kopt_controller.reviewing import reviewed
from kopt_controller.rows import round_row
from kopt_controller.shown import bracketed, counted, ratio_text
from kopt_harness.schema import Comparison
from rich.console import Console

ABSURD = (1e-9, 1359874614961835286242263040.0)


@pytest.mark.parametrize(
    ("ci", "shown"),
    [
        ((0.5, 0.75), "[0.500, 0.750]"),
        ((0.1, 2.0), "[0.100, 2.000]"),
        ((0.1, 2.1), "[wide]"),
        ((0.0, 1.0), "[wide]"),
        (ABSURD, "[wide]"),
    ],
)
def test_an_interval_beyond_a_factor_of_twenty_is_wide(ci: tuple[float, float], shown: str) -> None:
    """Up to it the ends are spelt out."""
    assert bracketed(ci) == shown
    assert ratio_text(0.5, ci) == f"0.500 {shown}"


def test_a_ratio_without_an_interval_stands_alone() -> None:
    """No bracket is invented."""
    assert ratio_text(0.12345, None, 4) == "0.1235"


def test_one_candidate_is_not_candidates(toy: Any) -> None:
    """In what a round says while it goes on, too."""
    assert [counted(n, "candidate") for n in (0, 1, 2)] == [
        "0 candidates",
        "1 candidate",
        "2 candidates",
    ]
    told: list[str] = []
    toy.campaign(max_candidates=1)._replace(notify=told.append).execute()
    assert any(text.endswith(": 1 candidate") for text in told)


def test_rounds_and_comparisons_print_no_absurd_ends(searched_toy: Any) -> None:
    """The numbers stay in the documents that the text is made of."""
    round_ = searched_toy.campaign.document()["rounds"][0]
    compared = round_["sweep"]["comparison"]
    compared["ci"] = list(ABSURD)
    assert "[wide]" in str(round_blocks(round_))
    row = {"ratio": 0.5, "ci": ABSURD, "best": None, "promoted_by": None, "applied": False}
    names = ("round", "bottleneck", "direction", "passed", "candidates", "decision")
    assert "0.500 [wide]" in round_row("run", row | dict.fromkeys(names, 1))
    rows = [each | {"ci": list(ABSURD)} for each in compared["workloads"]]
    comparison = Comparison.model_validate(compared | {"workloads": rows})
    console = Console(width=200, markup=False, record=True, quiet=False)
    print_comparison(console, comparison)
    text = console.export_text()
    assert text.count("[wide]") == 1 + len(rows)
    assert "1359874614961835286242263040" not in text


@pytest.mark.parametrize(
    ("uses", "shown"),
    [
        ([None, None], "price unknown, 4 tokens in 2 uses of models"),
        ([0.5, None], "at least 0.5000 dollars, 4 tokens in 2 uses of models"),
        ([0.5], "0.5000 dollars, 2 tokens in 1 use of a model"),
        ([0.0], "0.0000 dollars, 2 tokens in 1 use of a model"),
    ],
)
def test_a_price_that_nobody_said_is_unknown(uses: list[float | None], shown: str) -> None:
    """Nothing and unknown are two things, and one use is singular."""
    found = [Usage(agent="a", tokens_in=2, dollars=each) for each in uses]
    line = cost_line(cost_document(cost_report(found, [])))
    assert line == f"Cost: {shown}, 0.0 s of the device"


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [("flag", "ada has objected: why"), ("none", "there is no review of ada: why")],
)
def test_an_answer_that_nobody_can_read_is_no_objection(verdict: Any, shown: str) -> None:
    """It holds a promotion up all the same."""
    review = Review(
        candidate=CandidateRef(name="c", sha256="0"), by="ada", verdict=verdict, reasons=("why",)
    )
    promoted = Decision(label="promote", code="faster", reason="r", evidence=())
    decision = reviewed(promoted, review, ())
    assert (decision.label, decision.code) == ("archive", "review")
    assert decision.reason == f"c is kept, not promoted: {shown}"
    assert not decision.evidence[-1].ok
