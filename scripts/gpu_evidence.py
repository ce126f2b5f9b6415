"""Most of what docs/ says of a GPU, measured anew on the GPU that is here.

Three kinds of jobs, each a command of its own that can be run by hand (``--list`` prints them):

* *right*: null kernels on all workloads, trials of all solutions. They time nothing and run side
  by side, as many as there are processors for.
* *timed*: timers against each other, idle time of a sweep, phases and speed of a sweep, a solution
  against itself. One after the other, alone.
* *rounds*: one round for each definition, with its solutions for GPUs and those of ``--also`` in
  the inbox and all peers that are installed as baselines, plain and from a CUDA graph. One after
  the other; what they promote is copied.

Output, records and journals go to ``--out``; what a job leaves there is whole lines even if its
time ends. A solution that fails here fails its job and no other.

    python scripts/gpu_evidence.py --out evidence [--target h200] [--job NAME ...] [--also DIR ...]
        [--job-s 300] [--list]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from kopt_harness.baselines import find_baseline, peer_names, require_usable
from kopt_harness.catalog import Catalog
from kopt_harness.errors import KoptError
from kopt_harness.graphed import graphed
from kopt_harness.pack import load
from kopt_harness.root import find_root
from kopt_harness.schema import Definition
from kopt_harness.targets import Target, best_target, get_target, runs_on

END_S = 20.0
"""A job that is asked to end has so long to write what it has."""
SHARDS = 4


class Job(NamedTuple):
    """One command."""

    name: str
    kind: str
    """``right``, ``timed`` or ``rounds``."""
    argv: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    """What of artifacts/ is copied when it has ended."""


def main() -> int:
    """Runs the jobs; 1 if one of them failed or did not end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", default=None, help="default: the best one here")
    parser.add_argument("--job", action="append", help="its name, or the beginning of it")
    parser.add_argument("--also", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--job-s", type=float, default=300.0, help="of each job, at most")
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    arguments = parser.parse_args()
    catalog = Catalog(find_root())
    target = get_target(arguments.target) if arguments.target else best_target()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    jobs = [
        job
        for job in make_jobs(catalog, target, out, arguments.also)
        if not arguments.job or any(job.name.startswith(name) for name in arguments.job)
    ]
    if arguments.list:
        print("\n".join(f"{job.name}: {' '.join(job.argv)}" for job in jobs))
        return 0
    side_by_side = [job for job in jobs if job.kind == "right"]
    with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)) - 1)) as pool:
        run = [pool.submit(perform, job, out, arguments.job_s, catalog) for job in side_by_side]
        codes = [each.result() for each in run]
    codes += [
        perform(job, out, arguments.job_s, catalog) for job in jobs if job not in side_by_side
    ]
    return int(any(codes))


def make_jobs(catalog: Catalog, target: Target, out: Path, also: list[Path]) -> list[Job]:
    """All of them, in the order in which they are worth their time."""
    python, here = sys.executable, Path(__file__).parent
    on = ("--target", target.name)
    jobs = []
    for definition in catalog.definitions():
        alias = definition.kopt.alias
        for shard in range(1, SHARDS + 1):
            name = f"calibrate-{alias}-{shard}"
            argv = (python, str(here / "calibrate_all.py"), "--definition", alias, *on)
            record = ("--shard", f"{shard}/{SHARDS}", "--jsonl", str(out / f"{name}.jsonl"))
            jobs.append(Job(name, "right", (*argv, *record)))
        for solution in catalog.solution_names(definition):
            if runs_on(catalog.solution(definition, solution).solution, target):
                name = f"honest-{alias}-{solution}"
                argv = (python, str(here / "honest_trials.py"), "--definition", alias, *on)
                record = ("--solution", solution, "--out-dir", str(out / name))
                jobs.append(Job(name, "right", (*argv, *record)))
    for name, words in (
        ("timers", ("compare_timers.py",)),
        # Against an incumbent that is far slower, so that no candidate needs many rounds.
        ("idle", ("sweep_idle.py", "--definition", "dsa_attention", "--solution", "cuda-split")),
        ("speed", ("sweep_speed.py",)),
        ("phases", ("sweep_phases.py",)),
        ("aa", ("aa.py", "--workload", "all", "--comparisons", "30")),
    ):
        argv = (python, str(here / words[0]), *words[1:], *on, "--json", str(out / f"{name}.json"))
        kept = ("local/calibrations",) if name == "aa" else ()
        jobs.append(Job(name, "timed", argv, kept))
    for definition in catalog.definitions():
        job = round_job(catalog, definition, target, out, also)
        if job is not None:
            jobs.append(job)
    return jobs


def round_job(
    catalog: Catalog, definition: Definition, target: Target, out: Path, also: list[Path]
) -> Job | None:
    """A round with what there is of a definition; None where nothing is for the target alone."""
    alias = definition.kopt.alias
    folder = catalog.folder(definition) / "solutions"
    found = [folder / name for name in catalog.solution_names(definition)]
    found += [each for each in also if load(each).solution.definition == definition.name]
    chosen = [each for each in found if is_for(each, target)]
    if not chosen:
        return None
    inbox = out / f"inbox-{alias}"
    shutil.rmtree(inbox, ignore_errors=True)
    for each in chosen:
        shutil.copytree(each, inbox / each.name)
    baselines = usable(catalog, definition, target)
    config = out / f"round-{alias}.toml"
    config.write_text(f"rounds = 1\n[measure]\nbaselines = {json.dumps(baselines)}\n")
    argv = [sys.executable, "-m", "kopt_controller", "round", "--definition", alias]
    argv += ["--target", target.name, "--config", str(config), "--agent", "inbox"]
    argv += ["--inbox", str(inbox), "--candidates", str(len(chosen)), "--promotion", "auto"]
    return Job(f"round-{alias}", "rounds", tuple(argv), ("retained", "local/runs"))


def is_for(folder: Path, target: Target) -> bool:
    """Whether a solution runs on the target, and was written for its kind."""
    solution = load(folder).solution
    special = solution.spec.language != "python" or target.kind == "cpu"
    return special and runs_on(solution, target)


def usable(catalog: Catalog, definition: Definition, target: Target) -> list[str]:
    """Peers whose packages are here, plain and replayed."""
    found = []
    for name in peer_names(catalog, definition):
        try:
            peer = find_baseline(catalog, definition, name)
            require_usable(peer, target)
            found.append(name)
            graphed(peer)
            found.append(f"{name}@graph")
        except KoptError as error:
            print(f"{definition.kopt.alias}: {name}: {error.message}", file=sys.stderr)
    return found


def perform(job: Job, out: Path, most_s: float, catalog: Catalog) -> int:
    """Runs one, within its time; its exit code."""
    start = time.monotonic()
    with (out / f"{job.name}.txt").open("wb") as log:
        child = subprocess.Popen(job.argv, stdout=log, stderr=subprocess.STDOUT)
        try:
            code = child.wait(most_s)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            try:
                code = child.wait(END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                code = child.wait()
    for name in job.keeps:
        source = catalog.root.path / "artifacts" / name
        if source.exists():
            shutil.copytree(source, out / job.name / name, dirs_exist_ok=True)
    print(f"{job.name}: {code} after {time.monotonic() - start:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
