"""What a client is shown of a command's document.

Removed is what could tell a candidate its answers (expected elements, and the finite elements
that it gave in their place; seeds), and what only fills a context: raw samples, the isolation, the
environment but for what results depend on.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["public"]

_SECRET = frozenset({"expected", "seed", "seeds", "inputs_seed"})
_BULK = frozenset({"isolation", "samples_ns", "rules"})
_ENVIRONMENT = ("epoch", "device", "driver", "timer", "cache", "kopt")
_ELEMENT = re.compile(r"expected (?P<expected>[^\s,]+), got (?P<actual>[^\s,;]+)")
_NOT_FINITE = frozenset({"nan", "inf", "-inf"})


def public(document: dict[str, Any]) -> dict[str, Any]:
    """A copy of the document without secrets and bulk."""
    shown: dict[str, Any] = _shown(document)
    environment = document.get("environment")
    if isinstance(environment, dict):
        shown["environment"] = {name: environment.get(name) for name in _ENVIRONMENT}
    return shown


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _shown(_actual(inner) if key == "actual" else inner)
            for key, inner in value.items()
            if key not in _SECRET and key not in _BULK
        }
    if isinstance(value, list):
        return [_shown(inner) for inner in value]
    if isinstance(value, str):
        return _ELEMENT.sub(_element, value)
    return value


def _actual(value: Any) -> Any:
    """What a candidate gave, where that says nothing of what was expected."""
    return value if value in _NOT_FINITE else None


def _element(found: re.Match[str]) -> str:
    if found["expected"].startswith("("):  # a shape is no secret
        return found[0]
    return f"got {found['actual']}" if found["actual"] in _NOT_FINITE else "values withheld"
