"""What is wrong with values that somebody has given, in the words of kopt.

Each fault of a validation becomes a few words that name the field, the rule and the value; all of
them together are one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

__all__ = ["all_faults", "rule_of"]

_RULES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "extra_forbidden": "is not known",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_type": "must be a table",
    "string_pattern_mismatch": "must fit the pattern {pattern}",
    "string_too_long": "must have at most {max_length} letters",
    "string_too_short": "must have at least {min_length} letters",
    "string_type": "must be text",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
    "tuple_type": "must be a list",
}
"""By the kind of a fault; what is not here keeps the words of whoever has found it."""
_UNSAID = frozenset({"extra_forbidden", "missing"})
"""Faults that are about the name and not about its value."""
_MOST_LETTERS = 80
"""Of a value that is shown."""


def rule_of(fault: Mapping[str, Any]) -> str:
    """The rule that a value breaks, and the value: ``must be at least 2, not 0``.

    Args:
        fault: One entry of ``ValidationError.errors()``.
    """
    rule = _RULES.get(fault["type"])
    if rule is None:
        said = str(fault["msg"]).removeprefix("Value error, ")
        return f"is refused: {said}{_shown(fault['input'], ' (got {})')}"
    words = rule.format_map(fault.get("ctx", {}))
    return words if fault["type"] in _UNSAID else words + _shown(fault["input"], ", not {}")


def all_faults(error: ValidationError) -> str:
    """Every field that is wrong, each once, as one sentence without its end.

    Args:
        error: What the validation has raised.
    """
    said: dict[str, str] = {}
    for fault in error.errors():
        name = ".".join(str(part) for part in fault["loc"])
        said.setdefault(name, f"{name!r} {rule_of(fault)}" if name else rule_of(fault))
    return "; ".join(said.values())


def _shown(value: object, form: str) -> str:
    text = repr(value)
    return form.format(text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 3]}...")
