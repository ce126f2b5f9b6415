"""Retained evidence: what is committed about an incumbent, and the pointer to it.

``artifacts/retained/<definition>/<target>/`` holds ``summary.json`` (DESIGN section 7),
``samples.json.gz`` (every paired block), ``decision.json``, ``profile.json`` and the packed
``solution.json``. ``kernels/<definition>/retained.toml`` names the incumbent of each target;
it is moved last, so that it never points at something that is not there.
"""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .atomic import write_atomic
from .baselines import baselines_document, reference_latency, workload_medians
from .block_records import SAMPLES_FILE
from .errors import InvalidInputError
from .schema import SCHEMA_VERSION, Comparison, Solution, SweepResult

__all__ = ["Evidence", "point_to", "set_incumbent", "summarise", "write_evidence"]


class Evidence(NamedTuple):
    """What is kept about one incumbent."""

    solution: Solution
    summary: dict[str, Any]
    samples: dict[str, Any]
    """Recorded units by journal key."""
    decision: dict[str, Any]
    profile: dict[str, Any]


def summarise(
    sweep: SweepResult,
    *,
    date: str,
    floors_us: Mapping[str, float | None],
    floor_source: str,
    limits: str,
    provisional: bool,
) -> dict[str, Any]:
    """The document ``summary.json`` of the candidate of a sweep.

    Args:
        sweep: Complete and compared.
        date: Of the decision, ISO 8601.
        floors_us: Attainable time of each workload by uuid, where it is known.
        floor_source: Where the floors come from.
        limits: What limits the solution now, one sentence.
        provisional: Whether the way of measuring is not final.
    """
    comparison = sweep.comparison
    assert comparison is not None, "only a compared solution is retained"
    return {
        "schema": SCHEMA_VERSION,
        "definition": comparison.b.definition,
        "target": comparison.target,
        "solution": {"name": comparison.b.name, "sha256": comparison.b.sha256},
        "date": date,
        "provisional": provisional,
        "epoch": comparison.epoch,
        "environment": sweep.evaluation.environment | {"floor_source": floor_source},
        "workloads": [
            {
                "uuid": workload.uuid,
                "axes": workload.axes,
                "median_us": workload.b_median_us,
                "floor_us": floors_us.get(workload.uuid),
                "baselines": workload_medians(sweep, workload.uuid),
                **reference_latency(sweep, workload.uuid),
            }
            for workload in comparison.workloads
        ],
        "mean_us": comparison.b_mean_us,
        "incumbent": _incumbent(comparison),
        **baselines_document(sweep),
        "limits": limits,
    }


def _incumbent(comparison: Comparison) -> dict[str, Any]:
    """What was replaced; ``ratio`` is new over old, unlike that of a baseline."""
    return {
        "name": comparison.a.name,
        "sha256": comparison.a.sha256,
        "mean_us": comparison.a_mean_us,
        "ratio": comparison.ratio,
        "ci": comparison.ci,
        "confidence": comparison.confidence,
    }


def write_evidence(folder: Path, evidence: Evidence) -> None:
    """Writes the files of one incumbent; ``summary.json`` last.

    Writing the same evidence again changes no byte, so an interrupted write is repeated.
    """
    write_atomic(folder / "solution.json", evidence.solution.model_dump_json(indent=1) + "\n")
    samples = json.dumps(evidence.samples, separators=(",", ":")).encode()
    write_atomic(folder / SAMPLES_FILE, gzip.compress(samples, mtime=0))
    for name in ("decision", "profile", "summary"):
        document: dict[str, Any] = getattr(evidence, name)
        write_atomic(folder / f"{name}.json", json.dumps(document, indent=1) + "\n")


def set_incumbent(path: Path, target: str, solution: Solution) -> None:
    """Points ``retained.toml`` at a solution for one target; the rest of the file stays.

    Raises:
        InvalidInputError: If the file is not TOML, before anything is written.
    """
    old = path.read_text() if path.exists() else ""
    write_atomic(path, point_to(old, target, solution.name, solution.sha256))


def point_to(text: str, target: str, name: str, sha256: str) -> str:
    """The content of a ``retained.toml`` with one target's table changed or added.

    Comments, order and other tables are kept. The result is read back: a file whose layout
    this writer does not understand is refused, not damaged.
    """
    expected = _parse(text)
    table = expected.get(target)
    entries = {"solution": name, "sha256": sha256}
    expected[target] = (table if isinstance(table, dict) else {}) | entries
    lines = text.splitlines()
    # A JSON string is a TOML basic string, once nothing is written as a surrogate pair.
    values = {key: f"{key} = {json.dumps(v, ensure_ascii=False)}" for key, v in entries.items()}
    header = next((i for i, line in enumerate(lines) if _header(line) == target), None)
    if header is None:
        gap = [""] if lines else []
        lines += [*gap, f"[{target}]", *values.values()]
    else:
        later = (i for i in range(header + 1, len(lines)) if lines[i].lstrip().startswith("["))
        end = next(later, len(lines))
        body = lines[header + 1 : end]
        for key in reversed(values):
            at = [i for i, line in enumerate(body) if re.match(rf"\s*{key}\s*=", line)]
            if at:
                body[at[0]] = values[key]
            else:
                body.insert(0, values[key])
        lines[header + 1 : end] = body
    result = "\n".join(lines) + "\n"
    if _parse(result) != expected:
        raise InvalidInputError(
            f"cannot change the table {target!r} of a retained.toml laid out like this",
            hint=f"write it as a plain [{target}] table with one key a line",
        )
    return result


def _header(line: str) -> str | None:
    match = re.match(r"\s*\[\s*\"?([A-Za-z0-9_-]+)\"?\s*\]", line)
    return match.group(1) if match else None


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(
            f"retained.toml is not TOML: {error}", hint="correct the file by hand, or remove it"
        ) from error
