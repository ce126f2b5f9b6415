"""What a chapter is about: the operator, the target, what was asked for, and on what machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kopt_harness.catalog import Catalog
from kopt_harness.errors import KoptError
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Definition
from kopt_harness.targets import Target, list_targets

from ..config import PromotionRules
from ..history import RunView
from .model import Asked, EnvironmentView, Hardware, Subject
from .overview import SubjectKey
from .sources import Pair
from .tables import Work, work_of

__all__ = ["Known", "asked", "environments", "known_of"]


class Known(NamedTuple):
    """What the checkout says of a definition on a target."""

    subject: Subject
    hardware: Hardware
    work: dict[str, Work]


def known_of(catalog: Catalog, key: SubjectKey) -> tuple[Known, list[str]]:
    """What the checkout knows, and what it does not.

    A chapter outlives its definition, which must not hide it.
    """
    target = next((each for each in list_targets() if each.name == key.target), None)
    hardware = Hardware(name=key.target, description=key.target)
    notes = []
    if target is None:
        notes.append(f"the target {key.target!r} is not known to this version; no floors")
    else:
        hardware = _hardware(target)
    try:
        definition = catalog.resolve_exact(key.definition)
        work = work_of(catalog, definition, target)
        return Known(_subject(definition, len(work)), hardware, work), notes
    except KoptError as error:
        notes.append(f"{error.message}; sizes, regimes and floors are left out")
    nothing = {"alias": key.definition, "op_type": "", "description": "", "workloads": 0}
    subject = Subject(id=key.definition, primary_axis=None, axes=(), **nothing)
    return Known(subject, hardware, {}), notes


def _subject(definition: Definition, workloads: int) -> Subject:
    axes = tuple(name for name, axis in definition.axes.items() if axis.value is None)
    first = (*definition.kopt.regime_axes, *axes)
    return Subject(
        id=definition.name,
        alias=definition.kopt.alias,
        op_type=definition.op_type,
        description=definition.description,
        workloads=workloads,
        primary_axis=first[0] if first else None,
        axes=axes,
    )


def _hardware(target: Target) -> Hardware:
    peak = max(target.peak_tflops.values(), key=lambda figure: figure.value, default=None)
    figures = {
        "copy": (target.copy_gbps, "GB/s"),
        "arithmetic": (peak, "TFLOP/s"),
        "launch": (target.launch_us, "us"),
    }
    known = {name: (f, unit) for name, (f, unit) in figures.items() if f is not None}
    return Hardware(
        name=target.name,
        description=target.description,
        copy_gbps=None if target.copy_gbps is None else target.copy_gbps.value,
        peak_tflops=None if peak is None else peak.value,
        launch_us=None if target.launch_us is None else target.launch_us.value,
        sources=tuple(f"{n}: {f.value:g} {unit} ({f.source})" for n, (f, unit) in known.items()),
    )


def asked(view: RunView) -> Asked:
    """What a run was to do, as its manifest has it."""
    manifest, config = view.manifest, view.manifest.config
    return Asked(
        run=view.run.id,
        created=manifest.created,
        agent=config.agent,
        policy=config.policy,
        mode=manifest.mode,
        rounds_planned=config.rounds,
        rounds_closed=len(view.rounds),
        state=view.state,
        incumbent=manifest.incumbent.name,
        search_seed=manifest.search_seed,
        versions=dict(manifest.versions),
        conditions=_changed(config.conditions.model_dump(), PromotionRules().model_dump()),
        measure=_changed(config.measure.model_dump(), MeasureOptions().model_dump()),
    )


def _changed(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value != defaults[name]}


def environments(views: Sequence[RunView], pair: Pair | None) -> tuple[EnvironmentView, ...]:
    """Every epoch that was measured in, oldest first."""
    found: dict[str, EnvironmentView] = {}
    seen = [
        (record.value["time"], record.value["environment"])
        for view in views
        for record in view.records
        if record.key.startswith("session/")
    ]
    if pair is not None and pair.environment:
        seen.append((pair.date, pair.environment))
    for time, environment in seen:
        epoch = str(environment.get("epoch", ""))
        fields = dict(_flat("", environment))
        view = EnvironmentView(
            epoch=epoch, device=str(environment.get("device", "")), seen=time, fields=fields
        )
        found.setdefault(epoch, view)
    return tuple(found.values())


def _flat(prefix: str, value: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            pairs += _flat(f"{prefix}{name}.", inner)
        elif inner is not None:
            pairs.append((f"{prefix}{name}", str(inner)))
    return pairs
