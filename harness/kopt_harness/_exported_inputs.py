"""The inputs of a data set, in the form of a definition's ``inputs.py``; judges load it.

So the judge checks and times a solution on exactly the inputs that another tool has read.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kopt_harness.worker.pool import load_module

__all__ = ["ExportedInputs", "Generator"]


class Generator(NamedTuple):
    """A named source of inputs."""

    name: str
    kind: str
    draw: Any


class ExportedInputs:
    """Gives the exported inputs of the workload that is bound, as often as it is asked."""

    def __init__(self, root: Path, definition: str, static: Sequence[str], original: Path) -> None:
        """Reads where everything is.

        Args:
            root: of the data set.
            definition: its name.
            static: inputs that sets of a session share.
            original: folder of the definition, whose ``vary`` stays in use.
        """
        self._root = root
        self._static = tuple(static)
        self._specs = dict(_workloads(root, definition))
        self._uuid = ""
        self.generators = {"exported": Generator("exported", "contest", self.draw)}
        self.vary = getattr(load_module(original, "inputs"), "vary", None)

    def bind(self, uuid: str) -> None:
        """Goes to a workload."""
        self._uuid = uuid

    def draw(self, axes: Mapping[str, int], rng: Any, static: Any = None) -> dict[str, Any]:
        """Every input but the static ones, on the device of ``rng``."""
        del axes, static
        specs = self._specs[self._uuid]
        return self._load({n: s for n, s in specs.items() if n not in self._static}, rng.device)

    def draw_static(self, axes: Mapping[str, int], rng: Any) -> dict[str, Any]:
        """The static inputs."""
        del axes
        return self._load({n: self._specs[self._uuid][n] for n in self._static}, rng.device)

    def _load(self, specs: Mapping[str, Any], device: Any) -> dict[str, Any]:
        safe_open = importlib.import_module("safetensors").safe_open
        values = {n: spec["value"] for n, spec in specs.items() if spec["type"] == "scalar"}
        for name, spec in specs.items():
            if spec["type"] == "safetensors":
                with safe_open(self._root / spec["path"], framework="pt") as file:
                    values[name] = file.get_tensor(spec["tensor_key"]).to(device)
        return values


def _workloads(root: Path, definition: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((root / "workloads").rglob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["definition"] == definition:
                yield record["workload"]["uuid"], record["workload"]["inputs"]
