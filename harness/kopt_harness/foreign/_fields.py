"""Taking values out of entries that somebody else wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["EntryError", "number", "plain", "rest", "table", "text", "whole"]


class EntryError(ValueError):
    """An entry is not what its format says; the message names the field."""


def number(entry: Mapping[str, Any], key: str) -> float | None:
    """A finite number; None where the field is absent or null."""
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EntryError(f"{key} is {_shown(value)}, not a number")
    try:
        found = float(value)
    except OverflowError:
        raise EntryError(f"{key} is too large") from None
    if not math.isfinite(found):
        raise EntryError(f"{key} is {found}, not a finite number")
    return found


def whole(entry: Mapping[str, Any], key: str) -> int | None:
    """A whole number that is not negative; None where the field is absent or null."""
    value = number(entry, key)
    if value is None:
        return None
    if value < 0 or value != int(value):
        raise EntryError(f"{key} is {_shown(entry[key])}, not a count")
    return int(value)


def text(entry: Mapping[str, Any], key: str) -> str:
    """A string; empty where the field is absent or null."""
    value = entry.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise EntryError(f"{key} is {_shown(value)}, not a text")
    return value


def table(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object; empty where the field is absent or null."""
    value = entry.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise EntryError(f"{key} is {_shown(value)}, not an object")
    return value


def rest(entry: Mapping[str, Any], *used: str) -> dict[str, Any]:
    """The fields that were not used, ready to be stored."""
    return {key: plain(value) for key, value in entry.items() if key not in used}


def plain(value: Any) -> Any:
    """The value as strict JSON has it: NaN and infinities become texts."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
