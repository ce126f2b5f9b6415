"""Starting an ablation, and finding one that was started."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.pack import load
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Solution, Workload
from kopt_harness.targets import get_target
from pydantic import ValidationError

from ..agents import get_agent
from ..config import RunConfig
from ..mechanisms import ALL
from .design import LEAST_SEEDS, Plan
from .runner import Ablation, MakeHarnessIn

__all__ = ["Wish", "open_ablation", "start_ablation"]

FOLDER = "ablations"
"""In the archive of this machine: an archive of its own."""
SKIPPED = ("peers", "probes", "__pycache__")
"""Of a definition's folder: nothing that a campaign needs."""


class Wish(NamedTuple):
    """What a user asks of an ablation."""

    definition: str
    config: RunConfig
    seeds: int
    start: str | None = None
    """Name of a solution or a path; null: the incumbent."""
    whole: tuple[str, ...] = ("all",)
    """Selectors of the workloads that stand for the whole definition."""
    single: str | None = None
    """Selector of the single workload; null: the one in the middle of those."""
    mechanisms: tuple[str, ...] = ()
    """Empty: all."""
    reuse: bool = False
    total_s: float | None = None


def start_ablation(
    root: Root, wish: Wish, make_harness: MakeHarnessIn, notify: Callable[[str], None]
) -> Ablation:
    """A new ablation; nothing is measured yet.

    Args:
        root: Where the definition is.
        wish: What is asked for.
        make_harness: Makes what measures.
        notify: Gets progress.

    Raises:
        NotFoundError: If a definition, a solution, a workload or an agent or a
            mechanism does not exist.
        InvalidInputError: If the single workload is more than one, or none of the whole, or there
            are too few seeds.
    """
    _require_known(wish)
    catalog = Catalog(root)
    definition = catalog.resolve(wish.definition)
    target = get_target(str(wish.config.target))
    factory = get_agent(wish.config.agent)
    start = _start_of(catalog, definition, target.name, wish.start)
    whole = catalog.select(definition, wish.whole)
    plan = Plan.model_validate(
        {
            "definition": definition.name,
            "target": target.name,
            "config": wish.config.model_dump(mode="json"),
            "seeds": wish.seeds,
            "start": {"name": start.name, "sha256": start.sha256},
            "whole": [workload.uuid for workload in whole],
            "single": _single_of(catalog, definition, whole, wish.single).uuid,
            "writes_code": factory.writer is not None,
            "reuse": wish.reuse,
            "total_s": wish.total_s,
            **({"mechanisms": wish.mechanisms} if wish.mechanisms else {}),
        }
    )
    manifest = {"kind": "ablation", "plan": plan.model_dump(mode="json")}
    label = f"{definition.kopt.alias}-{target.name}"
    run = Archive(root.local / FOLDER).create_run(label, manifest)
    copy = _copy(catalog, definition, run.folder / "root", plan)
    Archive(copy.local).put(start)
    return Ablation(run, plan, copy, make_harness, notify)


def _require_known(wish: Wish) -> None:
    """Refuses what no plan could have."""
    unknown = [name for name in wish.mechanisms if name not in ALL]
    if unknown:
        raise NotFoundError(
            f"unknown mechanism {unknown[0]!r}", hint=f"mechanisms are {', '.join(ALL)}"
        )
    if wish.seeds < LEAST_SEEDS:
        raise InvalidInputError(
            f"an interval needs at least {LEAST_SEEDS} seeds, not {wish.seeds!r}",
            hint="5 is what kopt ablate takes by itself",
        )


def _start_of(catalog: Catalog, definition: Definition, target: str, name: str | None) -> Solution:
    if name is None:
        incumbent = catalog.incumbent(definition, target)
        if incumbent is None:
            raise NotFoundError(
                f"{definition.name} has no incumbent for the target {target!r}",
                hint="name a solution with --start",
            )
        return incumbent
    if Path(name).exists():
        return load(Path(name), known=catalog).solution
    return catalog.solution(definition, name).solution


def _single_of(
    catalog: Catalog, definition: Definition, whole: Sequence[Workload], selector: str | None
) -> Workload:
    if selector is None:
        return sorted(whole, key=lambda w: (catalog.cost(definition, w.axes).bytes, w.index))[
            len(whole) // 2
        ]
    found = catalog.select(definition, (selector,))
    uuids = {workload.uuid for workload in whole}
    if len(found) != 1 or found[0].uuid not in uuids:
        raise InvalidInputError(
            f"the single workload {selector!r} is {len(found)} workloads, or none of the whole",
            hint="name one by its number; kopt workloads lists them",
        )
    return found[0]


def _copy(catalog: Catalog, definition: Definition, place: Path, plan: Plan) -> Root:
    """The definition with the workloads of the ablation, and without what no campaign needs."""
    source = catalog.folder(definition)
    there = place / "kernels" / source.name
    shutil.copytree(source, there, ignore=shutil.ignore_patterns(*SKIPPED))
    lines = (source / "workloads.jsonl").read_text().splitlines(keepends=True)
    kept = set(plan.whole)
    (there / "workloads.jsonl").write_text(
        "".join(line for line in lines if any(uuid in line for uuid in kept))
    )
    (there / "retained.toml").unlink(missing_ok=True)
    copy = Root(place)
    floor = Path("noise") / definition.name
    if (catalog.root.local / floor).is_dir():
        # What the machine's noise was found to be counts here as well.
        shutil.copytree(catalog.root.local / floor, copy.local / floor)
    return copy


def open_ablation(
    root: Root, run_id: str | None, make_harness: MakeHarnessIn, notify: Callable[[str], None]
) -> Ablation:
    """An ablation that was started before.

    Args:
        root: Where it was started.
        run_id: Its id or an unambiguous part; None: the latest.
        make_harness: As when it was started.
        notify: Gets progress.

    Raises:
        NotFoundError: If there is no such ablation, or more than one.
        InvalidInputError: If its manifest cannot be read.
    """
    archive = Archive(root.local / FOLDER)
    if run_id is None and not archive.runs():
        raise NotFoundError("no ablation was started yet", hint="kopt ablate DEF starts one")
    run = archive.runs()[-1] if run_id is None else archive.run(run_id)
    try:
        plan = Plan.model_validate(run.manifest()["plan"])
    except (KeyError, ValidationError) as error:
        raise InvalidInputError(
            f"the manifest of the ablation {run.id!r} cannot be read: {error}",
            hint="read it with the version of kopt that wrote it",
        ) from error
    return Ablation(run, plan, Root(run.folder / "root"), make_harness, notify)
