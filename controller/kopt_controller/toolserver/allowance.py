"""How much a client may still ask for: hard limits that no tool goes past."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

from ..budget import Budget, BudgetExhaustedError

__all__ = ["Allowance"]


class Allowance:
    """Calls, and the seconds that they took, in a file: a server that is started anew goes on."""

    def __init__(self, file: Path, calls: int | None = None, device_s: float | None = None) -> None:
        """Starts with what the file says was used.

        Args:
            file: Of the budget; made with the first use.
            calls: Calls of tools that build or measure; None: any number.
            device_s: Seconds of these tools together; None: any.
        """
        self._calls = calls
        self._device_s = device_s
        self._budget = Budget(file, inf if device_s is None else device_s)

    @contextmanager
    def charged(self, tool: str) -> Iterator[float | None]:
        """Counts a call and what the body takes; gives the seconds that it has, None for any.

        Args:
            tool: Its name.

        Raises:
            BudgetExhaustedError: Nothing is left; the body does not run and nothing is counted.
        """
        if self._calls is not None and len(self._budget.uses()) >= self._calls:
            raise BudgetExhaustedError(
                f"no {tool!r}: all {self._calls} calls are used",
                hint="hand in what there is; kopt measures all drafts itself",
            )
        with self._budget.charged(tool) as left_s:
            yield None if left_s == inf else left_s

    def document(self) -> dict[str, Any]:
        """Limits, what is used and what is left; None where there is no limit."""
        return {
            "calls": _line(self._calls, len(self._budget.uses())),
            "device_s": _line(self._device_s, round(self._budget.spent_s(), 2)),
        }


def _line(limit: float | None, used: float) -> dict[str, float | None]:
    left = None if limit is None else max(0, round(limit - used, 2))
    return {"limit": limit, "used": used, "left": left}
