"""What kopt knows of the definitions that foreign results name: workloads, costs, hardware."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from ..catalog import Catalog
from ..errors import NotFoundError
from ..schema import Definition, Workload
from ..targets import Target, list_targets
from .record import ForeignResult

__all__ = ["Floor", "Knowledge"]


class Floor(NamedTuple):
    """Least times of a workload on some hardware, in microseconds."""

    outputs_us: float
    """To write the declared outputs: needed whatever the inputs hold."""
    cost_us: float
    """By the definition's cost model, which may assume what typical inputs hold."""
    hardware: str


class Knowledge:
    """The catalog and the targets, asked with what foreign files say."""

    def __init__(self, catalog: Catalog, target: Target | None = None) -> None:
        """Takes what is known.

        Args:
            catalog: Of the root.
            target: Hardware of results that do not name theirs; None where nobody says.
        """
        self._catalog = catalog
        self._target = target
        self._by_name: dict[str, Definition | None] = {}

    def definition(self, result: ForeignResult) -> Definition | None:
        """The definition by id or alias, else the one that has the workload; None if unknown."""
        named = self._named(result.definition)
        if named is None and result.workload is not None:
            return self._owners.get(result.workload)
        return named

    def _named(self, name: str) -> Definition | None:
        if name not in self._by_name:
            try:
                self._by_name[name] = self._catalog.resolve_exact(name)
            except NotFoundError:
                self._by_name[name] = None
        return self._by_name[name]

    @cached_property
    def _owners(self) -> dict[str, Definition]:
        return {
            workload.uuid: definition
            for definition in self._catalog.definitions()
            for workload in self._catalog.workloads(definition)
        }

    def workloads(self, definition: Definition) -> dict[str, Workload]:
        """All workloads of a definition, by uuid."""
        return {workload.uuid: workload for workload in self._catalog.workloads(definition)}

    def target_of(self, hardware: str) -> Target | None:
        """The target whose name a description of hardware contains, else the one given."""
        words = hardware.casefold()
        found = [t for t in list_targets() if t.kind == "cuda" and t.name in words]
        return found[0] if found else self._target

    def floor(self, definition: Definition, workload: Workload, hardware: str) -> Floor | None:
        """Least times, on the fastest known device where nobody says which it was.

        None on a target without a known bandwidth.
        """
        target = self.target_of(hardware)
        targets = [target] if target is not None else list(list_targets())
        known = [(t.copy_gbps.value, t) for t in targets if t.copy_gbps is not None]
        if not known or (target is None and "cpu" in hardware.casefold()):
            return None
        gbps, fastest = max(known, key=lambda pair: pair[0])
        cost = self._catalog.cost(definition, workload.axes)
        peak = max((figure.value for figure in fastest.peak_tflops.values()), default=None)
        flops_us = 0.0 if peak is None else cost.flops / peak / 1e6
        outputs = sum(shape.nbytes for shape in definition.output_shapes(workload.axes))
        return Floor(
            outputs_us=outputs / gbps / 1e3,
            cost_us=max(cost.bytes / gbps / 1e3, flops_us),
            hardware=fastest.name if target is not None else f"{fastest.name}, the fastest known",
        )
