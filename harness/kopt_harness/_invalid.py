"""One clear sentence out of a pydantic error."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel, ValidationError

from .errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["invalid_input"]


def invalid_input(
    error: ValidationError, where: str, model: type[BaseModel], *, hint: str = ""
) -> InvalidInputError:
    """Our error for the first problem that pydantic found.

    Args:
        error: What pydantic raised.
        where: File or object, as the user knows it.
        model: The model that was read, for the names of known keys.
        hint: Used where the problem itself suggests nothing better.
    """
    errors = error.errors()
    # A misspelt key is also a missing one: the misspelling is what helps.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    key = ".".join(str(part) for part in first["loc"])
    kind = first["type"]
    if kind == "extra_forbidden":
        known = _known_keys(model, first["loc"][:-1])
        close = get_close_matches(str(first["loc"][-1]), known, n=1)
        guess = f"did you mean {close[0]!r}? " if close else ""
        hint = f"{guess}known keys are {', '.join(known)}" if known else hint
        return InvalidInputError(f"{where}: unknown key {key!r}", hint=hint)
    if kind == "missing":
        return InvalidInputError(f"{where}: {key!r} is missing", hint=hint or f"add {key}")
    message = first["msg"].removeprefix("Value error, ")
    value = first["input"]
    shown = f" (got {value!r})" if isinstance(value, str | int | float | bool) else ""
    at = f" {key!r}:" if key else ""
    already = isinstance(value, str) and repr(value) in message
    return InvalidInputError(f"{where}:{at} {message}{'' if already else shown}", hint=hint)


def _known_keys(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Field names of the model that lies at ``path`` inside ``model``."""
    current: type[BaseModel] | None = model
    for part in path:
        if current is None:
            return []
        if not isinstance(part, str) or part not in current.model_fields:
            continue
        current = _inner_model(current.model_fields[part].annotation)
    return sorted(current.model_fields) if current is not None else []


def _inner_model(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _inner_model(argument)
        if found is not None:
            return found
    return None
