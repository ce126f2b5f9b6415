"""Packages of the extra ``report``, loaded by what needs them when it does."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kopt_harness.errors import UnavailableError

__all__ = ["load"]


def load(module: str, what: str) -> Any:
    """A module of an optional package.

    Args:
        module: Its name.
        what: What needs it, for the message.

    Raises:
        UnavailableError: If the package is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise UnavailableError(
            f"{what} needs {package!r}, which is not installed",
            hint="install kopt with its extra: pip install -e '.[report]'",
        ) from error
