"""JSON as models write it: in a fence, after a sentence, with a comma too many, or cut off.

A reader that knows the grammar and forgives what is common, rather than patterns that change the
text: a string of code is never touched. What it forgave is said; whoever reads decides.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

__all__ = ["Repaired", "read_json"]

_BLANK = re.compile(r"\s*")
_FENCE = re.compile(r"^```[A-Za-z0-9_+-]*\s*$", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "True": True, "None": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_MOST_DEPTH = 64


class Repaired(NamedTuple):
    """An object, and what had to be forgiven to read it."""

    value: dict[str, Any]
    repairs: tuple[str, ...]
    truncated: bool
    """Whether the text ended within it; what was read last may be incomplete."""


def read_json(text: str) -> Repaired | None:
    """The object that takes up most of a text, whole or cut off; None if none is there.

    Args:
        text: Anything.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return Repaired(value, (), truncated=False)
    best: Repaired | None = None
    most = 0
    for start in _starts(text):
        reader = _Reader(text, start)
        found = reader.object()
        if found is not None and reader.at - start > most:
            best = Repaired(found, tuple(reader.repairs), reader.truncated)
            most = reader.at - start
    return best


def _starts(text: str) -> list[int]:
    """Where an object may begin: after a fence first, then at the first braces."""
    fences = [match.end() for match in _FENCE.finditer(text)]
    after = [_BLANK.match(text, end).end() for end in fences]  # type: ignore[union-attr]
    braces = [index for index, letter in enumerate(text) if letter == "{"][:8]
    return [at for at in dict.fromkeys([*after, *braces]) if text[at : at + 1] == "{"]


class _StopError(Exception):
    """The text is no JSON from here on."""


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._at = start
        self._depth = 0
        self.truncated = False
        self.repairs: dict[str, None] = {}
        if start or text.strip()[-1:] != "}":
            self.repairs["text around the object"] = None

    def object(self) -> dict[str, Any] | None:
        try:
            value = self._value()
        except _StopError:
            return None
        if self.truncated:
            self.repairs["cut off"] = None
        return value if isinstance(value, dict) else None

    @property
    def at(self) -> int:
        """Up to where it has read."""
        return self._at

    def _peek(self) -> str:
        self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        letter = self._peek()
        if letter == "{":
            return self._members()
        if letter == "[":
            return self._items()
        if letter == '"':
            return self._string()
        if not letter:
            self.truncated = True
            return None
        return self._scalar()

    def _enter(self) -> None:
        self._at += 1
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _StopError

    def _members(self) -> dict[str, Any]:
        self._enter()
        found: dict[str, Any] = {}
        while not self._ends("}"):
            if self._peek() != '"':
                raise _StopError
            key = self._string()
            if self.truncated:
                break
            if self._peek() != ":":
                self.truncated = self._peek() == ""
                if self.truncated:
                    break
                raise _StopError
            self._at += 1
            if not self._peek():
                self.truncated = True
                break
            found[key] = self._value()
        self._depth -= 1
        return found

    def _items(self) -> list[Any]:
        self._enter()
        found: list[Any] = []
        while not self._ends("]"):
            found.append(self._value())
        self._depth -= 1
        return found

    def _ends(self, bracket: str) -> bool:
        """Whether the list is over; steps over a comma, of which there may be one too many."""
        if self.truncated:
            return True
        letter = self._peek()
        if letter == ",":
            self._at += 1
            letter = self._peek()
            if letter == bracket:
                self.repairs["a comma too many"] = None
        if letter == bracket:
            self._at += 1
            return True
        if not letter:
            self.truncated = True
            return True
        if letter in "]},:":
            raise _StopError
        return False

    def _string(self) -> str:
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text):
            letter = self._text[self._at]
            self._at += 1
            if letter == '"':
                return "".join(parts)
            if letter == "\\":
                parts.append(self._escape())
            else:
                if letter < " ":
                    self.repairs["line breaks within a text"] = None
                parts.append(letter)
        self.truncated = True
        return "".join(parts)

    def _escape(self) -> str:
        letter = self._text[self._at : self._at + 1]
        self._at += 1
        if letter == "u":
            digits = self._text[self._at : self._at + 4]
            if re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                self._at += 4
                # Two halves of one letter outside the basic plane.
                low = self._text[self._at : self._at + 6]
                if 0xD800 <= int(digits, 16) < 0xDC00 and re.fullmatch(r"\\u[dD][c-fC-F]..", low):
                    self._at += 6
                    pair = int(digits, 16) - 0xD800 << 10 | int(low[2:], 16) - 0xDC00
                    return chr(0x10000 + pair)
                return chr(int(digits, 16))
            return "\\u"
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter not in '"\\/':
            # As in code that was not escaped: keep what was written.
            self.repairs["a backslash that was not escaped"] = None
            return f"\\{letter}"
        return letter

    def _scalar(self) -> Any:
        number = _NUMBER.match(self._text, self._at)
        if number:
            self._at = number.end()
            text = number[0]
            try:
                return float(text) if any(letter in text for letter in ".eE") else int(text)
            except ValueError as error:  # more digits than Python reads
                raise _StopError from error
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        rest = self._text[self._at :]
        if rest == "-" or any(word.startswith(rest) for word in _WORDS):
            self.truncated = True
            self._at = len(self._text)
            return None
        raise _StopError
