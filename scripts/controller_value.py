"""What the controller is worth: evaluations until a setting within 5 % of the best is found.

What: on a recorded table of all settings of one solution (scripts/settings_table.py makes one; no
measurement is repeated, so seeds are cheap), the loop with the agent ``knobs`` against random
search and, where they are installed, Optuna's TPE and the strategies of kernel_tuner. The same
loop without its memory and without its choice of a direction, and what a dispatcher over one axis
would add. An evaluation is one setting that was not measured before, for all of them; the loop
starts at the defaults, which count as its first. The loop sees the table through the simulated
device, with noise; the others see it as it is, and start anew where they end without success.
With ``--starts`` every seed of the loop starts at another setting, drawn from the middle half of
the table: the defaults are one start of many.
When: after a change of the policy, the supervisor, memory or the agent ``knobs``.
How: python scripts/controller_value.py DEF SOLUTION TABLE.jsonl.gz [--seeds 40] [--noise 0.01]
         [--starts] [--only kopt] [--json]
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import random
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from kopt_controller.agents import Agent, Proposals, RoundBrief
from kopt_controller.campaign import start_campaign
from kopt_controller.config import RunConfig
from kopt_controller.memory import Memory, RoundMemory
from kopt_controller.policy import Policy
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_controller.steering import STEER_FILE, Steer, append_steers
from kopt_controller.world import World
from kopt_harness.catalog import Catalog
from kopt_harness.pack import pack
from kopt_harness.root import Root
from other_tuners import KERNEL_TUNER, by_kernel_tuner, by_tpe

WITHIN = 1.05
ROUNDS = 80
SLOW = 10.0
"""A setting that does not work takes this many times the worst; nobody should choose it."""
BOOTSTRAPS = 2000
RESTART = 1_000_003
"""Added to the seed where a search has ended without success."""
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
    noise: float = 0.01
    """Of a sample that the loop sees, relative."""
    anywhere: bool = False
    """Whether the loop starts at a setting that its seed draws, not at the defaults."""

    @property
    def goal_us(self) -> float:
        """Mean latency that counts as found."""
        return WITHIN * min(point.mean_us for point in self.points)


def read_table(table: Path) -> list[dict[str, Any]]:
    """Lines of a table, also of a compressed one."""
    content = table.read_bytes()
    text = (gzip.decompress(content) if table.suffix == ".gz" else content).decode()
    return [json.loads(line) for line in text.splitlines()]


def problem(root: Path, definition: str, solution: str, table: Path, target: str) -> Problem:
    """Reads a table; what did not work is far behind the worst."""
    rows = read_table(table)
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


def by_other(given: Problem, seed: int, *, search: Callable[..., Any]) -> int | None:
    """Evaluations of a search of another package; None where it is missing."""
    rows = [(point.settings, point.mean_us) for point in given.points]
    mean_us = {_key(settings): us for settings, us in rows}
    seen: dict[str, None] = {}
    for attempt in range(len(rows)):
        found = search(rows, given.goal_us, seed + attempt * RESTART)
        if found is None:
            return None
        for settings in found:
            seen[_key(settings)] = None
            if mean_us[_key(settings)] <= given.goal_us:
                return len(seen)
    return len(rows)


def _key(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True)


class Walk(NamedTuple):
    """What the loop has measured, in order."""

    settings: tuple[Point, ...]
    found_at: int


def start_of(given: Problem, seed: int) -> Settings | None:
    """Where the loop starts, in the middle half of the table; None: at the defaults."""
    order = sorted(given.points, key=lambda point: point.mean_us)
    middle = order[len(order) // 4 : len(order) - len(order) // 4]
    return random.Random(f"start/{seed}").choice(middle).settings if given.anywhere else None


def by_kopt(given: Problem, seed: int, *, without: str = "") -> int:
    """Evaluations of the loop from the default setting; that one counts as well.

    Args:
        given: The table.
        seed: Of the search and of the noise.
        without: ``directions``: every round looks at all knobs; ``memory``: neither the agent nor
            the policy knows what a measurement has shown, only that it was made.
    """
    return walk(given, seed, without=without).found_at


def walk(given: Problem, seed: int, *, without: str = "") -> Walk:
    """The settings that the loop measures until it has found the goal."""
    with tempfile.TemporaryDirectory() as place:
        root = Root(Path(place))
        folder = lonely(given, root, start_of(given, seed))
        sha = {sha256_of(given, folder, p): p for p in given.points}
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
        )
        device = SimulatedDevice(latency_us=latency_us, seed=seed, noise=given.noise)
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
        campaign._replace(adapt=_forgetful if without == "memory" else None).execute()
        walked = tuple(sha[each] for each in seen)
        found = (n for n, point in enumerate(walked, 1) if point.mean_us <= given.goal_us)
        return Walk(walked, next(found, len(given.points)))


_SHA256: dict[str, str] = {}
"""By solution and settings: the same in every walk, and packing takes longer than the walk."""


def sha256_of(given: Problem, folder: Path, point: Point) -> str:
    """The hash of a setting; packed once."""
    key = f"{given.root}/{given.definition}/{given.solution}/{_key(point.settings)}"
    if key not in _SHA256:
        _SHA256[key] = pack(folder, tunables=point.settings).solution.sha256
    return _SHA256[key]


def _forgetful(world: World) -> World:
    """A campaign whose agent and policy do not know what came of what was measured."""
    agent, policy = world.agent, world.policy

    class _Agent:
        name = agent.name

        def propose(self, brief: RoundBrief) -> Proposals:
            return agent.propose(brief._replace(memory=_bare(brief.memory)))

    class _Policy:
        name = policy.name

        def rank(self, state: Any, directions: Any, memory: Memory, *rest: Any, **more: Any) -> Any:
            return policy.rank(state, directions, _bare(memory), *rest, **more)

    new_agent: Agent = _Agent()
    new_policy: Policy = _Policy()
    return dataclasses.replace(world, agent=new_agent, policy=new_policy)


def _bare(memory: Memory) -> Memory:
    """That something was measured, and nothing of what was found."""
    empty = {"ratio": None, "ci": None}

    def bare(past: RoundMemory) -> RoundMemory:
        trials = tuple(trial.model_copy(update=empty) for trial in past.trials)
        return past.model_copy(update={"trials": trials, "promoted": False, "swept": None} | empty)

    rounds = tuple(bare(past) for past in memory.rounds)
    # Without ratios nothing tells that an incumbent was timed: it must not be proposed again.
    timed = {past.incumbent for past in memory.rounds}
    return memory.model_copy(update={"rounds": rounds}).refusing(timed)


def lonely(given: Problem, root: Root, start: Settings | None = None) -> Path:
    """The definition with this solution alone, and its defaults, or the start, as incumbent."""
    catalog = Catalog(Root(given.root))
    source = catalog.folder(catalog.resolve(given.definition))
    there = root.kernels / source.name
    shutil.copytree(source, there, ignore=shutil.ignore_patterns("solutions", "peers"))
    folder = there / "solutions" / given.solution
    shutil.copytree(source / "solutions" / given.solution, folder)
    pointer = f'[{given.target}]\nsolution = "{given.solution}"\n'
    (there / "retained.toml").write_text(pointer)
    lines = (there / "workloads.jsonl").read_text().splitlines(keepends=True)
    # A sweep is whole where it has all workloads, and the table has not.
    kept = [line for line in lines if json.loads(line)["uuid"] in given.points[0].us]
    (there / "workloads.jsonl").write_text("".join(kept))
    config = folder / "config.toml"
    text = config.read_text()
    for name in given.points[0].settings:
        values = list(dict.fromkeys(point.settings[name] for point in given.points))
        text = _confined(text, name, values, None if start is None else start[name])
    config.write_text(text)
    return folder


def _confined(text: str, name: str, values: Sequence[Any], start: Any = None) -> str:
    """A configuration in which a knob has only these values: the loop walks where the table is."""
    # No backslash of a value is an escape of the replacement.
    written = json.dumps(values).replace("\\", r"\\")
    table = rf"(?s)(\[tunables\.{re.escape(name)}\].*?"
    text = re.sub(rf"{table}values = )\[[^\]]*\]", rf"\g<1>{written}", text)
    default = re.search(rf"{table}default = )(\S+)", text)
    if default is not None and (start is not None or json.loads(default[2]) not in values):
        chosen = values[(len(values) - 1) // 2] if start is None else start
        first = json.dumps(chosen).replace("\\", r"\\")
        text = re.sub(rf"{table}default = )\S+", rf"\g<1>{first}", text)
    return text


def dispatch_gain(given: Problem, walked: Sequence[Point]) -> float:
    """Share of the mean latency that one rule over the work would win at the end of a walk.

    Of the settings that the loop has measured: the best one alone, against the best two with
    all workloads up to one of them for the first and the rest for the second.
    """
    order = sorted(walked[0].us, key=lambda uuid: min(point.us[uuid] for point in given.points))
    alone = min(point.mean_us for point in walked)
    best = alone
    for cut in range(1, len(order)):
        low, high = order[:cut], order[cut:]
        parts = (min(sum(p.us[uuid] for uuid in side) for p in walked) for side in (low, high))
        best = min(best, sum(parts) / len(order))
    return 1 - best / alone


METHODS: Mapping[str, Callable[[Problem, int], int | None]] = {
    "kopt": by_kopt,
    "kopt without memory": partial(by_kopt, without="memory"),
    "kopt without directions": partial(by_kopt, without="directions"),
    "random": by_random,
    "optuna TPE": partial(by_other, search=by_tpe),
    **{
        f"kernel_tuner {name}": partial(by_other, search=partial(by_kernel_tuner, strategy=name))
        for name in KERNEL_TUNER
    },
}


def summary(counts: Sequence[int]) -> dict[str, Any]:
    """Median, quartiles, and the mean with its interval at 95 % (bootstrap over seeds)."""
    low, middle, high = statistics.quantiles(counts, n=4, method="inclusive")
    rng = random.Random(0)
    means = sorted(statistics.fmean(rng.choices(counts, k=len(counts))) for _ in range(BOOTSTRAPS))
    interval = [means[BOOTSTRAPS // 40], means[-BOOTSTRAPS // 40]]
    return {
        "mean": statistics.fmean(counts),
        "mean_ci": interval,
        "median": middle,
        "quartiles": [low, high],
        "evaluations": list(counts),
    }


def compare(given: Problem, seeds: int, only: str = "") -> dict[str, Any]:
    """A summary of evaluations by method, and the gain of a dispatcher.

    Args:
        given: The table.
        seeds: How many, from 0.
        only: Beginnings of the names of methods, with commas; empty: all.
    """
    found: dict[str, Any] = {}
    gains: list[float] = []
    for name, method in METHODS.items():
        if not name.startswith(tuple(only.split(","))):
            continue
        if name == "kopt":
            walks = [walk(given, seed) for seed in range(seeds)]
            counts: list[int | None] = [each.found_at for each in walks]
            gains = [dispatch_gain(given, each.settings) for each in walks]
        else:
            counts = [method(given, seed) for seed in range(seeds)]
        known = [count for count in counts if count is not None]
        found[name] = summary(known) if known else None
    good = sum(point.mean_us <= given.goal_us for point in given.points)
    return {
        "points": len(given.points),
        "good": good,
        "seeds": seeds,
        "noise": given.noise,
        "starts": "drawn" if given.anywhere else "defaults",
        "methods": found,
        "dispatch_gain": statistics.fmean(gains) if gains else None,
    }


def main() -> int:
    """Compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("definition")
    parser.add_argument("solution")
    parser.add_argument("table", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--root", type=Path, default=CHECKOUT)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--starts", action="store_true", help="every seed starts elsewhere")
    parser.add_argument("--only", default="", help="beginnings of the names of methods")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    named = (options.root, options.definition, options.solution, options.table, options.target)
    given = problem(*named)._replace(noise=options.noise, anywhere=options.starts)
    document = compare(given, options.seeds, options.only)
    if options.json:
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return 0
    sys.stdout.write(f"{document['points']} settings, {document['good']} within 5 % of the best\n")
    for name, row in document["methods"].items():
        text = "not installed"
        if row is not None:
            (low, high), (first, last) = row["quartiles"], row["mean_ci"]
            text = f"median {row['median']:g} [{low:g}, {high:g}], "
            text += f"mean {row['mean']:.1f} [{first:.1f}, {last:.1f}]"
        sys.stdout.write(f"{name:32} {text}\n")
    if document["dispatch_gain"] is not None:
        sys.stdout.write(f"a dispatcher of two: {document['dispatch_gain']:.1%} less\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
