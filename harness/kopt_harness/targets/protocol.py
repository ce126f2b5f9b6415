"""What a target is, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

__all__ = ["Figure", "Presence", "Target"]


class Figure(NamedTuple):
    """A number, where it comes from, and whether it was measured by this project."""

    value: float
    source: str
    measured: bool


@dataclass(frozen=True)
class Presence:
    """Whether a target is in this machine."""

    ok: bool
    reason: str
    """Why it is or is not; a phrase for a person."""
    device: str = ""
    """Name of the device or processor; empty if absent."""
    uuid: str = ""
    """GPU UUID; empty on a CPU."""
    index: int | None = None
    """Index in the driver's own order, which ``CUDA_VISIBLE_DEVICES`` does not change."""


@runtime_checkable
class Target(Protocol):
    """One kind of hardware.

    Members are read-only properties, so that a frozen dataclass is one.
    """

    @property
    def name(self) -> str:
        """Name on the command line, and of the module."""
        ...

    @property
    def kind(self) -> Literal["cpu", "cuda", "simulated"]:
        """Which worker runs it."""
        ...

    @property
    def arch(self) -> str | None:
        """Architecture for the compilers, as ``sm_90a``; None on a CPU."""
        ...

    @property
    def timer(self) -> str:
        """Name of the timer that is used unless another is asked for."""
        ...

    @property
    def calls_per_slot(self) -> int:
        """Timed calls in each slot of a paired block, unless the options say otherwise."""
        ...

    @property
    def rounds(self) -> bool:
        """Whether a process's own effect on times is such that comparisons need several."""
        ...

    @property
    def rounds_ahead(self) -> int:
        """Rounds whose processes are opened side by side."""
        ...

    @property
    def description(self) -> str:
        """One phrase for a listing."""
        ...

    @property
    def caveat(self) -> str:
        """Why none of its results can promote a solution; empty where they can."""
        ...

    @property
    def copy_gbps(self) -> Figure | None:
        """Attainable copy bandwidth, bytes read plus written, in GB/s; None if unknown.

        Without it there is no floor: a floor is null then, never a guess.
        """
        ...

    @property
    def launch_us(self) -> Figure | None:
        """Time of a kernel that does nothing, in microseconds; None if unknown."""
        ...

    @property
    def l2_bytes(self) -> Figure | None:
        """Size of the last-level cache that a cold call must not hit; None if unknown."""
        ...

    @property
    def peak_tflops(self) -> Mapping[str, Figure]:
        """Dense peak by dtype name, in TFLOP/s; empty if unknown."""
        ...

    def each(self) -> tuple[Target, ...]:
        """This target once for each device of it that is here, each bound to its device."""
        ...

    def present(self) -> Presence:
        """Whether this machine has it; answers from a cache after the first call."""
        ...
