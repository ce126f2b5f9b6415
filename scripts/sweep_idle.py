"""How much of a sweep of several candidates a device is idle.

The candidates are copies of one solution whose sources differ in a comment, so that each is built
by itself. While ``kopt sweep`` runs, with a worker for each of them, the device is looked at
every 20 ms: is its lease held (``/proc/locks``), and what does NVML say of its utilisation. *Idle*
is the share of wall time, from the start of the command to its end, without a holder; *idle once
built* counts from the first lease on. Utilisation is no measure of a lease's worth: kernels of
microseconds wait for a judge that compares what they wrote, and nobody else may run meanwhile.
With ``--built`` everything is built before, as it is in a campaign that goes on.

    python scripts/sweep_idle.py --target h200 --solution cuda-recurrent [--candidates 10]
        [--workload rep] [--built] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import build
from kopt_harness.lease import CPU_DEVICE, device_lease
from kopt_harness.options import MeasureOptions
from kopt_harness.pack import load
from kopt_harness.root import Root, find_root
from kopt_harness.schema import Definition
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target

LOOK_S = 0.02


def main() -> None:
    """Sweeps once and prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definition", default="gdn_decode")
    parser.add_argument("--solution", default="cuda-recurrent")
    parser.add_argument("--target", default=None)
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("--workers", type=int, default=None, help="default: one for each")
    parser.add_argument("--workload", default="rep")
    parser.add_argument("--built", action="store_true", help="build before the sweep begins")
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    catalog = Catalog(find_root())
    setting = Setting.here(catalog, arguments.target or best_target().name, MeasureOptions())
    definition = catalog.resolve(arguments.definition)
    workers = arguments.workers or arguments.candidates
    with tempfile.TemporaryDirectory(prefix="kopt-idle-") as made:
        root = Path(made)
        for name in ("kernels", "configs"):
            (root / name).symlink_to(catalog.root.path / name)
        (root / "artifacts").mkdir()
        (root / "artifacts/retained").symlink_to(catalog.root.path / "artifacts/retained")
        origin = catalog.folder(definition) / "solutions" / arguments.solution
        folders = [copy(origin, root / f"candidate-{n}") for n in range(arguments.candidates)]
        if arguments.built:
            build_all(setting, definition, Catalog(Root(root)), folders)
        argv = [sys.executable, "-m", "kopt_controller", "--root", made, "sweep"]
        argv += [*map(str, folders), "--workers", str(workers), "--json"]
        argv += ["--target", setting.target.name, "--workload", arguments.workload]
        found = watched(argv, lock_of(setting.device_id), utilisation_of(setting.device_id))
    found |= {
        "definition": definition.name,
        "solution": arguments.solution,
        "candidates": arguments.candidates,
        "workers": workers,
        "workload": arguments.workload,
        "built": arguments.built,
        "environment": setting.environment,
    }
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def build_all(
    setting: Setting, definition: Definition, catalog: Catalog, folders: Sequence[Path]
) -> None:
    """The candidates and their incumbent, into the builds of another root, side by side."""
    incumbent = catalog.incumbent(definition, setting.target.name)
    solutions = [load(folder, known=catalog).solution for folder in folders]
    if incumbent is not None:
        solutions.append(incumbent)
    there = dataclasses.replace(setting, catalog=catalog)
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        for built in pool.map(lambda solution: build(there, solution), solutions):
            if not built.ok:
                raise SystemExit(built.log)


def copy(origin: Path, to: Path) -> Path:
    """A solution under another name and with a comment more in each source."""
    shutil.copytree(origin, to)
    config = to / "config.toml"
    text = re.sub(r'(?m)^name = ".*"$', f'name = "{to.name}"', config.read_text(), count=1)
    config.write_text(text)
    for source in (to / "solution").rglob("*.*"):
        mark = "#" if source.suffix == ".py" else "//"
        source.write_text(f"{source.read_text()}\n{mark} {to.name}\n")
    return to


def lock_of(device: str) -> Path:
    """The file whose lock is the lease: of those this process opens, the one it locks."""
    with device_lease(device):
        mine = [line.split()[5] for line in locks() if int(line.split()[4]) == os.getpid()]
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                target = descriptor.resolve()
                if target.suffix == ".lock" and inode(target) in mine:
                    return target
    raise SystemExit("this system does not list file locks in /proc/locks")


def locks() -> list[str]:
    """Locks of whole files that are held, not those waited for."""
    lines = Path("/proc/locks").read_text().splitlines()
    return [line for line in lines if line.split()[1] == "FLOCK"]


def inode(path: Path) -> str:
    """As /proc/locks writes it."""
    state = path.stat()
    return f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"


def utilisation_of(device: str) -> Callable[[], int | None]:
    """Asks NVML for the share of its last period in which a kernel ran, in per cent."""
    if device == CPU_DEVICE:
        return lambda: None
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByUUID(device)
    return lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def watched(argv: list[str], lock: Path, utilisation: Callable[[], int | None]) -> dict[str, Any]:
    """Runs a command and looks at the device meanwhile."""
    name = inode(lock)
    start = time.monotonic()
    looks: list[tuple[float, bool, int | None]] = []
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as said:
        with subprocess.Popen(argv, stdout=told, stderr=said) as sweep:
            while sweep.poll() is None:
                held = any(line.split()[5] == name for line in locks())
                looks.append((time.monotonic() - start, held, utilisation()))
                time.sleep(LOOK_S)
        wall_s = time.monotonic() - start
        told.seek(0)
        said.seek(0)
        document, log = told.read().decode(), said.read().decode()
    if sweep.returncode:
        raise SystemExit(
            f"the sweep ended with {sweep.returncode}:\n{log[-3000:]}\n{document[-2000:]}"
        )
    first = next((at for at, held, _ in looks if held), wall_s)
    busy = [use for _, _, use in looks if use is not None]
    return {
        "wall_s": wall_s,
        "first_lease_s": first,
        "idle": 1 - share(held for _, held, _ in looks),
        "idle_once_built": 1 - share(held for at, held, _ in looks if at >= first),
        "utilisation_percent": statistics.fmean(busy) if busy else None,
        "looks": len(looks),
        "sweeps": summary(json.loads(document)),
    }


def share(values: Any) -> float:
    """Of those that are true."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def summary(document: Any) -> Any:
    """Verdict and ratio of each candidate."""
    rows = document.get("sweeps", [document]) if isinstance(document, dict) else document
    return [
        {
            "verdict": row.get("verdict"),
            "decision": (row.get("comparison") or {}).get("decision"),
            "ratio": (row.get("comparison") or {}).get("ratio"),
        }
        for row in rows
        if isinstance(row, dict)
    ]


if __name__ == "__main__":
    main()
