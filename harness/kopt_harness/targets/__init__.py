"""Hardware that solutions are built and measured for, one module per target.

To add a target, add a module here that defines ``TARGET`` (see ``protocol.Target``).
Nothing in this package loads torch or CUDA.
"""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches
from functools import cache

from ..errors import InvalidInputError, NotFoundError, UnavailableError
from ..schema import Solution
from .protocol import Figure, Presence, Target

__all__ = [
    "Figure",
    "Presence",
    "Target",
    "best_target",
    "get_target",
    "list_targets",
    "require_present",
    "runs_on",
]

_HELPERS = frozenset({"cuda", "protocol"})
"""Modules of this folder that are no target."""


@cache
def list_targets() -> tuple[Target, ...]:
    """All targets, GPUs first, by name, simulated ones last; found by listing this folder."""
    names = [m.name for m in pkgutil.iter_modules(__path__) if m.name not in _HELPERS]
    found = [_load(name) for name in names if not name.startswith("_")]
    return tuple(sorted(found, key=lambda t: (bool(t.caveat), t.kind == "cpu", t.name)))


def _load(name: str) -> Target:
    module = importlib.import_module(f"{__name__}.{name}")
    target = getattr(module, "TARGET", None)
    if not isinstance(target, Target) or target.name != name:
        raise InvalidInputError(
            f"the target module {name!r} defines no TARGET of that name",
            hint="define TARGET, an object of the protocol kopt_harness.targets.Target",
        )
    return target


def get_target(name: str) -> Target:
    """The target of this name.

    Raises:
        NotFoundError: If there is none; the hint lists the names.
    """
    by_name = {target.name: target for target in list_targets()}
    if name in by_name:
        return by_name[name]
    close = get_close_matches(name, by_name, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    raise NotFoundError(
        f"unknown target {name!r}", hint=f"{guess}targets are {', '.join(sorted(by_name))}"
    )


def best_target() -> Target:
    """The first GPU target that is present, else ``cpu``; never one with a caveat."""
    return next(target for target in list_targets() if target.present().ok)


def runs_on(solution: Solution, target: Target) -> bool:
    """Whether its author wrote it for this target, or for all of this kind."""
    names = {name.lower() for name in solution.spec.target_hardware}
    return bool(names & {target.name, target.kind}) or any(target.name in n for n in names)


def require_present(target: Target) -> Presence:
    """The device of a target.

    Raises:
        UnavailableError: If this machine does not have it; says why.
    """
    presence = target.present()
    if presence.ok:
        return presence
    here = ", ".join(t.name for t in list_targets() if t.present().ok)
    build = "; kopt build cross-compiles for it" if target.kind == "cuda" else ""
    raise UnavailableError(
        f"the target {target.name!r} is not here: {presence.reason}",
        hint=f"targets here: {here}{build}",
    )
