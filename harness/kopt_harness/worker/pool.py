"""Secret input sets of one workload, and their expected outputs.

Only the judge process imports this. Sets are drawn by generators of the definition from
a generator that no other process can know; expected outputs are computed on first use
and never leave this process.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from kopt_harness.errors import InvalidInputError
from kopt_harness.schema import Definition

from .shelf import Shelf, ShelvedSet

__all__ = ["InputSet", "Pool", "load_module"]


def load_module(folder: Path, name: str) -> ModuleType | None:
    """A module of a definition's folder under a private name; None where it has none."""
    path = folder / f"{name}.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location(f"_kopt_{folder.name}_{name}", path)
    if spec is None or spec.loader is None:
        raise InvalidInputError(f"{path} cannot be loaded", hint="is it a Python file?")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class InputSet:
    """One draw."""

    generator: str
    kind: Literal["contest", "stress"]
    """``contest`` or ``stress``."""
    values: dict[str, Any]
    """Every input in call order; static ones are shared between sets."""
    expected: dict[str, Any] | None = None
    place: int | None = None
    """Number under which it is to be laid on the shelf; None: nowhere."""


class Pool:
    """Draws sets and remembers what a correct solution gives for each."""

    def __init__(
        self,
        folder: Path,
        definition: Definition,
        device: str,
        seed: int | None,
        shelf: Path | None = None,
    ) -> None:
        """Loads the definition's files.

        Args:
            folder: Of the definition.
            definition: What is drawn for.
            device: PyTorch's name of it.
            seed: Public, for debugging; None: secret.
            shelf: Where sets of earlier sessions are; None: nowhere.
        """
        import torch

        self._definition = definition
        self._reference = _need(folder, "reference")
        self._inputs = _need(folder, "inputs")
        cancelled = [name for name, bound in definition.kopt.strict.items() if bound.cancelled]
        if cancelled and not hasattr(self._reference, "magnitudes"):
            raise InvalidInputError(
                f"{folder / 'reference.py'} has no magnitudes()",
                hint=f"the strict bound of {cancelled[0]!r} has 'cancelled', which needs it",
            )
        self._rng = torch.Generator(device=device)
        secret = int.from_bytes(os.urandom(8), "little") >> 1
        self._rng.manual_seed(secret if seed is None else seed)
        reusable = hasattr(self._inputs, "vary") and not definition.kopt.static_inputs
        self._shelf: Shelf | None = None
        if shelf is not None and seed is None and reusable:
            self._shelf = Shelf(shelf, definition, folder, device)
        self._uuid = ""
        self._static: dict[str, Any] = {}
        self._static_key: tuple[tuple[int, ...], ...] | None = None
        self._axes: dict[str, int] = {}
        self._by_workload: dict[str, list[InputSet]] = {}
        self.sets: list[InputSet] = []
        """Of the workload that is bound, in the order of drawing."""

    @property
    def generators(self) -> dict[str, str]:
        """Kind of each generator by its name, the definition's own order."""
        return {name: each.kind for name, each in self._inputs.GENERATORS.items()}

    def bind(self, uuid: str, axes: Mapping[str, int]) -> None:
        """Goes to another workload, and to the sets that it has."""
        self.sets = self._by_workload.setdefault(uuid, [])
        self._uuid = uuid
        self._axes = self._definition.bind(axes)
        follow = getattr(self._inputs, "bind", None)
        if follow is not None:  # inputs that were exported differ by workload, not by axes alone
            follow(uuid)
        names = self._definition.kopt.static_inputs
        shapes = {s.name: s.shape for s in self._definition.input_shapes(axes)}
        key = tuple(shapes[name] for name in names)
        if names and key != self._static_key:
            self._static = self._inputs.draw_static(self._axes, self._rng)
            self._static_key = key

    def forget(self, uuid: str) -> None:
        """Frees the sets of a workload; its numbers start again at 0."""
        self._by_workload.pop(uuid, []).clear()

    def draw(self, generator: str, place: int | None = None) -> int:
        """Draws one more set and returns its number.

        Args:
            generator: Its name.
            place: Number on the shelf, from which it may come and to which it goes; None: it
                is drawn anew in any case.
        """
        spec = self._inputs.GENERATORS[generator]
        shelf = None if place is None else self._shelf
        if shelf is not None and place is not None:
            met = shelf.take(self._uuid, generator, place)
            if met is not None:
                self.sets.append(InputSet(generator, spec.kind, met.values, met.expected))
                return len(self.sets) - 1
        keywords = {"static": self._static} if self._static else {}
        drawn = spec.draw(self._axes, self._rng, **keywords) | self._static
        values = {name: drawn[name] for name in self._definition.inputs}
        self.sets.append(
            InputSet(generator, spec.kind, values, place=None if shelf is None else place)
        )
        return len(self.sets) - 1

    def vary(self, number: int) -> bool:
        """Changes a set in place, and its expected outputs with it, where the definition can.

        Returns:
            Whether the contents are others now.
        """
        change = getattr(self._inputs, "vary", None)
        if change is None:
            return False
        chosen = self.sets[number]
        change(chosen.values, self.expected(number), self._axes, self._rng)
        return True

    def magnitudes(self, values: Mapping[str, Any]) -> Callable[[str], Any]:
        """What the rows of an output would measure if their terms did not cancel.

        Args:
            values: every input in call order, as the outputs in question were computed from.

        Returns:
            (rows,) by name of an output; computed once, at the first question.
        """

        @cache
        def computed() -> dict[str, Any]:
            found = self._reference.magnitudes(*values.values())
            return {name: tensor.reshape(-1) for name, tensor in found.items()}

        return lambda name: computed()[name]

    def expected(self, number: int) -> dict[str, Any]:
        """High-precision outputs for a set, computed once."""
        chosen = self.sets[number]
        if chosen.expected is None:
            outputs = self._reference.precise(*chosen.values.values())
            chosen.expected = dict(zip(self._definition.outputs, outputs, strict=True))
            if self._shelf is not None and chosen.place is not None:
                # As it was drawn: before anybody was called with it, and before it is varied.
                whole = ShelvedSet(chosen.values, chosen.expected)
                self._shelf.lay(self._uuid, chosen.generator, chosen.place, whole)
        return chosen.expected


def _need(folder: Path, name: str) -> Any:
    module = load_module(folder, name)
    if module is None:
        raise InvalidInputError(f"{folder} has no {name}.py", hint="see README: add a definition")
    return module
