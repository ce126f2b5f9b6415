"""The budget of an agent's helpers: shared, on disk, and a hard refusal at its end."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kopt_controller.budget import Budget, BudgetExhaustedError
from kopt_harness.errors import InvalidInputError


def test_uses_add_up_over_all_who_have_the_file(tmp_path: Path) -> None:
    """A second process sees what the first has spent."""
    first, second = (Budget(tmp_path / "budget", 10.0) for _ in range(2))
    assert first.spend("check", 2.5) == pytest.approx(7.5)
    assert second.spend("bench", 4.0) == pytest.approx(3.5)
    assert [use.kind for use in first.uses()] == ["check", "bench"]
    assert first.left_s() == pytest.approx(3.5)


def test_nothing_is_left_means_no(tmp_path: Path) -> None:
    """What was begun in time is noted in full; the next is refused and leaves no line."""
    budget = Budget(tmp_path / "budget", 5.0)
    assert budget.begin("profile") == pytest.approx(5.0)
    assert budget.spend("profile", 9.0) == 0
    with pytest.raises(BudgetExhaustedError, match=r"9\.0 of 5\.0 s"):
        budget.begin("check")
    with pytest.raises(BudgetExhaustedError):
        budget.spend("check", 0.1)
    with pytest.raises(BudgetExhaustedError), budget.charged("check"):
        pytest.fail("the body must not run")
    assert budget.spent_s() == pytest.approx(9.0)


def test_what_fails_is_paid_for(tmp_path: Path) -> None:
    """A check that raises has used the device all the same."""
    budget = Budget(tmp_path / "budget", 60.0)

    def fail() -> None:
        with budget.charged("check") as left_s:
            raise RuntimeError(f"{left_s:.0f} s were left")

    with pytest.raises(RuntimeError, match="60 s"):
        fail()
    assert [use.kind for use in budget.uses()] == ["check"]


def test_a_time_that_is_none_changes_nothing(tmp_path: Path) -> None:
    """A negative time would give seconds back."""
    budget = Budget(tmp_path / "budget", 5.0)
    for time in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInputError):
            budget.spend("check", time)
    assert budget.left_s() == pytest.approx(5.0)


def test_a_line_that_was_cut_off_is_not_counted(tmp_path: Path) -> None:
    """A process killed while it wrote has used nothing that anybody knows of."""
    path = tmp_path / "budget"
    Budget(path, 5.0).spend("check", 1.0)
    with path.open("a") as stream:
        stream.write('{"kind": "che')
    assert Budget(path, 5.0).spent_s() == pytest.approx(1.0)
    Budget(path, 5.0).spend("bench", 2.0)
    assert Budget(path, 5.0).spent_s() == pytest.approx(3.0)


def test_a_budget_that_is_no_budget_is_not_read_as_empty(tmp_path: Path) -> None:
    """A damaged line does not give everything back."""
    path = tmp_path / "budget"
    path.write_text("nothing spent\n")
    with pytest.raises(InvalidInputError):
        Budget(path, 5.0).left_s()


def test_two_at_once_do_not_share_the_same_seconds(tmp_path: Path) -> None:
    """Only as many uses of all that is left are admitted as there is left."""

    def use(_: int) -> bool:
        try:
            Budget(tmp_path / "budget", 3.0).spend("bench", 1.5)
        except BudgetExhaustedError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(use, range(8))) == 2
