"""Things by name, each with the number of its last change: who asks gets what is new to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Board"]


class Board:
    """Documents by name, such as ``candidate/3/80e47459fdc0``."""

    def __init__(self) -> None:
        self.revision = 0
        """Of the last change."""
        self._values: dict[str, dict[str, Any]] = {}
        self._changed: dict[str, int] = {}

    def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps a document; what is equal to the one before is no change."""
        if self._values.get(name) == value:
            return
        self.revision += 1
        self._values[name] = {**value}
        # Kept in the order of change, so that a look for news stops at the first old one.
        self._changed.pop(name, None)
        self._changed[name] = self.revision

    def update(self, key: str, /, **fields: Any) -> None:
        """Changes fields of a document that is there, or begins one."""
        self.put(key, {**self._values.get(key, {}), **fields})

    def get(self, name: str) -> dict[str, Any]:
        """A document; empty where there is none."""
        return self._values.get(name, {})

    def named(self, prefix: str) -> Iterator[dict[str, Any]]:
        """Documents whose names begin so, in the order in which they began."""
        return (value for name, value in self._values.items() if name.startswith(prefix))

    def since(self, revision: int) -> dict[str, dict[str, Any]]:
        """What has changed after a revision."""
        found = []
        for name in reversed(self._changed):
            if self._changed[name] <= revision:
                break
            found.append(name)
        return {name: self._values[name] for name in reversed(found)}

    def whole(self) -> dict[str, dict[str, Any]]:
        """Everything, in the order in which it began."""
        return dict(self._values)
