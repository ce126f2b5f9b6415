"""How much a client may still ask for: hard limits that no tool goes past."""

from __future__ import annotations

from typing import Any

from kopt_harness.errors import UsageError

__all__ = ["Budget"]


class Budget:
    """Counts calls and the seconds for which they had the device; not thread-safe."""

    def __init__(self, calls: int | None = None, device_s: float | None = None) -> None:
        """Starts with nothing spent.

        Args:
            calls: Calls of tools that build or measure; None: any number.
            device_s: Seconds of tools that measure, building and checking included; None: any.
        """
        self._calls = calls
        self._device_s = device_s
        self._calls_used = 0
        self._device_s_used = 0.0

    def admit(self, tool: str, *, measures: bool) -> float | None:
        """Counts a call.

        Args:
            tool: Its name, for the message.
            measures: Whether it needs the device.

        Returns:
            Seconds that it may take; None: any.

        Raises:
            UsageError: Nothing is left for it; it is not counted.
        """
        hint = "no further measurement is possible here: hand in the best that was measured"
        if self._calls is not None and self._calls_used >= self._calls:
            raise UsageError(f"{tool} refused: all {self._calls} calls are used up", hint=hint)
        left = None if self._device_s is None else self._device_s - self._device_s_used
        if measures and left is not None and left <= 0:
            raise UsageError(
                f"{tool} refused: all {self._device_s:g} device seconds are used up", hint=hint
            )
        self._calls_used += 1
        return left if measures else None

    def charge(self, device_s: float) -> None:
        """Adds what a call has taken, to its end or to the end of the budget."""
        self._device_s_used += device_s

    def document(self) -> dict[str, Any]:
        """Limits, what is used and what is left; None where there is no limit."""
        return {
            "calls": _line(self._calls, self._calls_used),
            "device_s": _line(self._device_s, round(self._device_s_used, 2)),
        }


def _line(limit: float | None, used: float) -> dict[str, float | None]:
    left = None if limit is None else max(0, round(limit - used, 2))
    return {"limit": limit, "used": used, "left": left}
