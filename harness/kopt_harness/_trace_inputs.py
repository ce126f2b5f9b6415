"""Draws inputs and writes them as safetensors; a process of its own, started by ``export``.

``python -P -m kopt_harness._trace_inputs ANSWER`` reads a request from standard input and writes
a JSON file: where each input of each workload is, or why there are none.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kopt_harness.schema import Definition
from kopt_harness.worker.pool import load_module

__all__ = ["main"]


class _RefusedError(Exception):
    """The generator gave what a data set cannot hold."""


class _Writer:
    """Writes the inputs of one definition."""

    def __init__(self, request: Mapping[str, Any], save: Any) -> None:
        self._definition = Definition.model_validate(request["definition"])
        self._inputs: Any = load_module(Path(request["folder"]), "inputs") or _no_inputs()
        self._root, self._blob = Path(request["root"]), request["blob"]
        self._save = save
        self._rng = torch.Generator().manual_seed(request["seed"])
        self._generator = next(iter(self._inputs.GENERATORS.values()))
        self._static: dict[Any, dict[str, Any]] = {}
        self._static_specs: dict[Any, dict[str, Any]] = {}
        self.nbytes = 0

    def write(self, uuid: str, axes: Mapping[str, int]) -> dict[str, Any]:
        """Draws and writes one workload; where each input is, in call order."""
        bound = self._definition.bind(axes)
        static, specs = self._shared(axes, bound)
        keywords = {"static": static} if static else {}
        drawn = self._generator.draw(bound, self._rng, **keywords)
        values = {n: drawn[n] for n in self._definition.inputs if n not in static}
        tensors = {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}
        specs = specs | self._tensors(tensors, uuid)
        for name, value in values.items():
            if value is None:
                raise _RefusedError(f"the input {name!r} is None on workload {uuid}")
            if name not in tensors:
                specs[name] = {"type": "scalar", "value": value}
        return {name: specs[name] for name in self._definition.inputs}

    def _shared(
        self, axes: Mapping[str, int], bound: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs that stay the same over workloads of these shapes, written once."""
        names = self._definition.kopt.static_inputs
        if not names:
            return {}, {}
        shapes = {s.name: s.shape for s in self._definition.input_shapes(axes)}
        key = tuple(shapes[name] for name in names)
        if key not in self._static:
            self._static[key] = self._inputs.draw_static(bound, self._rng)
            number = len(self._static_specs)
            self._static_specs[key] = self._tensors(self._static[key], f"static{number}")
        return self._static[key], self._static_specs[key]

    def _tensors(self, tensors: Mapping[str, Any], name: str) -> dict[str, Any]:
        path = f"{self._blob}/{name}.safetensors"
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        # A view would be written with all of its storage, or refused.
        whole = {n: value.contiguous().clone() for n, value in tensors.items()}
        self.nbytes += sum(value.nbytes for value in whole.values())
        self._save(whole, self._root / path)
        return {n: {"type": "safetensors", "path": path, "tensor_key": n} for n in whole}


def _no_inputs() -> Any:
    raise _RefusedError("there is no inputs.py")


def main() -> None:
    """Does what the request says."""
    answer = Path(sys.argv[1])
    request = json.load(sys.stdin)
    try:
        save = importlib.import_module("safetensors.torch").save_file
    except ModuleNotFoundError as error:
        answer.write_text(json.dumps({"missing": error.name or "safetensors"}))
        return
    try:
        writer = _Writer(request, save)
        inputs = {w["uuid"]: writer.write(w["uuid"], w["axes"]) for w in request["workloads"]}
    except _RefusedError as error:
        answer.write_text(json.dumps({"refused": str(error)}))
        return
    answer.write_text(json.dumps({"inputs": inputs, "nbytes": writer.nbytes}))


if __name__ == "__main__":
    main()
