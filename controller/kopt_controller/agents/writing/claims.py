"""What programs and endpoints say, read as the claims that they are.

Of their numbers only those are taken that can be: a cost that is negative, not finite or beyond all
reason is no cost. Their texts reach terminals, pages and tables, so nothing stays in them that
a terminal would obey or that would turn a line around.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

__all__ = [
    "MOST_DOLLARS",
    "MOST_SECONDS",
    "MOST_TOKENS",
    "Numbers",
    "fields",
    "harmless",
    "harmless_all",
    "is_number",
    "listed",
    "table",
    "text",
    "unpaired",
]

MOST_TOKENS = 10**12
"""In one number of a call; more is no count of tokens."""
MOST_DOLLARS = 10.0**6
"""The same of dollars."""
MOST_SECONDS = 10.0**11
"""Since 1970: some thousand years, in which no limit ends."""

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls but tab and line break, what turns the direction of writing, halves of a letter."""


def table(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def fields(value: Any) -> Mapping[str, Any]:
    """An object, or the fields of one of a package that has checked none of them."""
    return vars(value) if hasattr(value, "__dict__") else table(value)


def listed(value: Any) -> Sequence[Any]:
    """A list, or an empty one: the letters of a text are none."""
    return value if isinstance(value, list | tuple) else ()


def text(value: Any) -> str:
    """A text that may be shown, or an empty one."""
    return harmless(value) if isinstance(value, str) else ""


def harmless(value: str) -> str:
    """The text with its control characters spelt out, so that nothing obeys them.

    Args:
        value: Of anybody.
    """
    return _OBEYED.sub(_spelt, value.replace("\r\n", "\n"))


def _spelt(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def harmless_all(value: Any) -> Any:
    """The same for every text in a JSON value."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        return {harmless(str(key)): harmless_all(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [harmless_all(each) for each in value]
    return value


def unpaired(value: str) -> str:
    """A text that UTF-8 can hold: halves of a letter are joined, or replaced where one lacks."""
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def is_number(value: Any, most: float) -> TypeGuard[float]:
    """Whether it is a number from 0 to a cap; what is not finite is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


class Numbers:
    """Numbers that somebody has said; those that cannot be are left out and named."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        """Takes them as they were said.

        Args:
            said: By name.
        """
        self._said = said
        self.dropped: list[str] = []
        """Names of those that were left out."""

    def tokens(self, *names: str) -> int:
        """The sum of counts; one that is not there is 0."""
        return sum(int(self._taken(name, MOST_TOKENS) or 0) for name in names)

    def dollars(self, name: str) -> float | None:
        """An amount; null where it is not there, or cannot be."""
        found = self._taken(name, MOST_DOLLARS)
        return None if found is None else float(found)

    def _taken(self, name: str, most: float) -> float | None:
        value = self._said.get(name)
        if value is None:
            return None
        if not is_number(value, most):
            self.dropped.append(name)
            return None
        return value
