"""Where tensors lie in an arena."""

from __future__ import annotations

from kopt_harness.catalog import Catalog
from kopt_harness.layout import RED_ZONE_BYTES, SHIFT_STEP_BYTES, Arena


def test_slots_hold_the_largest_workload_and_do_not_overlap(catalog: Catalog) -> None:
    """Each slot has room for its tensor at every shift, between two red zones."""
    for definition in catalog.definitions():
        workloads = catalog.workloads(definition)
        arena = Arena.for_workloads(definition, workloads)
        end = 0
        for slot in arena.slots:
            assert slot.offset == end
            end = slot.offset + slot.nbytes
            last = RED_ZONE_BYTES + arena.shifts * SHIFT_STEP_BYTES + slot.capacity
            assert last + RED_ZONE_BYTES <= slot.nbytes
        assert end == arena.nbytes
        for workload in workloads:
            for shape in definition.input_shapes(workload.axes):
                assert shape.nbytes <= arena.by_name()[shape.name].capacity
