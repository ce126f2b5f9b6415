"""What kopt has, as files of other tools: FlashInfer-Trace definitions, and whole data sets.

A data set is a folder that flashinfer-bench reads: ``definitions/``, ``workloads/``,
``solutions/`` and ``blob/`` with the inputs as safetensors. Inputs are drawn by the definition's
own first generator, on the CPU, in a process of its own; inputs that all workloads share
(weights, caches) are written once.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import proc
from .catalog import Catalog
from .environ import worker_environment
from .errors import InfraError, InvalidInputError, UnavailableError
from .files import read_text
from .pack import solution_json
from .schema import Axis, Definition, Solution, TensorSpec, Workload

__all__ = ["TraceSet", "definition_document", "definition_json", "write_trace_set"]

INPUTS_TIMEOUT_S = 1800.0
"""Drawing and writing the inputs of all workloads."""
_SEED_BITS = 62


class TraceSet(NamedTuple):
    """A data set that was written."""

    folder: Path
    seed: int
    """The same seed and workloads give the same inputs again."""
    workloads: tuple[str, ...]
    """Uuids."""
    nbytes: int
    """Of the inputs."""


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


def write_trace_set(
    catalog: Catalog,
    definition: Definition,
    workloads: Sequence[Workload],
    folder: Path,
    *,
    solution: Solution | None = None,
    seed: int | None = None,
) -> TraceSet:
    """Writes a data set with one definition.

    Args:
        catalog: where the definition and its generators are.
        definition: what to export.
        workloads: whose inputs are drawn.
        folder: absent or empty.
        solution: written beside them, if given.
        seed: of the inputs; drawn at random by default.

    Raises:
        InvalidInputError: If the folder is in use or cannot be written, or an input is left out
            by the generator, which a data set cannot say.
        UnavailableError: If the package safetensors is missing.
        InfraError: If the generator fails, or takes too long.
    """
    _require_empty(folder)
    seed = secrets.randbits(_SEED_BITS) if seed is None else seed
    place = Path(segment(definition.op_type)) / segment(definition.name)
    answer = _draw(catalog, definition, workloads, folder, seed)
    text = definition_json(catalog, definition)
    _write(folder / "definitions" / place.with_suffix(".json"), text)
    if solution is not None:
        name = Path("solutions") / place / f"{segment(solution.name)}.json"
        _write(folder / name, solution_json(solution))
    lines = [
        json.dumps(
            {
                "definition": definition.name,
                "workload": {
                    "uuid": workload.uuid,
                    "axes": dict(workload.axes),
                    "inputs": answer["inputs"][workload.uuid],
                },
                "solution": None,
                "evaluation": None,
            }
        )
        for workload in workloads
    ]
    # Last: a data set that was not finished has no workloads.
    _write(folder / "workloads" / place.with_suffix(".jsonl"), "\n".join(lines) + "\n")
    uuids = tuple(workload.uuid for workload in workloads)
    return TraceSet(folder, seed, uuids, int(answer["nbytes"]))


def segment(name: str) -> str:
    """A name as one part of a path, whatever its author has put into it."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name) or "-"


def _draw(
    catalog: Catalog,
    definition: Definition,
    workloads: Sequence[Workload],
    folder: Path,
    seed: int,
) -> Mapping[str, Any]:
    """Has the inputs written; says where each is."""
    request = {
        "folder": str(catalog.folder(definition).resolve()),
        "definition": definition.model_dump(mode="json"),
        "workloads": [workload.model_dump(mode="json") for workload in workloads],
        "seed": seed,
        "root": str(folder.resolve()),
        "blob": f"blob/workloads/{segment(definition.op_type)}/{segment(definition.name)}",
    }
    with tempfile.TemporaryDirectory(prefix="kopt-export-") as made:
        answer = Path(made) / "answer.json"
        ended = proc.run(
            [sys.executable, "-P", "-m", "kopt_harness._trace_inputs", answer],
            timeout_s=INPUTS_TIMEOUT_S,
            env=worker_environment(Path(made) / "home"),
            stdin=json.dumps(request).encode(),
        )
        found = json.loads(answer.read_text()) if answer.is_file() else {}
    if missing := found.get("missing"):
        raise UnavailableError(
            f"inputs are written by the package {missing}, which is not installed",
            hint="pip install -e '.[official]'",
        )
    if refused := found.get("refused"):
        raise InvalidInputError(
            f"{definition.kopt.alias}: {refused}",
            hint="the first generator of inputs.py must give every input",
        )
    if not ended.ok or "inputs" not in found:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        what = "took too long" if ended.timed_out else f"failed: {last}"
        raise InfraError(
            f"drawing the inputs of {definition.kopt.alias} {what}",
            hint=f"try fewer workloads; inputs are drawn by {request['folder']}/inputs.py",
        )
    assert isinstance(found, dict)
    return found


def _require_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(
            f"{str(folder)!r} is not an empty folder", hint="name a new folder for the data set"
        )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {str(path)!r}: {error.strerror}", hint="name a writable place"
        ) from error


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
