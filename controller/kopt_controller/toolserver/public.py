"""What a client is shown of a command's document.

Removed is what could tell a candidate its answers (expected elements, and the finite elements
that it gave in their place; seeds), and what only fills a context: raw samples, the isolation, the
environment but for what results depend on. Comparators of definitions phrase their sentences as
they like, so in a sentence of theirs every number that is not whole is withheld.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["public"]

_SECRET = frozenset({"expected", "seed", "seeds", "inputs_seed"})
_BULK = frozenset({"isolation", "samples_ns", "rules"})
_ENVIRONMENT = ("epoch", "device", "driver", "timer", "cache", "kopt")
_NOT_FINITE = frozenset({"nan", "inf", "-inf"})
_COMPARED = frozenset(
    {
        "missing-member",
        "non-finite-output",
        "null-kernel-passes",
        "reference-not-finite",
        "wrong-answer",
        "wrong-count",
        "wrong-member",
        "wrong-output",
        "wrong-padding",
        "wrong-scores",
    }
)
"""Codes of this project's comparators; what carries another code was compared with nothing."""
_FORM = re.compile(r"unknown-output|missing-output|not-a-tensor|wrong-(shape|dtype|device|layout)")
_PAIR = re.compile(r"expected [^\s,;]+(, got (?P<actual>[^\s,;]+))?")
_FRACTION = re.compile(r"(?<![\w.])[-+]?(\d+\.\d*|\.\d+|\d+(?=e[-+]?\d))(e[-+]?\d+)?(?!\w)")
_WITHHELD = "(withheld)"


def public(document: dict[str, Any]) -> dict[str, Any]:
    """A copy of the document without secrets and bulk."""
    shown: dict[str, Any] = _shown(document)
    environment = document.get("environment")
    if isinstance(environment, dict):
        shown["environment"] = {name: environment.get(name) for name in _ENVIRONMENT}
    return shown


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    shown = {
        key: _shown(inner)
        for key, inner in value.items()
        if key not in _SECRET and key not in _BULK
    }
    if "actual" in shown and shown["actual"] not in _NOT_FINITE:
        shown["actual"] = None
    if isinstance(shown.get("detail"), str) and _was_compared(value):
        shown["detail"] = _withheld(shown["detail"])
    return shown


def _was_compared(owner: dict[str, Any]) -> bool:
    """Whether the detail of a reason, or of one output, may hold values of a reference."""
    code = owner.get("code")
    if code is None:
        return True
    # A definition may bring codes of its own for answers that are wrong.
    return code in _COMPARED or (str(code).startswith("wrong-") and not _FORM.fullmatch(str(code)))


def _withheld(text: str) -> str:
    def pair(found: re.Match[str]) -> str:
        actual = found["actual"]
        return f"got {actual}" if actual in _NOT_FINITE else f"values {_WITHHELD}"

    return _FRACTION.sub(_WITHHELD, _PAIR.sub(pair, text))
