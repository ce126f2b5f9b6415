"""Builders, found by listing this folder."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from kopt_harness.errors import InvalidInputError, NotFoundError

from .protocol import Builder

__all__ = ["get_builder", "list_builders"]

_NOT_LANGUAGES = frozenset({"loading", "protocol", "worker"})


@cache
def list_builders() -> tuple[Builder, ...]:
    """All builders, by language."""
    names = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)])]
    languages = [n for n in names if not n.startswith("_") and n not in _NOT_LANGUAGES]
    return tuple(_load(name) for name in sorted(languages))


def _load(name: str) -> Builder:
    builder = getattr(importlib.import_module(f"{__package__}.{name}"), "BUILDER", None)
    if not isinstance(builder, Builder) or builder.language != name:
        raise InvalidInputError(
            f"the builder module {name!r} defines no BUILDER for that language",
            hint="define BUILDER, an object of the protocol kopt_harness.build.protocol.Builder",
        )
    return builder


def get_builder(language: str) -> Builder:
    """The builder of a language.

    Raises:
        NotFoundError: If there is none; the hint lists the languages.
    """
    for builder in list_builders():
        if builder.language == language:
            return builder
    names = ", ".join(builder.language for builder in list_builders())
    raise NotFoundError(f"no builder for the language {language!r}", hint=f"languages: {names}")
