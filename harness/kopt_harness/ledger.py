"""Where completed units of nondeterministic work are kept under stable keys.

kopt's loop is a deterministic program. Whatever it cannot compute again (a measurement, a
proposal of an agent, a drawn seed, a time) goes through a ledger: ``recorded`` returns what
is there under the key, or does the work and keeps it. Running the same program with the same
ledger therefore continues where it stopped and comes to the same decision.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["DictLedger", "Kept", "Ledger", "ScopedLedger", "dumps", "recorded"]


class Ledger(Protocol):
    """Completed units by key."""

    def get(self, key: str) -> dict[str, Any] | None:
        """The value of a completed unit, fresh on each call; None if it is not complete."""
        ...

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keeps a completed unit; a key is written once.

        Args:
            key: Stable name of the unit, parts separated by ``/``.
            value: JSON-able, without NaN or infinities.

        Raises:
            ValueError: If the key is taken already, or the value is not JSON.
        """
        ...

    def scoped(self, prefix: str) -> Ledger:
        """A view of this ledger in which every key starts with ``prefix/``."""
        ...


class Kept(Ledger, Protocol):
    """A ledger that can say what it has."""

    def completed(self) -> tuple[str, ...]:
        """Keys of all completed units."""
        ...


class ScopedLedger:
    """A view of another ledger with a prefix before every key."""

    def __init__(self, inner: Ledger, prefix: str) -> None:
        self._inner = inner
        self._prefix = prefix

    def get(self, key: str) -> dict[str, Any] | None:
        """The value under ``prefix/key``."""
        return self._inner.get(f"{self._prefix}/{key}")

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keeps the value under ``prefix/key``."""
        self._inner.put(f"{self._prefix}/{key}", value)

    def scoped(self, prefix: str) -> Ledger:
        """A view one level further down."""
        return ScopedLedger(self._inner, f"{self._prefix}/{prefix}")


class DictLedger:
    """In memory: for a single command that nobody resumes, and for tests."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        """The value as it would come back from a file."""
        text = self._values.get(key)
        return None if text is None else json.loads(text)

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keeps the value until this object goes away."""
        if key in self._values:
            raise ValueError(f"the unit {key!r} was completed already")
        self._values[key] = dumps(value)

    def scoped(self, prefix: str) -> Ledger:
        """A view with ``prefix/`` before every key."""
        return ScopedLedger(self, prefix)

    def completed(self) -> tuple[str, ...]:
        """Keys of all completed units, in the order of completion."""
        return tuple(self._values)


def dumps(value: dict[str, Any]) -> str:
    """The value as one line of strict JSON; NaN and infinities are a ValueError."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def recorded(ledger: Ledger, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the ledger has under ``key``; else the result of ``compute``, kept there first.

    The first run and a resumed run see the same value: both read it back from the ledger.
    """
    value = ledger.get(key)
    if value is None:
        ledger.put(key, compute())
        value = ledger.get(key)
        assert value is not None
    return value
