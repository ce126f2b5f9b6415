"""A solution against itself, live and resampled, and against slowed ones: what noise can do.

Run it on a machine that has nothing else to do, and put its Markdown into docs/measurement.md:

    python scripts/aa.py --target cpu --blocks-max 128 --slowdown 5 --json aa-cpu.json
    python scripts/aa.py --target h200 --workload all --comparisons 30

It is ``kopt calibrate --timing`` with a budget of its own, for any number of solutions of a
definition one after the other; it stores the noise floor as that does. What is complete is
kept in artifacts/local/calibrations and not measured again. Such journals, of one machine or of
several, are evaluated anywhere, without measuring:

    python scripts/aa.py --target h200 --workload all --blocks-min 3 --blocks-max 3 --no-rounds
        --calls-per-slot 2 --filled 3 --recorded FIRST.jsonl.gz --recorded SECOND.jsonl.gz

and with ``--as-rounds 16`` also as comparisons of so many rounds, each of which is a block of one
of the recorded pairs of processes. ``--spread`` instead says how much recorded rounds scatter, and
how long one took. ``--drawn 63`` says what comparisons of up to so many rounds, or blocks, decide
that are drawn out of all that is recorded.

Without ``--slowdown`` nothing is
slowed: GPU solutions cannot be.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import os
import platform
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from kopt_harness.bench.detection import failure_rate_upper
from kopt_harness.bench.resample import Recording, detectable_effect, redraw, steadied
from kopt_harness.bench.sequence import Rule
from kopt_harness.bench.stats import Levels, block_levels
from kopt_harness.bench.student import student_quantile
from kopt_harness.calibrate_timing import FILLED, calibrate_timing
from kopt_harness.catalog import Catalog
from kopt_harness.conclusion import Shape, shape_of
from kopt_harness.journal import Journal
from kopt_harness.ledger import DictLedger
from kopt_harness.noise import store_floor
from kopt_harness.options import MeasureOptions
from kopt_harness.root import find_root
from kopt_harness.schema import PairedBlock, Solution, Workload
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target, get_target
from kopt_harness.timing_report import Decisions, TimingCalibration

ENVIRONMENT = "environment"
Blocks = list[tuple[str, PairedBlock]]
"""Each with its workload's uuid, in the order in which they were measured."""
SPAN_S = 60.0
"""Device time in which a comparison on a GPU is to be decided."""
POWER = 0.95


def parser() -> argparse.ArgumentParser:
    """Options."""
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    found.add_argument("--definition", default="gdn_decode")
    found.add_argument("--target", default=None)
    found.add_argument("--solution", action="append", help="names; default: the incumbent")
    found.add_argument("--workload", action="append", help="uuid, index, rep or all; default: rep")
    found.add_argument("--comparisons", type=int, default=100, help="live, of each solution")
    found.add_argument("--resamples", type=int, default=2000)
    found.add_argument("--slowdown", type=float, action="append", help="per cent of extra work")
    found.add_argument("--slow-comparisons", type=int, default=20, help="live, of each slowdown")
    found.add_argument("--blocks-max", type=int, default=None, help="of a workload")
    found.add_argument("--blocks-min", type=int, default=None, help="before the first look")
    found.add_argument("--calls-per-slot", type=int, default=None, help="default: the target's")
    found.add_argument("--rounds", action=argparse.BooleanOptionalAction, default=None)
    found.add_argument("--rounds-ahead", type=int, default=None, help="opened side by side")
    found.add_argument("--as-rounds", type=int, default=None, help="rounds, of what is recorded")
    found.add_argument("--spread", action="store_true", help="of recorded rounds")
    found.add_argument("--drawn", type=int, default=None, help="blocks or rounds of each, at most")
    found.add_argument("--filled", type=int, default=FILLED, help="least blocks of a recording")
    found.add_argument("--budget-s", type=float, default=None, help="of one comparison")
    found.add_argument("--root", type=Path, default=None)
    found.add_argument("--recorded", type=Path, action="append", help="journals to evaluate")
    found.add_argument("--json", type=Path, default=None, help="where the documents go")
    return found


def run(setting: Setting, solution: Solution, arguments: argparse.Namespace) -> TimingCalibration:
    """One solution."""
    catalog = setting.catalog
    definition = catalog.resolve(solution.definition)
    workloads = catalog.select(definition, arguments.workload or ["rep"])
    slowdowns = [share / 100 for share in arguments.slowdown or ()]
    total = arguments.comparisons + len(slowdowns) * arguments.slow_comparisons
    begin = time.monotonic()

    def report(done: int) -> None:
        spent = time.monotonic() - begin
        left = spent / done * (total - done)
        print(f"{solution.name}: {done} of {total}, {spent:.0f} s, {left:.0f} s left", flush=True)

    options = setting.options
    parts = [setting.target.name, str(setting.environment["epoch"]), solution.sha256[:12]]
    parts.append(f"{setting.blocks_min}-{setting.blocks_max}-{options.budget_s:g}")
    parts.append(str(setting.calls_per_slot))
    place = catalog.root.local / "calibrations" / f"aa-{'-'.join(parts)}.jsonl"
    with Journal(place) as journal:
        if journal.get(ENVIRONMENT) is None:
            journal.put(ENVIRONMENT, setting.environment)
        found = calibrate_timing(
            setting,
            solution,
            workloads,
            journal,
            comparisons=arguments.comparisons,
            resamples=arguments.resamples,
            slowdowns=slowdowns,
            slow_comparisons=arguments.slow_comparisons,
            filled=arguments.filled,
            progress=report,
        )
    store_floor(catalog.root, found.floor)
    return found


def evaluate(setting: Setting, solution: Solution, arguments: argparse.Namespace) -> Any:
    """The complete comparisons of journals, one after the other, as one calibration."""
    catalog = setting.catalog
    definition = catalog.resolve(solution.definition)
    workloads = catalog.select(definition, arguments.workload or ["rep"])
    shapes = len({shape_of(workload) for workload in workloads})
    least = arguments.filled * (shapes if setting.rounds else len(workloads))
    ledger, number, environment = DictLedger(), 0, {}
    for path in arguments.recorded:
        units: dict[str, dict[str, Any]] = defaultdict(dict)
        for line in _lines(path):
            unit = json.loads(line)
            if unit["key"] == ENVIRONMENT:
                environment = unit["value"]
            elif unit["key"].startswith("aa/"):
                scope = "/".join(unit["key"].split("/")[:3])
                units[scope][unit["key"].removeprefix(f"{scope}/")] = unit["value"]
        for scope, values in units.items():
            if "wall" in values and len(values) > least:
                name = f"{scope.rpartition('/')[0]}/{number}"
                for key, value in values.items():
                    ledger.put(f"{name}/{key}", value)
                number += 1
    if number == 0:
        raise SystemExit("no comparison in these journals is complete")
    found = calibrate_timing(
        setting,
        solution,
        workloads,
        ledger,
        comparisons=number,
        resamples=arguments.resamples,
        filled=arguments.filled,
    )
    return found.model_copy(update={"environment": environment})


def as_rounds(setting: Setting, solution: Solution, arguments: argparse.Namespace) -> str:
    """What recorded pairs of processes would have said as rounds of comparisons."""
    whole = recordings_of(_workloads(setting, solution, arguments), arguments, shapes=False)
    count = arguments.as_rounds
    rule = Rule(count, count, setting.options.confidence, 0.0, rounds=True)
    return _drawn(whole, rule, arguments)


def drawn(setting: Setting, solution: Solution, arguments: argparse.Namespace) -> str:
    """What comparisons would decide that are drawn out of all recorded blocks, or rounds."""
    workloads = _workloads(setting, solution, arguments)
    found = recordings_of(workloads, arguments, shapes=setting.rounds)
    least = min(setting.blocks_min, arguments.drawn)
    rule = Rule(least, arguments.drawn, setting.options.confidence, 0.0, setting.rounds)
    # Rounds are drawn out of all recordings; blocks out of one, whose mean is noise in part.
    return _drawn(found if setting.rounds else steadied(found), rule, arguments)


def _drawn(found: list[Recording], rule: Rule, arguments: argparse.Namespace) -> str:
    each = "rounds" if rule.rounds else "blocks"
    made = redraw(found, rule, arguments.resamples)
    decisions = Counter(each.ended.look.decision for each in made)
    width = statistics.median(each.half_width for each in made)
    effect = detectable_effect(found, rule, min(arguments.resamples, 1000))
    upper = failure_rate_upper(len(made), decisions["faster"])
    return (
        f"{len(made)} comparisons of {rule.blocks_min} to {rule.blocks_max} {each} in "
        f"{rule.planned} looks or more, drawn out of {len(found)} recordings with "
        f"{sum(len(each[0]) for each in found)} of the first workload, margin 0: "
        f"{dict(decisions)}; false 'faster' below {upper:.2%} (95 %); half width {width:.2%}; "
        f"found in {POWER:.0%}: {_effect(effect)}"
    )


def _workloads(
    setting: Setting, solution: Solution, arguments: argparse.Namespace
) -> Sequence[Workload]:
    definition = setting.catalog.resolve(solution.definition)
    return setting.catalog.select(definition, arguments.workload or ["rep"])


def recordings_of(
    workloads: Sequence[Workload], arguments: argparse.Namespace, *, shapes: bool
) -> list[Recording]:
    """Of each recorded comparison the blocks of each workload, or the rounds of its shape.

    Those that lack a workload, or have few blocks of one, are left out.
    """
    least = 2 if shapes else arguments.filled
    found = []
    for path in arguments.recorded:
        for blocks, _ in _journal(path):
            if shapes:
                levels = _complete_rounds(blocks, workloads)
                whole = tuple(levels[shape_of(w)] for w in workloads) if levels else ()
            else:
                own = {w.uuid: [b for uuid, b in blocks if uuid == w.uuid] for w in workloads}
                whole = tuple(block_levels(each) for each in own.values())
            if whole and min(map(len, whole)) >= least:
                found.append(whole)
    return found


def _journal(path: Path) -> Iterator[tuple[Blocks, list[datetime]]]:
    """Of each comparison with itself its blocks, and when each was written."""
    blocks: dict[str, Blocks] = defaultdict(list)
    times: dict[str, list[datetime]] = defaultdict(list)
    for line in _lines(path):
        unit = json.loads(line)
        parts = unit["key"].split("/")
        if parts[0] == "aa" and parts[3] == "block" and "a_ns" in unit["value"]:
            fields = {name: unit["value"][name] for name in ("a_ns", "b_ns", "order")}
            blocks[parts[2]].append((parts[5], PairedBlock(**fields)))
            times[parts[2]].append(datetime.fromisoformat(unit["time"]))
    yield from ((blocks[number], times[number]) for number in blocks)


def spread(setting: Setting, solution: Solution, arguments: argparse.Namespace) -> str:
    """By how much the rounds of each journal scatter: ratios of mean latencies, all workloads."""
    workloads = _workloads(setting, solution, arguments)
    weights = Counter(shape_of(workload) for workload in workloads)
    lines = []
    every: list[list[float]] = []
    for path in arguments.recorded:
        journal = list(_journal(path))
        complete = [_complete_rounds(blocks, workloads) for blocks, _ in journal]
        ratios = [_round_ratios(each, weights) for each in complete if each]
        every += ratios
        inside = [value - statistics.fmean(each) for each in ratios for value in each]
        freedom = len(inside) - len(ratios)
        deviation = math.sqrt(sum(value * value for value in inside) / freedom)
        means = [statistics.fmean(each) for each in ratios]
        expected = deviation * math.sqrt(statistics.fmean(1 / len(each) for each in ratios))
        seconds = [(max(each) - min(each)).total_seconds() for _, each in journal]
        taken = sum(seconds) / sum(max(1, len(each) - 1) for each in ratios)
        held = int(SPAN_S / taken)
        half = _half_width(held, setting.options.confidence, deviation)
        least = half + student_quantile(POWER, held - 1) * deviation / math.sqrt(held)
        apart = "not known" if len(means) < 2 else f"{statistics.stdev(means):.2%}"
        lines.append(
            f"{path.name}: {len(ratios)} comparisons, {len(inside)} rounds of {taken:.2f} s; a "
            f"round scatters by {deviation:.2%}, means of comparisons by {apart}, "
            f"{expected:.2%} if rounds have nothing in common; "
            f"{SPAN_S:g} s hold {held}: half width {half:.2%}, found in {POWER:.0%}: {least:.2%}"
        )
    lines.append(_correlation(every))
    return "\n".join(lines)


def _correlation(ratios: list[list[float]]) -> str:
    """Of neighbouring rounds, over all comparisons."""
    products = squares = 0.0
    for each in ratios:
        residual = [value - statistics.fmean(each) for value in each]
        own = sum(value * value for value in residual)
        # Residuals from the mean of n independent values have a correlation of -1 / n.
        products += sum(a * b for a, b in itertools.pairwise(residual)) + own / len(each)
        squares += own
    error = 1 / math.sqrt(sum(len(each) - 1 for each in ratios))
    return (
        f"correlation of neighbouring rounds: {products / squares:.2f}, standard error {error:.2f}"
    )


def _half_width(rounds: int, confidence: float, deviation: float) -> float:
    return student_quantile((1 + confidence) / 2, rounds - 1) * deviation / math.sqrt(rounds)


def _complete_rounds(blocks: Blocks, workloads: Sequence[Workload]) -> dict[Shape, Levels]:
    """Times in each round that has all shapes; nothing where there is but one round."""
    by_uuid = {workload.uuid: shape_of(workload) for workload in workloads}
    shapes: dict[Shape, list[PairedBlock]] = {shape: [] for shape in by_uuid.values()}
    for uuid, block in blocks:
        shapes[by_uuid[uuid]].append(block)
    count = min(map(len, shapes.values()), default=0)
    return {s: block_levels(each[:count]) for s, each in shapes.items()} if count > 1 else {}


def _round_ratios(levels: Mapping[Any, Levels], weights: Mapping[Any, int]) -> list[float]:
    """Of each round the logarithm of B's mean latency over A's."""
    totals = sum(weight * levels[shape] for shape, weight in weights.items())
    return [math.log(b_ns / a_ns) for a_ns, b_ns in totals]


def _lines(path: Path) -> list[str]:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().splitlines()


def markdown(found: TimingCalibration) -> str:
    """A section."""
    floor = found.floor
    slowest = max(found.seconds, default=0.0)
    mean = sum(found.seconds) / max(1, len(found.seconds))
    lines = [
        f"### {floor.solution.name} on {floor.key.target}",
        "",
        f"{floor.date[:10]}, {_machine(found)}; {len(found.workloads)} workloads, up to "
        f"{floor.blocks_max} blocks of each, {floor.key.calls_per_slot} calls a slot, cache "
        f"{floor.key.cache}. A live comparison took {mean:.0f} s, at most {slowest:.0f} s.",
        "",
        "| B | margin | comparisons | faster | rate below (95 %) | slower | same | ambiguous |",
        "|---|---|---|---|---|---|---|---|",
        _row("itself, live", 0.0, found.live),
        _row("itself, live", found.margin, found.live_at_margin),
        _row("itself, resampled", 0.0, found.resampled),
        _row("itself, resampled", found.margin, found.resampled_at_margin),
    ]
    for each in found.slowdowns:
        name = f"{100 * each.extra_work:g} % more work, live (median ratio {each.median_ratio})"
        lines.append(_row(name, found.margin, each.decisions))
    lines += [
        "",
        f"Noise floor {floor.floor:.2%} (95th percentile of comparisons), half width of the "
        f"interval {floor.half_width:.2%}, spread between processes {floor.process_spread:.2%}. "
        f"Found in 95 of 100 comparisons: {_effect(found.detectable)} with the floor as margin, "
        f"{_effect(found.detectable_without_margin)} with none.",
        "",
        "| regime | noise floor |",
        "|---|---|",
        *(f"| {name} | {value:.2%} |" for name, value in floor.regimes.items()),
        "",
    ]
    return "\n".join(lines)


def _row(name: str, margin: float, found: Decisions) -> str:
    cells = [found.comparisons, found.faster, f"{found.faster_upper_95:.2%}"]
    cells += [found.slower, found.same, found.ambiguous]
    return f"| {name} | {margin:.2%} | {' | '.join(map(str, cells))} |"


def _effect(value: float | None) -> str:
    return "nothing below 200 %" if value is None else f"{value:.2%}"


def _machine(found: TimingCalibration) -> str:
    device = found.environment.get("device") or platform.machine()
    packages = found.environment.get("packages", {})
    return f"{device}, Python {platform.python_version()}, torch {packages.get('torch', '-')}"


def show(found: list[TimingCalibration], arguments: argparse.Namespace) -> None:
    """To standard output and, where wanted, into a file."""
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([each.document() for each in found], indent=1) + "\n")
    print("\n".join(markdown(each) for each in found))


def main() -> int:
    """Runs all solutions and prints their sections."""
    arguments = parser().parse_args()
    catalog = Catalog(find_root(arguments.root))
    definition = catalog.resolve(arguments.definition)
    names = ("blocks_min", "blocks_max", "calls_per_slot", "budget_s", "rounds", "rounds_ahead")
    given = {name: getattr(arguments, name) for name in names}
    options = MeasureOptions.model_validate({k: v for k, v in given.items() if v is not None})
    target = arguments.target or best_target().name
    solutions = [catalog.solution(definition, name).solution for name in arguments.solution or ()]
    incumbent = catalog.incumbent(definition, target)
    if not solutions and incumbent is not None:
        solutions.append(incumbent)
    if arguments.recorded:
        # Nothing is measured: the target need not be here.
        setting = Setting(catalog, get_target(target), options)
        if arguments.spread:
            print("\n".join(spread(setting, solution, arguments) for solution in solutions))
        if arguments.drawn:
            print("\n".join(drawn(setting, solution, arguments) for solution in solutions))
        if arguments.spread or arguments.drawn:
            return 0
        show([evaluate(setting, solution, arguments) for solution in solutions], arguments)
        if arguments.as_rounds:
            print("\n".join(as_rounds(setting, each, arguments) for each in solutions))
        return 0
    setting = Setting.here(catalog, target, options)
    if os.getloadavg()[0] > 1:
        print(f"note: the load of this machine is {os.getloadavg()[0]:.1f} already", flush=True)
    found = [run(setting, solution, arguments) for solution in solutions]
    show(found, arguments)
    return 0 if found else 2


if __name__ == "__main__":
    sys.exit(main())
