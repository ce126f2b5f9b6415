"""Numbers and units as profilers print them."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["MAX_VALUE", "Quantity", "parse_number", "parse_quantity", "scale"]

MAX_VALUE = 1e30
"""What no profiler prints; sums and products of smaller numbers stay finite."""
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][+-]?\d{1,3})?")
_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0}
_LARGE = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIME = re.compile(r"(?P<prefix>[nuµm]?)s(?:ec(?:onds?)?)?")
_BYTES = re.compile(r"(?P<prefix>[KkMGT]?)(?:byte|B)s?(?P<per>(?:/\w+)?)")
_PER_SECOND = frozenset({"/s", "/sec", "/second"})
_QUANTITY = re.compile(r"(?P<number>[+-]?[\d.,]+(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s]\S*)?")


class Quantity(NamedTuple):
    """A number in a base unit."""

    value: float
    unit: str
    """``s``, ``byte``, ``byte/s``, ``byte/block``, ``%``, or as printed."""


def parse_number(text: str) -> float | None:
    """The number that the text is; None where it is none, or is absurdly large.

    A comma stands before every third digit, as in ``1,024.5``.
    """
    text = text.strip()
    if not any(c.isdigit() for c in text) or not _NUMBER.fullmatch(text):
        return None
    value = float(text.replace(",", ""))
    return value if abs(value) <= MAX_VALUE else None


def scale(value: float, unit: str) -> Quantity:
    """A printed value in the base unit: ``(36.99, "Kbyte/block")`` is 36990 ``byte/block``.

    Prefixes are powers of 1000, as Nsight Compute prints them.
    """
    if match := _TIME.fullmatch(unit):
        return Quantity(value * _PREFIXES[match["prefix"]], "s")
    if match := _BYTES.fullmatch(unit):
        per = "/s" if match["per"] in _PER_SECOND else match["per"]
        return Quantity(value * _LARGE[match["prefix"]], f"byte{per}")
    return Quantity(value, unit)


def parse_quantity(text: str) -> Quantity | None:
    """Number and unit written together, as ``12.3us`` or ``45 %``; None where it is none."""
    match = _QUANTITY.fullmatch(text.strip())
    value = None if match is None else parse_number(match["number"])
    return None if match is None or value is None else scale(value, match["unit"] or "")
