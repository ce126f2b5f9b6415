"""Trying again where the machine failed, and never where a solution did.

Within a command: a fault that is known to pass (``TransientError``: a judge that was killed, a
process that could not be started) is tried again a few times, with a pause. Across commands:
``Attempts`` is a view of a journal in which results with the verdict ``infra`` can be made again.
Every other verdict stays what it was first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from .errors import TransientError
from .ledger import Kept, Ledger, ScopedLedger

__all__ = ["TRIES", "Attempts", "trying_again"]

TRIES = 3
"""Of one unit of work, the first included."""
_PAUSE_S = 0.5
_MAX_PAUSE_S = 8.0
_AGAIN = "/again-"
"""Between the key of a unit and the number of a later attempt."""
_T = TypeVar("_T")


def trying_again(
    work: Callable[[], _T], failed: Callable[[TransientError], None], *, pause_s: float = _PAUSE_S
) -> _T:
    """The result of ``work``, tried again after faults that pass.

    Args:
        work: What is done; nothing of a failed try is left when it is called again.
        failed: Called after each failed try but the last: cleans up, and says so.
        pause_s: Before the second try; then twice as long each time.

    Raises:
        TransientError: The last try failed, too.
    """
    tries = Retrying(
        retry=retry_if_exception_type(TransientError),
        stop=stop_after_attempt(TRIES),
        wait=wait_exponential(multiplier=pause_s, max=_MAX_PAUSE_S),
        reraise=True,
    )
    for attempt in tries:
        with attempt:
            return work()
        outcome = attempt.retry_state.outcome
        error = None if outcome is None else outcome.exception()
        if isinstance(error, TransientError) and attempt.retry_state.attempt_number < TRIES:
            failed(error)
    raise AssertionError("the last try returns or raises")


class Attempts:
    """A ledger whose ``infra`` results may be made again; the last attempt at a unit counts."""

    def __init__(self, inner: Kept, *, again: bool) -> None:
        """Looks through to another ledger.

        Args:
            inner: Where everything is kept.
            again: Whether units that ended as ``infra`` before count as missing.
        """
        self._inner = inner
        self._again = again
        self._made: set[str] = set()

    def get(self, key: str) -> dict[str, Any] | None:
        """The value of the last attempt."""
        value, _ = self._last(key)
        hidden = self._again and key not in self._made and _is_infra(value)
        return None if hidden else value

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keeps a value, beside an earlier one if that is ``infra``."""
        last, number = self._last(key)
        self._made.add(key)
        if last is None or not (self._again and _is_infra(last)):
            self._inner.put(key, value)
        else:
            self._inner.put(_again(key, number + 1), value)

    def scoped(self, prefix: str) -> Ledger:
        """A view with ``prefix/`` before every key."""
        return ScopedLedger(self, prefix)

    def completed(self) -> tuple[str, ...]:
        """Keys of all units that ``get`` has a value of."""
        keys = (key for key in self._inner.completed() if _AGAIN not in key)
        return tuple(key for key in keys if self.get(key) is not None)

    def _last(self, key: str) -> tuple[dict[str, Any] | None, int]:
        value, number = self._inner.get(key), 0
        while value is not None and _is_infra(value):
            later = self._inner.get(_again(key, number + 1))
            if later is None:
                break
            value, number = later, number + 1
        return value, number


def _again(key: str, number: int) -> str:
    return f"{key}{_AGAIN}{number}"


def _is_infra(value: dict[str, Any] | None) -> bool:
    return value is not None and value.get("verdict") == "infra"
