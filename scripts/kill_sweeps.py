"""Kills processes of a sweep at random moments, again and again, and looks at what is left.

A sweep of small workloads without timing is started, one of its processes gets SIGKILL after a
random time (the orchestrator, a judge, a candidate, a server that forks them), and it is resumed
where it ended, until it is complete; then the next one begins. After every kill:

* the journal is whole: the records that were there are a beginning of those that are there now,
  byte for byte, and no key is there twice;
* of an orchestrator nothing is left running.

At the end of each sweep every workload has the verdict ``pass``, but for a workload whose
candidate was killed: nobody can tell that from a candidate that kills itself, so it is ``crash``
and stays so.

    python scripts/kill_sweeps.py [--kills 200] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from kopt_harness.journal import read_journal
from kopt_harness.root import find_root

WORKLOADS = "0,1,2,3,10,11,12,13"
VICTIMS = ("orchestrator", "judge", "candidate", "server")
MAX_CANDIDATES = 2
"""Killed in one sweep; after three deaths a solution gets no further workload."""
GONE_S = 20.0
APPEARS_S = 10.0
"""How long a process of the kind that is to be killed is waited for."""


class Sweep:
    """One sweep, through all its resumptions."""

    def __init__(self, root: Path, solution: Path, number: int) -> None:
        self.folder = root / f"sweep-{number}"
        self._argv = [sys.executable, "-m", "kopt_controller", "--root", str(root), "sweep"]
        self._argv += [str(solution), "--correctness-only", "--target", "cpu", "--trials", "1"]
        self._argv += ["--workload", WORKLOADS, "--workers", "2", "--out-dir", str(self.folder)]
        self.killed: Counter[str] = Counter()
        self.process = self.start()

    @property
    def journal(self) -> Path:
        """Its records."""
        return self.folder / "journal.jsonl"

    def start(self) -> subprocess.Popen[bytes]:
        """Begins or goes on."""
        argv = [*self._argv, *(["--resume"] if self.journal.exists() else []), "--json"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.process

    def victim(self, kind: str) -> psutil.Process | None:
        """One of its processes of a kind."""
        try:
            top = psutil.Process(self.process.pid)
        except psutil.Error:
            return None
        if kind == "orchestrator":
            return top
        marks = {"judge": "kopt-worker-judge-", "candidate": "kopt-worker-candidate-"}
        mark = marks.get(kind, "_forkserver")
        found = [each for each in top.children(recursive=True) if mark in _title(each)]
        # The innermost is the worker itself, not its guards.
        return (found[0] if kind == "server" else found[-1]) if found else None


def main() -> None:
    """Kills, and prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-s", type=float, default=5.0, help="longest time before a kill")
    parser.add_argument("--budget-s", type=float, default=7200.0, help="no kill after that")
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    found: Counter[str] = Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kopt-kills-") as made:
        root = Path(made)
        checkout = find_root().path
        for name in ("kernels", "configs"):
            (root / name).symlink_to(checkout / name)
        solution = next(root.glob("kernels/gdn_decode*/solutions/torch-vectorized"))
        sweep = Sweep(root, solution, 0)
        while found["kills"] < arguments.kills and time.monotonic() < start + arguments.budget_s:
            kill_once(sweep, rng, arguments.most_s, found)
            if sweep.process.poll() is not None and finished(sweep, found):
                sweep = Sweep(root, solution, found["sweeps"])
        while sweep.process.wait() is not None and not finished(sweep, found):
            pass
    document = {**found, "seconds": round(time.monotonic() - start, 1)}
    print(json.dumps(document, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if any(found[name] for name in found if name.startswith("bad: ")):
        raise SystemExit(1)


def kill_once(sweep: Sweep, rng: random.Random, most_s: float, found: Counter[str]) -> None:
    """One kill, after a random time; none where the sweep ends before."""
    kind = rng.choice(VICTIMS)
    if kind == "candidate" and sweep.killed[kind] >= MAX_CANDIDATES:
        kind = "orchestrator"
    if not pause(sweep, rng.uniform(0.05, most_s)):
        return
    deadline = time.monotonic() + APPEARS_S
    while (victim := sweep.victim(kind)) is None and time.monotonic() < deadline:
        if not pause(sweep, 0.05):
            return
    if victim is None or not pause(sweep, rng.uniform(0, 0.5)):
        return
    before = whole(sweep.journal)
    try:
        family = psutil.Process(sweep.process.pid).children(recursive=True)
        victim.send_signal(signal.SIGKILL)
    except psutil.Error:
        return  # it has ended meanwhile
    found["kills"] += 1
    found[f"killed {kind}"] += 1
    sweep.killed[kind] += 1
    if kind == "orchestrator":
        sweep.process.wait()
        _, left = psutil.wait_procs(family, timeout=GONE_S)
        found["bad: processes left"] += len(left)
    check_journal(sweep, before, found)


def pause(sweep: Sweep, seconds: float) -> bool:
    """Waits; whether the sweep still runs."""
    deadline = time.monotonic() + seconds
    while sweep.process.poll() is None:
        if time.monotonic() >= deadline:
            return True
        time.sleep(0.01)
    return False


def finished(sweep: Sweep, found: Counter[str]) -> bool:
    """Whether it is complete; if it is not, it is resumed. Checks what it has come to."""
    out, err = sweep.process.communicate()
    records = check_journal(sweep, b"", found)
    if sweep.process.returncode < 0 or sweep.process.returncode == 3:
        found["resumed"] += 1
        sweep.start()
        return False
    found["sweeps"] += 1
    try:
        document: dict[str, Any] = json.loads(out)
        verdicts = Counter(row["verdict"] for row in document["workloads"])
    except (ValueError, KeyError):
        found["bad: no document"] += 1
        sys.stderr.write(err.decode(errors="replace"))
        return True
    found["workloads"] += sum(verdicts.values())
    crashes = verdicts.pop("crash", 0)
    found["crash of a killed candidate"] += crashes
    found["bad: crash of nobody's"] += max(0, crashes - sweep.killed["candidate"])
    expected = len(WORKLOADS.split(","))
    found["bad: missing"] += expected - crashes - sum(verdicts.values())
    found["bad: other verdict"] += sum(n for verdict, n in verdicts.items() if verdict != "pass")
    found["bad: not in the journal"] += expected - sum("/check/" in key for key in records)
    return True


def check_journal(sweep: Sweep, before: bytes, found: Counter[str]) -> list[str]:
    """Keys of all records; nothing is lost of what was there, and nothing twice."""
    keys = [record.key for record in read_journal(sweep.journal)]
    found["bad: duplicate"] += len(keys) - len(set(keys))
    if not whole(sweep.journal).startswith(before):
        found["bad: lost"] += 1
    found["torn tails kept aside"] += (
        len(list(sweep.folder.glob("*.aside-*"))) - sweep.killed["aside"]
    )
    sweep.killed["aside"] = len(list(sweep.folder.glob("*.aside-*")))
    return keys


def whole(path: Path) -> bytes:
    """The journal up to the end of its last line."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
