"""How the index bears an archive of 100,000 evaluations: time to rebuild and to ask, and memory.

Writes an archive of that size into a temporary folder (runs of ten rounds, each with a hundred
evaluated workloads), then runs ``kopt reindex`` and ``kopt history`` as programs of their own and
takes their wall time, processor time and largest resident memory. The first ``kopt history`` of an
installation also compiles Python files; it is run once before.

    python scripts/index_scale.py [--evaluations 100000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kopt_controller.campaign import start_campaign
from kopt_controller.config import RunConfig
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_harness.archive import Run
from kopt_harness.journal import read_journal
from kopt_harness.ledger import dumps
from kopt_harness.root import Root, find_root

WORKLOADS = 100
"""Of a round."""
ROUNDS = 10
"""Of a run."""


def main() -> None:
    """Writes the archive, asks, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=100_000)
    parser.add_argument("--asks", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    root = find_root().path
    with tempfile.TemporaryDirectory(prefix="kopt-scale-") as made:
        folder = Path(made)
        for name in ("kernels", "configs"):
            (folder / name).symlink_to(root / name)
        example = simulate(folder)
        runs = arguments.evaluations // (WORKLOADS * ROUNDS)
        nbytes = sum(write_run(example, number) for number in range(runs))
        kopt(folder, "history")
        shutil.rmtree(folder / "artifacts/local/index.sqlite", ignore_errors=True)
        rebuild = kopt(folder, "reindex", "--json")
        asks = [kopt(folder, "history") for _ in range(arguments.asks)]
        found = {
            "evaluations": rebuild["document"]["evaluations"],
            "records": rebuild["document"]["records"],
            "journal_bytes": nbytes,
            "load": os.getloadavg(),
            "index_bytes": (folder / "artifacts/local/index.sqlite").stat().st_size,
            "reindex_s": rebuild["seconds"],
            "reindex_cpu_s": rebuild["cpu_s"],
            "reindex_mb": rebuild["resident_mb"],
            "history_s": sorted(ask["seconds"] for ask in asks),
            "history_cpu_s": sorted(ask["cpu_s"] for ask in asks),
            "history_mb": max(ask["resident_mb"] for ask in asks),
        }
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def simulate(folder: Path) -> Run:
    """A run of one round on a simulated device: what its manifest and result look like."""
    device = SimulatedDevice(latency_us=lambda *_: 10.0, noise=0.003)
    config = RunConfig.model_validate({"target": "cpu", "promotion": "ask"})
    campaign = start_campaign(
        Root(folder),
        "gdn_decode",
        config,
        lambda target, _: SimulatedHarness(target.name, device),
        lambda _: None,
    )
    campaign.execute()
    return campaign.run


def write_run(example: Run, number: int) -> int:
    """One run like the example, but longer; how long its journal is."""
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

    for each in range(1, ROUNDS + 1):
        for workload in range(WORKLOADS):
            sha256 = f"{number:06x}{each:06x}"
            uuid = f"{workload:08x}-0000-4000-8000-000000000000"
            put(f"r{each}/gate/check/{sha256}/{uuid}/3+all", EVALUATION | {"uuid": uuid})
        put(f"r{each}/result", records["r1/result"] | {"round": each})
    put("finished", {"rounds": ROUNDS})
    text = "\n".join(lines) + "\n"
    (run / "journal.jsonl").write_text(text)
    return len(text)


def kopt(folder: Path, *arguments: str) -> dict[str, Any]:
    """Runs a command; its document, seconds and largest resident memory."""
    argv = [sys.executable, "-m", "kopt_controller", "--root", str(folder), *arguments]
    read, write = os.pipe()
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 1)
        os.execv(sys.executable, argv)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"kopt {' '.join(arguments)} ended with status {status}")
    document = json.loads(text) if "--json" in arguments else None
    return {
        "document": document,
        "seconds": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "resident_mb": _megabytes(usage),
    }


def _megabytes(usage: resource.struct_rusage) -> float:
    return round(usage.ru_maxrss / 1024, 1)


OUTPUT = {"output": "output", "max_abs": 1e-7, "max_rel": 1e-3, "matched_ratio": 1.0, "ok": True}
EVALUATION = {
    "axes": {"batch_size": 4},
    "verdict": "pass",
    "phase": "check",
    "trials": 5,
    "reasons": [],
    "flags": [],
    "tiers": {
        tier: {
            "tier": tier,
            "verdict": "pass",
            "outputs": [
                {**OUTPUT, "output": name, "first_wrong": None, "detail": ""}
                for name in ("output", "new_state")
            ],
            "reason": None,
        }
        for tier in ("contest", "strict")
    },
    "timing": None,
}


if __name__ == "__main__":
    main()
