"""Decisions of the controller: which direction next, and whether to promote.

``conditions`` and ``promotion`` are the gate that nothing passes by itself being clever. The
other modules order directions; to add one, add a module with ``POLICY`` here. How a campaign
searches is another matter: see ``policies``.
"""

from __future__ import annotations

import importlib
import pkgutil

from kopt_harness.errors import NotFoundError

from .conditions import awaits_validation, promotion_conditions, validation_conditions
from .promotion import best_passed, decide, without_answer
from .protocol import Policy

__all__ = [
    "Policy",
    "awaits_validation",
    "best_passed",
    "decide",
    "get_policy",
    "policy_names",
    "promotion_conditions",
    "validation_conditions",
    "without_answer",
]

_HELPERS = frozenset({"conditions", "promotion", "protocol"})
"""Modules of this folder that are no policy."""


def policy_names() -> tuple[str, ...]:
    """Names of all policies, found by listing this folder."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _HELPERS))


def get_policy(name: str) -> Policy:
    """The policy of this name.

    Raises:
        NotFoundError: If there is none; the hint lists the names.
    """
    if name not in policy_names():
        raise NotFoundError(
            f"unknown order of directions {name!r}", hint=f"there are {', '.join(policy_names())}"
        )
    policy: Policy = importlib.import_module(f"{__name__}.{name}").POLICY
    return policy
