"""Stall, cycle, regression, plateau, diminishing returns: seen, and drawn consequences from."""

from typing import Any

from kopt_controller.memory import Memory, RoundMemory
from kopt_controller.supervisor import supervise


def _round(
    direction: str = "tiling",
    *,
    passed: bool = False,
    ratio: float | None = None,
    promoted: bool = False,
    verdict: str = "pass",
    trials: int = 1,
) -> RoundMemory:
    trial: dict[str, Any] = {
        "name": "x",
        "sha256": "aa",
        "family": None,
        "settings": {},
        "verdict": verdict,
        "passed": passed or promoted,
        "ratio": ratio,
    }
    return RoundMemory.model_validate(
        {
            "run": "r",
            "round": 1,
            "direction": direction,
            "bottleneck": "memory",
            "regime": "n=1",
            "incumbent": "00",
            "label": "promote" if promoted else "archive",
            "code": "x",
            "ratio": ratio,
            "promoted": promoted,
            "swept": None,
            "trials": [trial] * trials,
        }
    )


def _kinds(*rounds: RoundMemory) -> set[str]:
    return {signal.kind for signal in supervise(Memory(rounds=rounds)).signals}


def test_an_empty_history_has_nothing_to_say() -> None:
    """The first round is free."""
    advice = supervise(Memory())
    assert (advice.signals, advice.blocked, advice.ask_person) == ((), {}, False)


def test_a_stall_asks_for_a_person() -> None:
    """Three rounds in which nothing passed."""
    rounds = [_round(d, ratio=1.5) for d in ("a", "b", "c")]
    assert "stall" not in _kinds(*rounds[:2])
    assert "stall" in _kinds(*rounds)
    assert supervise(Memory(rounds=tuple(rounds))).ask_person


def test_a_cycle_blocks_its_direction() -> None:
    """The same direction twice in a row for nothing."""
    advice = supervise(Memory(rounds=(_round("a"), _round("b", passed=True), _round("b"))))
    assert "b" in advice.blocked
    assert "a" not in advice.blocked


def test_a_regression_blocks_also_when_rounds_lie_between() -> None:
    """Slower or wrong every time; a machine failure does not count."""
    slower = _round("a", ratio=1.3)
    wrong = _round("a", verdict="fail")
    infra = _round("a", verdict="infra")
    between = _round("b", passed=True, ratio=0.99)
    assert "a" in supervise(Memory(rounds=(slower, between, wrong, between))).blocked
    assert "a" not in supervise(Memory(rounds=(slower, between, infra, between))).blocked


def test_a_promotion_lifts_the_blocks() -> None:
    """With another incumbent the same direction may pay again; it is even recommended."""
    rounds = (_round("a", ratio=1.3), _round("a", ratio=1.2))
    assert "a" in supervise(Memory(rounds=rounds)).blocked
    after = supervise(Memory(rounds=(*rounds, _round("b", ratio=0.8, promoted=True))))
    assert after.blocked == {}
    assert after.recommended == ("b",)


def test_a_plateau_is_passing_without_promotion() -> None:
    """Candidates are right and no faster, four rounds long."""
    rounds = [_round(d, passed=True, ratio=0.99) for d in "abcd"]
    assert "plateau" in _kinds(*rounds)
    assert "plateau" not in _kinds(*rounds[:3])
    assert "plateau" not in _kinds(*rounds[:2], _round("e", ratio=0.5, promoted=True), *rounds[2:])


def test_rounds_without_candidates_are_no_stall() -> None:
    """Nothing was tried: no stall, no block, but a person is asked for."""
    empty = [_round("a", trials=0)] * 4
    advice = supervise(Memory(rounds=tuple(empty)))
    assert {signal.kind for signal in advice.signals} == {"exhausted"}
    assert advice.blocked == {}
    assert advice.ask_person
    assert _kinds(empty[0]) == set()
    failed = [_round(d, ratio=1.5) for d in ("a", "b", "c")]
    assert "stall" not in _kinds(*failed[:2], *empty)
    assert "stall" in _kinds(failed[0], empty[0], *failed[1:]), "what lies between ends no stall"


def test_what_waits_for_a_person_is_no_plateau() -> None:
    """With ``ask`` nothing moves; a round that found something better has succeeded."""
    waiting = _round("a", passed=True, ratio=0.7).model_copy(update={"label": "promote"})
    rounds = [waiting, *(_round(d, passed=True, ratio=0.99) for d in "bcd")]
    assert "plateau" not in _kinds(*rounds)
    assert "plateau" in _kinds(*rounds[1:], _round("e", passed=True, ratio=0.99))
    assert "cycle" not in _kinds(waiting, waiting)


def test_shrinking_gains_are_diminishing_returns() -> None:
    """Each promotion wins less than the one before, and the last next to nothing."""
    gains = [
        _round(d, ratio=r, promoted=True) for d, r in zip("abc", (0.7, 0.9, 0.98), strict=True)
    ]
    assert "diminishing-returns" in _kinds(*gains)
    assert "diminishing-returns" not in _kinds(*gains[::-1])
