"""The base of every model: frozen, closed, and documented under each field."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ..version import SCHEMA_VERSION

__all__ = ["SCHEMA_VERSION", "Model"]


class Model(BaseModel):
    """Immutable; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
