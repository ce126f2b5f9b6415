"""What kopt has, as files of other tools: FlashInfer-Trace definitions with their reference."""

from __future__ import annotations

import json
from typing import Any

from .catalog import Catalog
from .files import read_text
from .schema import Axis, Definition, TensorSpec

__all__ = ["definition_document", "definition_json"]


def definition_document(catalog: Catalog, definition: Definition) -> dict[str, Any]:
    """One definition as FlashInfer-Bench reads it, with the reference source inside.

    Only that format's keys are in it: what kopt adds stays here.
    """
    reference = read_text(catalog.folder(definition) / "reference.py", "reference.py")
    return {
        "name": definition.name,
        "description": definition.description,
        "op_type": definition.op_type,
        "tags": list(definition.tags),
        "axes": {name: _axis(axis) for name, axis in definition.axes.items()},
        "constraints": list(definition.constraints),
        "inputs": {name: _tensor(spec) for name, spec in definition.inputs.items()},
        "outputs": {name: _tensor(spec) for name, spec in definition.outputs.items()},
        "reference": reference,
    }


def definition_json(catalog: Catalog, definition: Definition) -> str:
    """``definition_document`` as the text of a file."""
    document = definition_document(catalog, definition)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _axis(axis: Axis) -> dict[str, Any]:
    return axis.model_dump(mode="json", exclude_defaults=True) | {"type": axis.type}


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    shape = list(spec.shape) if spec.shape is not None else None
    document: dict[str, Any] = {"shape": shape, "dtype": spec.dtype}
    if spec.description:
        document["description"] = spec.description
    if spec.optional:
        document["optional"] = True
    return document
