"""Every search policy once: a campaign of a few rounds, killed and resumed, under limits.

What: for each policy a campaign on a copy of one definition, by the commands of kopt in processes
of their own. Once the first round has begun its gates the process is killed (SIGKILL), then
``kopt resume`` goes on. Printed is what came of it, and what must hold: all rounds are closed, no
record of before the kill is lost, changed or measured again, and the limits are kept.
When: after a change of a policy, the loop, the journal or the costs.
How: python scripts/policy_campaign.py [DEF] [--rounds 3] [--candidates 1] [--workload 0,18]
         [--agent knobs] [--policy pes] [--max-dollars 1] [--max-device-s 600] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kopt_controller.policies import search_names
from kopt_harness.archive import Archive, Run
from kopt_harness.catalog import Catalog
from kopt_harness.journal import read_journal
from kopt_harness.root import Root

CHECKOUT = Path(__file__).parents[1]
KOPT = (sys.executable, "-m", "kopt_controller")
PATIENCE_S = 1800.0
CONFIG = """\
[measure]
trials = 1
blocks_min = 2
blocks_max = 2
pool = 1
budget_s = 20.0

[conditions]
min_distinct_inputs = 0
validate_in_second_process = false
clean_rebuild = false
"""
"""Little is measured: the point is the way, not the decision."""


class Setup(NamedTuple):
    """What all campaigns have in common."""

    definition: str
    rounds: int
    candidates: int
    workload: str
    agent: str
    target: str
    max_dollars: float
    max_device_s: float
    root: Path
    """Of the definition."""
    start: str | None = None
    """Solution to begin with; None: the incumbent."""


def copy_of(setup: Setup, place: Path) -> Root:
    """A root with the definition alone, with the workloads that are wanted, and nothing known."""
    catalog = Catalog(Root(setup.root))
    definition = catalog.resolve(setup.definition)
    source = catalog.folder(definition)
    there = place / "kernels" / source.name
    shutil.copytree(source, there, ignore=shutil.ignore_patterns("peers", "probes", "__pycache__"))
    kept = {w.uuid for w in catalog.select(definition, setup.workload.split(","))}
    lines = (source / "workloads.jsonl").read_text().splitlines(keepends=True)
    chosen = [line for line in lines if json.loads(line)["uuid"] in kept]
    (there / "workloads.jsonl").write_text("".join(chosen))
    (place / "configs").mkdir()
    (place / "configs" / "policies.toml").write_text(CONFIG)
    if setup.start is not None:
        (there / "retained.toml").write_text(f'[{setup.target}]\nsolution = "{setup.start}"\n')
    return Root(place)


def _command(root: Root, *words: str) -> list[str]:
    return [*KOPT, "--json", "--root", str(root.path), *words]


def _start(setup: Setup, root: Root, policy: str) -> subprocess.Popen[str]:
    words = ["--config", "policies", "round", "--definition", setup.definition]
    words += ["--policy", policy, "--agent", setup.agent, "--target", setup.target]
    words += ["--rounds", str(setup.rounds), "--candidates", str(setup.candidates)]
    words += ["--promotion", "auto", "--max-dollars", str(setup.max_dollars)]
    words += ["--max-device-s", str(setup.max_device_s)]
    return subprocess.Popen(
        _command(root, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _run_of(root: Root) -> Run | None:
    runs = Archive(root.local).runs()
    return runs[-1] if runs else None


def _has_begun(root: Root) -> bool:
    """Whether the first unit of the first gate is on disk."""
    run = _run_of(root)
    if run is None or not run.journal_path.exists():
        return False
    return b'"r1/gate/' in run.journal_path.read_bytes()


def kill_once(setup: Setup, root: Root, policy: str) -> bytes:
    """Starts a campaign and kills it, and all that it has started, in its first gate.

    Returns:
        The whole records of its journal.
    """
    with _start(setup, root, policy) as child:
        limit = time.monotonic() + PATIENCE_S
        while not _has_begun(root) and child.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        if child.poll() is not None:
            said = child.stderr.read() if child.stderr is not None else ""
            raise SystemExit(f"the campaign with {policy} ended before it was killed:\n{said}")
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    run = _run_of(root)
    assert run is not None, "its journal was seen"
    journal = run.journal_path.read_bytes()
    return journal[: journal.rfind(b"\n") + 1]


def resume(root: Root) -> dict[str, Any]:
    """Goes on to the end; the document of the command."""
    done = subprocess.run(
        _command(root, "resume"), capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    if done.returncode != 0:
        raise SystemExit(f"kopt resume failed with {done.returncode}:\n{done.stderr[-4000:]}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def campaign(setup: Setup, policy: str, builds: Path) -> dict[str, Any]:
    """One policy: killed, resumed, and what must hold.

    Args:
        setup: Of all of them.
        policy: Which.
        builds: Build cache that is handed on from one to the next; it is keyed by content.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        root = copy_of(setup, Path(place))
        if builds.is_dir():
            shutil.copytree(builds, root.local / "builds")
        before = kill_once(setup, root, policy)
        document = resume(root)
        run = _run_of(root)
        assert run is not None, "it was resumed"
        shutil.copytree(root.local / "builds", builds, dirs_exist_ok=True)
        journal = run.journal_path.read_bytes()
        keys = [record.key for record in read_journal(run.journal_path)]
        rounds = document["rounds"]
        cost = document["cost"]
        checkpoints = sorted(run.folder.glob("database/checkpoints/*/metadata.json"))
        checks = {
            "all rounds are closed": len(rounds) == setup.rounds,
            "records of before the kill stand": journal.startswith(before),
            "no unit twice": len(keys) == len(set(keys)),
            "policy is on record": all(each["policy"] == policy for each in rounds),
            "a checkpoint a round, for pes alone": len(checkpoints)
            == (setup.rounds if policy == "pes" else 0),
            "device seconds within the limit": cost["device_s"] <= setup.max_device_s,
            "dollars within the limit": cost["total"]["dollars"] <= setup.max_dollars,
        }
        return {
            "policy": policy,
            "checks": checks,
            "records_before": before.count(b"\n"),
            "records": len(keys),
            "rounds": [_row(each) for each in rounds],
            "device_s": round(cost["device_s"], 1),
            "wall_s": round(time.monotonic() - start, 1),
        }


def _row(result: dict[str, Any]) -> dict[str, Any]:
    return {
        "direction": result["direction"]["id"],
        "candidates": [each["name"] for each in result["candidates"]],
        "decision": result["decision"]["label"],
        "committed": result["committed"],
        "parent": None if result["parent"] is None else result["parent"]["name"],
        "incumbent": result["incumbent"]["name"],
    }


def show(found: Sequence[dict[str, Any]]) -> None:
    """For a person."""
    for each in found:
        sys.stdout.write(
            f"{each['policy']}: killed after {each['records_before']} records, "
            f"{each['records']} in the end, {each['device_s']} s of the device, "
            f"{each['wall_s']} s in all\n"
        )
        for number, row in enumerate(each["rounds"], 1):
            names = ", ".join(row["candidates"]) or "nothing"
            start = "" if row["parent"] is None else f" from {row['parent']}"
            sys.stdout.write(
                f"  {number} {row['direction']}{start}: {names}: {row['decision']}"
                f"{', committed' if row['committed'] else ''}, then {row['incumbent']}\n"
            )
        for what, holds in each["checks"].items():
            sys.stdout.write(f"  {'ok' if holds else 'NO'} {what}\n")


def main() -> int:
    """Runs them; 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("definition", nargs="?", default="gdn_decode")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--candidates", type=int, default=1)
    parser.add_argument("--workload", default="0,18")
    parser.add_argument("--agent", default="knobs")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--start", default=None)
    parser.add_argument("--policy", action="append", choices=search_names())
    parser.add_argument("--max-dollars", type=float, default=1.0)
    parser.add_argument("--max-device-s", type=float, default=600.0)
    parser.add_argument("--root", type=Path, default=CHECKOUT)
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args())
    policies, as_json = options.pop("policy") or search_names(), options.pop("json")
    setup = Setup(**options)
    found = []
    with tempfile.TemporaryDirectory() as place:
        for policy in policies:
            found.append(campaign(setup, policy, Path(place) / "builds"))
            sys.stderr.write(f"{json.dumps(found[-1])}\n")
    if as_json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    else:
        show(found)
    return 0 if all(all(each["checks"].values()) for each in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
