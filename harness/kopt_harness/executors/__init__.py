"""Who runs a sweep: this machine, or an engine that spreads it over several.

Each file that ends in an underscore is an executor and defines ``create(place)``.
"""

from __future__ import annotations

import importlib
import pkgutil

from kopt_harness.errors import NotFoundError

from .protocol import Executor, Place, Work, scope_of

__all__ = ["Executor", "Place", "Work", "create_executor", "executor_names", "scope_of"]


def executor_names() -> tuple[str, ...]:
    """Executors that have a file here."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.removesuffix("_") for name in names if name.endswith("_")))


def create_executor(name: str, place: Place) -> Executor:
    """The executor of this name, ready to sweep.

    Raises:
        NotFoundError: No file here is called ``name``.
        UnavailableError: This machine lacks what it needs.
    """
    if name not in executor_names():
        raise NotFoundError(
            f"the executor {name!r} is not here", hint=f"one of {', '.join(executor_names())}"
        )
    found: Executor = importlib.import_module(f"{__name__}.{name}_").create(place)
    return found
