"""Of the documents and records that this kopt writes and reads; without any other import."""

from __future__ import annotations

__all__ = ["SCHEMA_VERSION"]

SCHEMA_VERSION = 1
"""Version written as ``schema`` into every JSON document and journal record."""
