"""What is tried again, and what never is."""

from __future__ import annotations

import pytest
from kopt_harness.attempts import TRIES, Attempts, trying_again
from kopt_harness.errors import InfraError, TransientError
from kopt_harness.ledger import DictLedger


def test_a_fault_that_passes_is_tried_again(tmp_path) -> None:
    """So often and no more; each failure is told once, the last one raised."""
    calls: list[int] = []
    told: list[str] = []

    def work(good_at: int) -> str:
        calls.append(good_at)
        if len(calls) < good_at:
            raise TransientError(f"judge {len(calls)} was killed")
        return "done"

    assert trying_again(lambda: work(3), lambda e: told.append(e.message), pause_s=0) == "done"
    assert told == ["judge 1 was killed", "judge 2 was killed"]
    calls.clear()
    with pytest.raises(TransientError, match=f"judge {TRIES} was killed"):
        trying_again(lambda: work(99), lambda e: None, pause_s=0)
    assert len(calls) == TRIES


@pytest.mark.parametrize("error", [InfraError("disk full"), KeyboardInterrupt(), ValueError("x")])
def test_everything_else_is_not(error: BaseException) -> None:
    """A full disk does not empty itself, and who interrupts does not want it again."""
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        trying_again(work, lambda e: None, pause_s=0)
    assert calls == [1]


def test_infra_is_made_again_and_a_verdict_is_not() -> None:
    """All attempts stay; the last one counts, also for who looks later."""
    inner = DictLedger()
    first = Attempts(inner, again=False).scoped("s")
    first.put("a", {"verdict": "infra", "n": 1})
    first.put("b", {"verdict": "fail"})
    assert first.get("a") == {"verdict": "infra", "n": 1}
    second = Attempts(inner, again=True).scoped("s")
    assert second.get("a") is None
    assert second.get("b") == {"verdict": "fail"}
    second.put("a", {"verdict": "infra", "n": 2})
    assert second.get("a") == {"verdict": "infra", "n": 2}, "what this command made counts"
    with pytest.raises(ValueError, match="completed"):
        second.put("b", {"verdict": "pass"})
    third = Attempts(inner, again=True).scoped("s")
    assert third.get("a") is None
    third.put("a", {"verdict": "pass"})
    for again in (True, False):
        assert Attempts(inner, again=again).get("s/a") == {"verdict": "pass"}
    with pytest.raises(ValueError, match="completed"):
        Attempts(inner, again=False).put("s/a", {"verdict": "pass"})
    assert inner.completed() == ("s/a", "s/b", "s/a/again-1", "s/a/again-2")
