"""Checkpoints of a population, in the layout in which evolutionary searches leave theirs.

``database/checkpoints/checkpoint-checkpoint-iter-N-N/`` holds ``metadata.json`` (islands, maps,
elites, features) and ``best_solution.json``; ``solutions/`` beside them has every member with its
packed sources, so that a search goes on from the folder alone. ``evaluator/eval_<id>/`` holds one
``evaluation_result.json`` for each judged candidate. What nobody measured is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kopt_harness.archive import Archive
from kopt_harness.atomic import write_atomic
from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.files import read_text
from kopt_harness.schema import Solution
from pydantic import ValidationError

from .population import Member, Population
from .world import SolutionStore

__all__ = ["checkpoint_folder", "evaluation_of", "read_checkpoint", "write_checkpoint"]


def checkpoint_folder(run: Path, iteration: int) -> Path:
    """Where the checkpoint of an iteration lies.

    Args:
        run: Folder of the run.
        iteration: From 0.
    """
    name = f"checkpoint-checkpoint-iter-{iteration}-{iteration}"
    return run / "database" / "checkpoints" / name


def write_checkpoint(
    run: Path,
    population: Population,
    solutions: SolutionStore,
    definition: str,
    fresh: tuple[Member, ...],
) -> Path:
    """Writes the checkpoint of the last iteration; the same population writes the same files.

    Args:
        run: Folder of the run.
        population: After the iteration.
        solutions: Has the sources of all members.
        definition: Name of the definition.
        fresh: Judged in the iteration.
    """
    for member in fresh:
        place = run / "evaluator" / f"eval_{member.sha256[:32]}"
        _write(place / "evaluation_result.json", evaluation_of(member, definition))
    folder = checkpoint_folder(run, population.iteration)
    for member in population.members.values():
        packed = solutions.get(member.sha256).model_copy(update={"name": member.name})
        document = _member(member, population, definition)
        document |= {
            "kopt": member.model_dump(mode="json"),
            "packed": packed.model_dump(mode="json"),
        }
        _write(folder / "solutions" / f"{member.id}.json", document)
    best = population.best
    if best is not None:
        _write(folder / "best_solution.json", _member(best, population, definition))
    # Last: a folder without it is one that was being written.
    _write(folder / "metadata.json", _metadata(population))
    return folder


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(document, indent=2) + "\n")


def evaluation_of(member: Member, definition: str) -> dict[str, Any]:
    """What the judge said of a member.

    Args:
        member: After its gate.
        definition: Name of the definition.
    """
    is_right = member.score > 0
    metrics: dict[str, Any] = {"correctness": float(is_right)}
    if is_right:
        metrics["speedup"] = member.score
    if member.mean_us is not None:
        metrics["exec_time_ms"] = member.mean_us / 1e3
    artifacts = {"eval_backend": "kopt gate", "task_id": definition}
    return {
        "status": "success" if is_right else "validation_failed",
        "summary": member.detail,
        "score": member.score,
        "metrics": metrics,
        "artifacts": artifacts if is_right else artifacts | {"error": member.detail},
        "code_sha256": member.sha256,
    }


def _member(member: Member, population: Population, definition: str) -> dict[str, Any]:
    return {
        "solution": f"sha256:{member.sha256}",
        "solution_id": member.id,
        "generate_plan": member.plan,
        "parent_id": member.parent,
        "island_id": member.island,
        "iteration": member.iteration,
        "timestamp": member.timestamp,
        "generation": member.generation,
        "sample_cnt": member.drawn,
        "sample_weight": population.weight(member),
        "score": member.score,
        "evaluation": json.dumps(evaluation_of(member, definition), indent=2),
        "summary": member.summary,
        "metadata": json.dumps({"trace": _trace(member, population)}),
    }


def _trace(member: Member, population: Population) -> list[str]:
    """Ids from the first to the member, as far as they are kept."""
    found = [member.id]
    while (parent := population.members.get(member.parent)) is not None and parent.id not in found:
        found.insert(0, parent.id)
        member = parent
    return found


def _metadata(population: Population) -> dict[str, Any]:
    numbers = range(len(population.islands))
    cells = [population.cells(number) for number in numbers]
    bests = [population.best_of(number) for number in numbers]
    features = population.features()
    best = population.best
    return {
        "total_generated_solutions": population.generated,
        "total_valid_solutions": population.valid,
        "island_feature_map": cells,
        "islands": [list(ids) for ids in population.islands],
        "elites": list(dict.fromkeys(id_ for each in cells for id_ in each.values())),
        "best_solution_id": "" if best is None else best.id,
        "island_best_solution": ["" if each is None else each.id for each in bests],
        "last_iteration": population.iteration,
        "current_island": population.iteration % len(population.islands),
        "island_capacity": [len(ids) for ids in population.islands],
        "last_migration_generation": population.migrated_at,
        "feature_stats": {
            name: {
                "min": min(values.values(), default=0.0),
                "max": max(values.values(), default=0.0),
                "values": list(values.values()),
            }
            for name, values in features.items()
        },
    }


def read_checkpoint(folder: Path, archive: Archive, definition: str) -> Population:
    """The population of a checkpoint; its sources go into the archive.

    Args:
        folder: ``checkpoint-checkpoint-iter-N-N``.
        archive: Keeps the sources.
        definition: That all members must be of.

    Raises:
        NotFoundError: If there is no such checkpoint, or it has no sources.
        InvalidInputError: If it is not one that can be gone on from.
    """
    if not (folder / "metadata.json").is_file():
        raise NotFoundError(
            f"no checkpoint at {str(folder)!r}",
            hint="name the folder that has metadata.json, below database/checkpoints of a run",
        )
    metadata = _read(folder / "metadata.json")
    members: dict[str, Member] = {}
    for path in sorted((folder / "solutions").glob("*.json")):
        document = _read(path)
        try:
            member = Member.model_validate(document["kopt"])
            packed = Solution.model_validate(document["packed"])
        except (KeyError, ValidationError) as error:
            raise _unreadable(path, str(error).splitlines()[0]) from error
        if packed.sha256 != member.sha256 or packed.definition != definition:
            raise _unreadable(path, f"its sources are not those of {member.name} for {definition}")
        archive.put(packed)
        members[member.id] = member
    islands = [[i for i in ids if i in members] for ids in metadata.get("islands", [])]
    if not any(islands):
        raise NotFoundError(
            f"the checkpoint {str(folder)!r} has no sources of its members",
            hint="only what kopt wrote can be gone on from: it keeps them in solutions/",
        )
    return Population(
        members=members,
        islands=tuple(map(tuple, islands)),
        iteration=int(metadata["last_iteration"]),
        generated=int(metadata["total_generated_solutions"]),
        valid=int(metadata["total_valid_solutions"]),
        migrated_at=int(metadata["last_migration_generation"]),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_text(path, "checkpoint"))
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(document, dict):
        raise _unreadable(path, "it is no object")
    return document


def _unreadable(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{str(path)!r} is no part of a checkpoint: {why}",
        hint="name a checkpoint that kopt round --policy pes has written",
    )
