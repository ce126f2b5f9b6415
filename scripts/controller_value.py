"""What the controller is worth: evaluations until a setting within 5 % of the best is found.

What: on a recorded table of all settings of one solution (no measurement is repeated, so seeds
are cheap), the loop with the agent ``knobs`` against random search and, where it is installed,
Optuna's TPE. An evaluation is one new setting that is measured; repeated ones cost nothing, for
all of them. The loop sees the table through the simulated device, with noise of 1 %.
When: after a change of the policy, the supervisor, memory or the agent ``knobs``.
How: python scripts/controller_value.py record DEF SOLUTION TABLE.jsonl [--target cpu]
         [--knobs A,B]
     python scripts/controller_value.py compare DEF SOLUTION TABLE.jsonl [--seeds 20] [--json]

``record`` takes what ``kopt bench`` says of every setting on the representative workloads; it may
be stopped and goes on where it was. A line is {"settings": {...}, "us": {uuid: median} or null}.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from kopt_controller.campaign import start_campaign
from kopt_controller.config import RunConfig
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_controller.steering import STEER_FILE, Steer, append_steers
from kopt_harness.catalog import Catalog
from kopt_harness.pack import pack, read_tunables, solution_json
from kopt_harness.root import Root

WITHIN = 1.05
ROUNDS = 60
SLOW = 10.0
"""A setting that does not work takes this many times the worst; nobody should choose it."""
CHECKOUT = Path(__file__).parents[1]

Settings = dict[str, Any]


class Point(NamedTuple):
    """One setting."""

    settings: Settings
    mean_us: float
    us: Mapping[str, float]


class Problem(NamedTuple):
    """A table, and where its solution lies."""

    root: Path
    definition: str
    solution: str
    target: str
    points: tuple[Point, ...]

    @property
    def goal_us(self) -> float:
        """Mean latency that counts as found."""
        return WITHIN * min(point.mean_us for point in self.points)


def settings_of(folder: Path, knobs: Sequence[str] = ()) -> Iterator[Settings]:
    """Every setting of a solution folder.

    Args:
        folder: With its tunables.
        knobs: Those that vary, the others have their defaults; none: all vary.
    """
    tunables = read_tunables(folder)
    varying = [
        tunable.values if not knobs or name in knobs else (tunable.default,)
        for name, tunable in tunables.items()
    ]
    for values in product(*varying):
        yield dict(zip(tunables, values, strict=True))


def record(folder: Path, table: Path, target: str, knobs: Sequence[str]) -> None:
    """Measures what the table lacks, one line for each setting."""
    lines = table.read_text().splitlines() if table.exists() else []
    known = [json.loads(line)["settings"] for line in lines]
    for settings in settings_of(folder, knobs):
        if settings in known:
            continue
        packed = table.with_suffix(".candidate.json")
        packed.write_text(solution_json(pack(folder, tunables=settings).solution))
        kopt = [sys.executable, "-m", "kopt_controller", "--json", "bench", str(packed)]
        done = subprocess.run(
            [*kopt, "--target", target], capture_output=True, text=True, check=False
        )
        packed.unlink()
        rows = json.loads(done.stdout).get("workloads", []) if done.stdout else []
        us = {row["uuid"]: row["median_us"] for row in rows}
        good = done.returncode == 0 and us and None not in us.values()
        with table.open("a") as file:
            file.write(json.dumps({"settings": settings, "us": us if good else None}) + "\n")


def problem(root: Path, definition: str, solution: str, table: Path, target: str) -> Problem:
    """Reads a table; what did not work is far behind the worst."""
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    worst: dict[str, float] = {}
    for row in rows:
        for uuid, us in (row["us"] or {}).items():
            worst[uuid] = max(worst.get(uuid, 0.0), us)
    bad = {uuid: SLOW * us for uuid, us in worst.items()}
    points = []
    for row in rows:
        us = row["us"] or bad
        points.append(Point(row["settings"], statistics.fmean(us.values()), us))
    return Problem(root, definition, solution, target, tuple(points))


def by_random(given: Problem, seed: int) -> int:
    """Evaluations of a random order without repetition."""
    order = list(given.points)
    random.Random(seed).shuffle(order)
    return next(n for n, point in enumerate(order, 1) if point.mean_us <= given.goal_us)


def by_tpe(given: Problem, seed: int) -> int | None:
    """Evaluations of Optuna's TPE, repeated settings not counted; None where it is missing."""
    try:
        optuna: Any = importlib.import_module("optuna")
    except ImportError:
        return None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = list(given.points[0].settings)
    choices = {name: sorted({point.settings[name] for point in given.points}) for name in names}
    mean_us = {json.dumps(point.settings): point.mean_us for point in given.points}
    seen: dict[str, None] = {}

    def objective(trial: Any) -> float:
        picked = {name: trial.suggest_categorical(name, choices[name]) for name in names}
        key = json.dumps(picked)
        seen[key] = None
        if mean_us[key] <= given.goal_us:
            trial.study.stop()
        return mean_us[key]

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=20 * len(given.points))
    return len(seen)


def by_kopt(given: Problem, seed: int, *, without: str = "") -> int:
    """Evaluations of the loop from the default setting; that one counts as well.

    Args:
        given: The table.
        seed: Of the search and of the noise.
        without: ``directions``: every round looks at all knobs.
    """
    with tempfile.TemporaryDirectory() as place:
        root = Root(Path(place))
        folder = _lonely(given, root)
        sha = {pack(folder, tunables=p.settings).solution.sha256: p for p in given.points}
        seen: dict[str, None] = {}
        paths: list[Path] = []

        def latency_us(solution: Any, workload: Any) -> float:
            point = sha[solution.sha256]
            if solution.sha256 not in seen and point.mean_us <= given.goal_us:
                # The loop cannot know that this is good enough; a person would say so.
                append_steers(paths[0], [Steer(kind="stop", value="found")])
            seen[solution.sha256] = None
            return point.us[workload.uuid]

        uuids = tuple(given.points[0].us)
        config = RunConfig(
            target=given.target,
            rounds=ROUNDS,
            search_seed=seed,
            gate_workloads=uuids,
            sweep_workloads=uuids,
        )
        device = SimulatedDevice(latency_us=latency_us, seed=seed)
        campaign = start_campaign(
            root,
            given.definition,
            config,
            lambda target, _: SimulatedHarness(target.name, device),
            lambda _: None,
        )
        paths.append(campaign.run.folder / STEER_FILE)
        if without == "directions":
            append_steers(paths[0], [Steer(kind="recommend", value="exploration")])
        campaign.execute()
        found = (n for n, each in enumerate(seen, 1) if sha[each].mean_us <= given.goal_us)
        return next(found, len(given.points))


def _lonely(given: Problem, root: Root) -> Path:
    """The definition with this solution alone, and its defaults as the incumbent."""
    catalog = Catalog(Root(given.root))
    source = catalog.folder(catalog.resolve(given.definition))
    there = root.kernels / source.name
    shutil.copytree(source, there, ignore=shutil.ignore_patterns("solutions", "peers"))
    folder = there / "solutions" / given.solution
    shutil.copytree(source / "solutions" / given.solution, folder)
    pointer = f'[{given.target}]\nsolution = "{given.solution}"\n'
    (there / "retained.toml").write_text(pointer)
    config = folder / "config.toml"
    text = config.read_text()
    for name in given.points[0].settings:
        values = list(dict.fromkeys(point.settings[name] for point in given.points))
        # The loop may only walk where the table has been.
        pattern = rf"(\[tunables\.{re.escape(name)}\][^\[]*?values = )\[[^\]]*\]"
        # No backslash of a value is an escape of the replacement.
        written = json.dumps(values).replace("\\", r"\\")
        text = re.sub(pattern, rf"\g<1>{written}", text)
    config.write_text(text)
    return folder


METHODS: Mapping[str, Callable[[Problem, int], int | None]] = {
    "kopt": by_kopt,
    "kopt without directions": lambda given, seed: by_kopt(given, seed, without="directions"),
    "random": by_random,
    "optuna TPE": by_tpe,
}


def compare(given: Problem, seeds: int) -> dict[str, Any]:
    """Median, mean and quartiles of evaluations, by method."""
    found: dict[str, Any] = {}
    for name, method in METHODS.items():
        counts = [method(given, seed) for seed in range(seeds)]
        known = [count for count in counts if count is not None]
        if not known:
            found[name] = None
            continue
        low, middle, high = statistics.quantiles(known, n=4, method="inclusive")
        found[name] = {
            "mean": statistics.fmean(known),
            "median": middle,
            "quartiles": [low, high],
            "evaluations": known,
        }
    good = sum(point.mean_us <= given.goal_us for point in given.points)
    return {"points": len(given.points), "good": good, "seeds": seeds, "methods": found}


def main() -> int:
    """Records or compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("definition")
    parser.add_argument("solution")
    parser.add_argument("table", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--root", type=Path, default=CHECKOUT)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--knobs", default="", help="of record: that vary, with commas")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.what == "record":
        catalog = Catalog(Root(options.root))
        folder = catalog.folder(catalog.resolve(options.definition)) / "solutions"
        knobs = [name for name in options.knobs.split(",") if name]
        record(folder / options.solution, options.table, options.target, knobs)
        return 0
    given = problem(
        options.root, options.definition, options.solution, options.table, options.target
    )
    document = compare(given, options.seeds)
    if options.json:
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return 0
    sys.stdout.write(f"{document['points']} settings, {document['good']} within 5 % of the best\n")
    for name, row in document["methods"].items():
        text = "not installed"
        if row is not None:
            low, high = row["quartiles"]
            text = f"median {row['median']:g} [{low:g}, {high:g}], mean {row['mean']:.1f}"
        sys.stdout.write(f"{name:26} {text}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
