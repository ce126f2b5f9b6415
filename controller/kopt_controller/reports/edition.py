"""What one report is about: chapters, and tables of imported results."""

from __future__ import annotations

from typing import NamedTuple

from ..views import Chapter
from .tabular import Table

__all__ = ["Edition"]


class Edition(NamedTuple):
    """Everything that is written."""

    title: str
    generated: str
    """UTC, ISO 8601."""
    version: str
    """Of kopt."""
    chapters: tuple[Chapter, ...]
    foreign: tuple[Table, ...] = ()
    """Of imported results."""
