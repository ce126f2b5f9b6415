"""One file to a diagnosis, and the diagnosis to its JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidInputError, ProfileError
from .classify import Signature, classify, classify_kernel
from .kernels import Figures, Ignored, Kernel, Shape, group, split_setup
from .readers import ProfileFile, Reader, list_readers
from .record import Recorded
from .tables import failures

__all__ = ["Diagnosis", "Regime", "diagnose", "failure_of"]

_PLAIN = (
    "occupancy_theoretical_pct",
    "occupancy_achieved_pct",
    "waves_per_sm",
    "compute_pct",
    "memory_pct",
    "dram_pct",
    "l2_pct",
    "spills",
)
"""Fields of a kernel's document that are figures as they are."""


@dataclass(frozen=True)
class Regime:
    """A kernel with one grid and block, and what limits it there."""

    kernel: str
    shape: Shape
    share: float | None
    signature: Signature


@dataclass(frozen=True)
class Diagnosis:
    """What a profile says."""

    source: Path
    format: str
    kernels: tuple[Kernel, ...]
    ignored: tuple[Ignored, ...]
    signature: Signature
    regimes: tuple[Regime, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """The JSON document of ``kopt diagnose`` for one file."""
        dominant = self.kernels[0]
        whole: dict[str, Any] = {
            "source": str(self.source),
            "format": self.format,
            "kernels": [_kernel(kernel) for kernel in self.kernels],
            "ignored": [one._asdict() for one in self.ignored],
            "signature": {
                "dominant_kernel": dominant.name,
                "share": dominant.share,
                **_signature(self.signature),
            },
            "regimes": [_regime(regime) for regime in self.regimes],
            "notes": list(self.notes),
        }
        found: dict[str, Any] = _rounded(whole)
        return found


def diagnose(path: Path) -> Diagnosis:
    """Read a profiler's file and say what limits what was profiled.

    Raises:
        NotFoundError: If there is no such file.
        InvalidInputError: If it is of no format that a reader knows.
        ProfileError: If the profiler failed, or profiled nothing but set-up.
        UnavailableError: If a tool that is needed to read it is not here.
    """
    file = ProfileFile(path)
    reader = _reader_of(file)
    recorded = reader.read(file)
    if not recorded.launches:
        raise failure_of(file.text if file.is_text else "", repr(str(path)))
    kept, ignored = split_setup(recorded)
    if not kept:
        raise ProfileError(
            f"{str(path)!r} has {len(recorded.launches)} launches, all of which prepare inputs",
            hint="profile the call itself: ncu --kernel-name, or --launch-skip",
        )
    kernels = group(kept)
    whole = sum(k.total_us or 0.0 for k in kernels)
    regimes = tuple(
        Regime(kernel.name, shape, _share(shape, whole), classify_kernel(shape.figures))
        for kernel in kernels
        for shape in kernel.shapes
    )
    notes = (*recorded.notes, *_notes(recorded, kernels, ignored))
    signature = classify(kernels, recorded.timeline)
    return Diagnosis(path, reader.name, kernels, tuple(ignored), signature, regimes, notes)


def _share(shape: Shape, whole: float) -> float | None:
    return None if shape.total_us is None or not whole else shape.total_us / whole


def _reader_of(file: ProfileFile) -> Reader:
    for reader in list_readers():
        if reader.recognises(file):
            return reader
    names = ", ".join(reader.name for reader in list_readers())
    raise InvalidInputError(
        f"{str(file.path)!r} is no profile of a format that kopt reads", hint=f"it reads {names}"
    )


def failure_of(text: str, name: str) -> ProfileError:
    """Why there is no kernel in what a profiler printed.

    Args:
        text: All of it.
        name: What to call it.
    """
    for failure in failures():
        if match := failure.pattern.search(text):
            said = match.groupdict().get("message")
            cause = f"{failure.cause}: {said.strip()}" if said else failure.cause
            return ProfileError(f"{name}: {cause}", hint=failure.hint)
    return ProfileError(
        f"{name}: no kernel was profiled",
        hint="take the profile again, and look at what the profiled program printed",
    )


def _notes(
    recorded: Recorded, kernels: tuple[Kernel, ...], ignored: list[Ignored]
) -> tuple[str, ...]:
    notes = []
    if ignored:
        count = sum(one.launches for one in ignored)
        notes.append(f"{count} launches that prepare inputs are left out")
    if not recorded.ordered:
        notes.append("a table has no order: fills and casts of inputs cannot be told from the work")
    if any(kernel.total_us is None for kernel in kernels):
        notes.append("no durations: shares are unknown, and the first kernel stands for all")
    return tuple(notes)


def _rounded(value: Any) -> Any:
    """Without the digits that arithmetic in binary adds to printed figures."""
    if isinstance(value, float):
        return float(f"{value:.15g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list) else value


def _kernel(kernel: Kernel) -> dict[str, Any]:
    shape = kernel.main
    figures = shape.figures
    return {
        "name": kernel.name,
        "launches": kernel.launches,
        "share": kernel.share,
        "duration_us": figures.get("duration_us"),
        "total_us": kernel.total_us,
        "grid": _list(shape.grid),
        "block": _list(shape.block),
        "registers": _whole(figures.get("registers")),
        "smem_bytes": _whole(_smem(figures)),
        **{name: figures.get(name) for name in _PLAIN},
        "metrics": figures.printed,
    }


def _smem(figures: Figures) -> float | None:
    parts = (figures.get("smem_static_bytes"), figures.get("smem_dynamic_bytes"))
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _list(dim: tuple[int, int, int] | None) -> list[int] | None:
    return None if dim is None else list(dim)


def _regime(regime: Regime) -> dict[str, Any]:
    return {
        "kernel": regime.kernel,
        "grid": _list(regime.shape.grid),
        "block": _list(regime.shape.block),
        "launches": regime.shape.launches,
        "share": regime.share,
        **_signature(regime.signature),
    }


def _signature(signature: Signature) -> dict[str, Any]:
    return {
        "bottleneck": signature.bottleneck,
        "limiter": signature.limiter,
        "evidence": [row._asdict() for row in signature.evidence],
        "headroom": signature.headroom,
    }
