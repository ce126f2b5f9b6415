"""How kopt report bears an archive of 10,000 evaluations: time, memory and the size of the page.

Writes an archive of that size into a temporary folder (runs of ten rounds, each of which gates
25 candidates on four workloads, all different in name, hash and time), then runs ``kopt report``
as a program of its own, once so that the index is there and then as often as asked, and takes
wall time, processor time, largest resident memory and the size of what it has written.

    python scripts/report_scale.py [--evaluations 10000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

from index_scale import EVALUATION, kopt, simulate
from kopt_harness.archive import Run
from kopt_harness.journal import read_journal
from kopt_harness.ledger import dumps
from kopt_harness.root import find_root

CANDIDATES = 25
"""Of a round."""
WORKLOADS = 4
"""On which each is gated."""
ROUNDS = 10
"""Of a run."""


def main() -> None:
    """Writes the archive, reports, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=3)
    parser.add_argument("--keep", type=Path, default=None, help="where to put the last page")
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    root = find_root().path
    with tempfile.TemporaryDirectory(prefix="kopt-scale-") as made:
        folder = Path(made)
        for name in ("kernels", "configs"):
            (folder / name).symlink_to(root / name)
        write_archive(folder, arguments.evaluations)
        html = folder / "report.html"
        first = kopt(folder, "report", "--html", str(html), "--json")
        asks = [
            kopt(folder, "report", "--html", str(html), "--json") for _ in range(arguments.reports)
        ]
        (chapter,) = asks[-1]["document"]["chapters"]
        found = {
            "evaluations": chapter["evaluations"],
            "rounds": chapter["rounds"],
            "candidates": chapter["candidates"],
            "load": os.getloadavg(),
            "html_bytes": html.stat().st_size,
            "first_s": first["seconds"],
            "report_s": sorted(ask["seconds"] for ask in asks),
            "report_cpu_s": sorted(ask["cpu_s"] for ask in asks),
            "report_mb": max(ask["resident_mb"] for ask in asks),
        }
        if arguments.keep:
            arguments.keep.write_bytes(html.read_bytes())
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def write_archive(folder: Path, evaluations: int) -> None:
    """Runs until there are so many evaluated workloads.

    Args:
        folder: A root.
        evaluations: A multiple of those of a run.
    """
    example = simulate(folder)
    draw = random.Random(1)
    for number in range(evaluations // (CANDIDATES * WORKLOADS * ROUNDS)):
        write_run(example, number, draw)
    for path in sorted(example.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    example.folder.rmdir()


def write_run(example: Run, number: int, draw: random.Random) -> None:
    """One run like the example, with more rounds and more candidates in each."""
    records = {each.key: each.value for each in read_journal(example.journal_path)}
    minutes = f"{number // 3600 % 24:02d}{number // 60 % 60:02d}{number % 60:02d}"
    run = example.folder.parent / f"20260101-{minutes}-gdn_decode-cpu-{number:04x}"
    run.mkdir(parents=True)
    manifest = example.manifest() | {"run": run.name}
    (run / "manifest.json").write_text(json.dumps(manifest))
    lines: list[str] = []

    def put(key: str, value: dict[str, Any]) -> None:
        head = {"schema": 1, "seq": len(lines), "time": manifest["created"], "key": key}
        lines.append(dumps(head | {"value": value}))

    uuids = [row["uuid"] for row in records["r1/result"]["sweep"]["comparison"]["workloads"]]
    for each in range(1, ROUNDS + 1):
        candidates = [
            _candidate(records["r1/result"]["candidates"][0], draw) for _ in range(CANDIDATES)
        ]
        for candidate in candidates:
            for uuid in uuids[:WORKLOADS]:
                key = f"r{each}/gate/check/{candidate['sha256'][:12]}/{uuid}/3+all"
                put(key, EVALUATION | {"uuid": uuid})
        result = records["r1/result"] | {"round": each}
        put(f"r{each}/result", result | {"candidates": [*candidates, *result["candidates"]]})
    put("finished", {"rounds": ROUNDS})
    (run / "journal.jsonl").write_text("\n".join(lines) + "\n")


def _candidate(example: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    sha256 = f"{draw.getrandbits(256):064x}"
    ratio = draw.lognormvariate(0.0, 0.2)
    comparison = {**example["gate"]["comparison"], "ratio": ratio}
    comparison["ci"] = [ratio * 0.97, ratio * 1.03]
    gate = {**example["gate"], "comparison": comparison}
    verdict = "pass" if draw.random() < 0.85 else "fail"
    name = f"{example['name']}-{sha256[:6]}"
    return {**example, "name": name, "sha256": sha256, "gate": gate, "verdict": verdict}


if __name__ == "__main__":
    main()
