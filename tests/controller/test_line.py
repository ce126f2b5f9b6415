"""A version that a line took is not called the incumbent: in the report and after the round."""

from collections.abc import Callable
from typing import Any

import pytest
from kopt_controller.cli import main
from kopt_controller.indexed import open_index
from kopt_controller.report import retained_after
from kopt_controller.views import Chapter, Sources, SubjectKey, subject_chapter

Toy = Any


@pytest.fixture
def line(toy: Toy) -> Toy:
    """A root in which a line has a faster version, and a person has to promote it."""
    toy.campaign(policy="single-lineage", promotion="ask", max_candidates=1).execute()
    return toy


@pytest.fixture
def said(line: Toy, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints in that root, in one line."""

    def run(*arguments: str) -> str:
        assert main(["--root", str(line.root.path), *arguments]) == 0
        return " ".join(capsys.readouterr().out.split())

    return run


def _chapter(toy: Toy) -> Chapter:
    with open_index(toy.root.local) as index:
        return subject_chapter(Sources(toy.root, toy.catalog, index), SubjectKey("toy_op_n", "cpu"))


def test_the_report_claims_no_promotion_of_a_version(line: Toy) -> None:
    """``retained.toml`` still names the old incumbent, and so does every figure."""
    chapter = _chapter(line)
    assert chapter.headline is not None
    assert chapter.headline.became == "newest version of the line, waits for kopt promote"
    (point,) = chapter.rounds
    assert (point.applied, point.incumbent.name, point.best) == (False, "plain", 1.0)
    assert not any(candidate.promoted for candidate in chapter.candidates)
    assert [decision.applied for decision in chapter.decisions] == [False]


def test_a_round_names_its_version_and_what_is_retained(said: Callable[..., str]) -> None:
    """They are two things, and the last lines say which is which."""
    text = said("resume", "toy")
    assert "Newest version: tuned" in text
    assert "Incumbent (retained): plain" in text
    assert "Incumbent: " not in text


def test_a_later_round_run_again_claims_nothing_of_what_is_retained() -> None:
    """It may have started from a version; a promotion says what is retained from then on."""
    start, version = {"name": "plain", "sha256": "a"}, {"name": "near", "sha256": "b"}
    round_ = {"round": 1, "promotion": None, "incumbent_before": start, "incumbent": version}
    assert retained_after([round_]) == (start,)
    again = round_ | {"round": 2}
    promoted = round_ | {"round": 3, "promotion": {"applied": True}}
    assert retained_after([again, promoted]) == (None, version)
    assert retained_after([]) == ()


def test_a_version_held_against_the_retained_one_has_its_level(toy: Toy) -> None:
    """Its ratio is of what is retained then, and is not multiplied with that of a version."""
    campaign = toy.campaign(
        policy="single-lineage", promotion="ask", max_candidates=1, rounds=2
    ).execute()
    first, second = campaign.rounds
    assert first.committed
    assert second.sweep is not None
    assert second.sweep.comparison is not None
    assert second.sweep.comparison.a.name == "plain"
    points = _chapter(toy).candidates
    assert points[-1].swept
    assert points[-1].level == pytest.approx(second.sweep.comparison.ratio)
