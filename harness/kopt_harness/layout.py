"""Where the tensors of a definition lie in an arena.

A slot is ``[red zone | slack | tensor | slack | red zone]``: the tensor begins at
``RED_ZONE_BYTES + shift``, with a shift of 0 to ``SLACK_BYTES`` in steps of
``SHIFT_STEP_BYTES``, so that pointers can be moved without another allocation. Everything
in the slot outside the tensor is a red zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kopt_harness.schema import Definition, Model, Workload

__all__ = ["RED_ZONE_BYTES", "SHIFT_STEP_BYTES", "SLACK_BYTES", "Arena", "Slot"]

RED_ZONE_BYTES = 4096
SLACK_BYTES = 16384
SHIFT_STEP_BYTES = 1024
_PAGE_BYTES = 4096


class Slot(Model):
    """One tensor's place."""

    name: str
    role: str
    """``input`` or ``output``."""
    offset: int
    """Byte offset of the slot in the arena, page aligned."""
    capacity: int
    """Bytes of the largest tensor that it must hold."""

    @property
    def nbytes(self) -> int:
        """Bytes of the whole slot."""
        return _round_up(2 * RED_ZONE_BYTES + SLACK_BYTES + self.capacity)


class Arena(Model):
    """All slots of a session."""

    slots: tuple[Slot, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the arena."""
        return sum(slot.nbytes for slot in self.slots)

    @property
    def shifts(self) -> int:
        """How many places a tensor can take in its slot."""
        return SLACK_BYTES // SHIFT_STEP_BYTES

    @classmethod
    def for_workloads(cls, definition: Definition, workloads: Iterable[Workload]) -> Arena:
        """Slots large enough for each of the workloads."""
        capacity: dict[tuple[str, str], int] = {}
        for workload in workloads:
            _grow(capacity, definition, workload.axes)
        slots, offset = [], 0
        for (name, role), nbytes in capacity.items():
            slot = Slot(name=name, role=role, offset=offset, capacity=nbytes)
            slots.append(slot)
            offset += slot.nbytes
        return cls(slots=tuple(slots))

    def by_name(self) -> dict[str, Slot]:
        """Slots by tensor name."""
        return {slot.name: slot for slot in self.slots}


def same_place(names: Sequence[str]) -> dict[str, int]:
    """The shift of each tensor where nothing has been moved: none."""
    return dict.fromkeys(names, 0)


def _grow(
    capacity: dict[tuple[str, str], int], definition: Definition, axes: Mapping[str, int]
) -> None:
    for role, shapes in (
        ("input", definition.input_shapes(axes)),
        ("output", definition.output_shapes(axes)),
    ):
        for shape in shapes:
            key = (shape.name, role)
            capacity[key] = max(capacity.get(key, 0), shape.nbytes)


def _round_up(nbytes: int) -> int:
    return -(-nbytes // _PAGE_BYTES) * _PAGE_BYTES
