"""Times every setting of a C++ solution on the CPU, for scripts/controller_value.py.

What: an exhaustive table over chosen values of the tunables. All settings are built first, with
the flags of ``kopt`` and precompiled system headers; then all are timed in passes, each pass in
another order, so that what slows the machine for minutes slows no setting more than another. The
time of a setting on a workload is the median over passes of the fastest call in a pass, after what
the machine did to the settings that were timed just before and after it is taken out: a running
median of how much slower than themselves these were, among those alike in the knob ``--alike``.
Every call finds its caches evicted. Outputs of every setting on the first workloads are held
against the reference in the first pass. This is a record for comparing searches, no judgement:
nothing runs in a sandbox.
When: once, on a machine that does little else.
How: python scripts/settings_table.py DEF SOLUTION TABLE.jsonl.gz --folder BUILDS
         [--values ROWS=1,2,4] [--runtime THREADS] [--alike THREADS] [--workload 4]
         [--passes 7] [--calls 5] [--clock thread] [--estimate-only]

A knob that is named with ``--runtime`` is compiled as a variable, so that one build serves all of
its values: for knobs outside of inner loops, like the number of threads. A knob without
``--values`` takes all that it declares. A line of the table is {"settings": {...}, "us": {uuid:
...} or null, "passes_us": {uuid: [...]}}. A build that exists is not made again;
``--estimate-only`` reads the passes of a table and computes ``us`` anew.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import importlib.util
import itertools
import json
import math
import random
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import tvm_ffi
from kopt_harness.build import get_builder
from kopt_harness.build.protocol import BuildRequest
from kopt_harness.catalog import Catalog
from kopt_harness.check import check_outputs, compare_contest, compare_strict
from kopt_harness.pack import pack, read_tunables
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Solution, Workload
from kopt_harness.tunables import Tunable

CHECKOUT = Path(__file__).parents[1]
FLUSH_BYTES = 64 << 20
"""Written before every call, as the timer of the target cpu does."""
CLOCKS: Mapping[str, Callable[[], int]] = {
    "wall": time.perf_counter_ns,
    "thread": time.thread_time_ns,
}
"""``thread`` leaves out what other programs take of a processor: for calls of one thread alone."""
NEAR = 10
"""Settings before and after, that say what the machine did."""
ROUNDS = 2
"""Of taking it out: medians get better once it is."""
CHECKED = 2
"""Workloads, the first of those asked for, whose outputs are compared: it takes longer than a
call, and settings of one source do not differ in what they compute."""
_SYSTEM_HEADER = re.compile(r"^#include (<[^>]+>)$", re.MULTILINE)

Settings = dict[str, Any]
Passes = dict[str, list[float]]
"""The fastest call of every pass, in microseconds, by workload."""


class Build(NamedTuple):
    """One setting, and its shared object where it was built."""

    settings: Settings
    solution: Solution
    library: Path
    runtime: Mapping[str, int] = {}  # a NamedTuple's default, never changed
    """Knobs that are variables of the library."""


class Case(NamedTuple):
    """Inputs of a workload, what comes of them, and room for outputs."""

    workload: Workload
    inputs: dict[str, Any]
    exact: dict[str, Any]
    outputs: dict[str, Any]


def settings_of(tunables: Mapping[str, Tunable], chosen: Sequence[str]) -> Iterator[Settings]:
    """Every combination of the chosen values; what is not named takes all of its values.

    Args:
        tunables: Of the solution.
        chosen: Each ``NAME=VALUE,VALUE``; every value one that the knob declares.
    """
    values = {name: tuple(tunable.values) for name, tunable in tunables.items()}
    for text in chosen:
        name, _, given = text.partition("=")
        known = {str(value): value for value in values[name]}
        values[name] = tuple(known[each] for each in given.split(","))
    for row in itertools.product(*values.values()):
        yield dict(zip(values, row, strict=True))


def flags_of(solution: Solution) -> tuple[str, ...]:
    """The compiler's flags, as kopt gives them."""
    request = BuildRequest(solution=solution, target="cpu", kind="cpu", arch=None)
    return get_builder("cpp").plan(request).flags


def precompile(solution: Solution, folder: Path) -> Path:
    """System headers of the sources, compiled once: most of the time goes into them."""
    names = {name: None for s in solution.sources for name in _SYSTEM_HEADER.findall(s.content)}
    header = folder / "system.h"
    header.write_text("".join(f"#include {name}\n" for name in names))
    flags = [flag for flag in flags_of(solution) if flag.startswith(("-O", "-m", "-s", "-f", "-I"))]
    flags = [flag for flag in flags if flag != "-shared"]
    command = ["g++", "-x", "c++-header", str(header), *flags, "-pthread", "-Wall"]
    subprocess.run([*command, "-o", f"{header}.gch"], cwd=folder, check=True)
    return header


def compile_one(build: Build, header: Path) -> None:
    """One shared object; where it does not build, none is left."""
    place = build.library.parent
    if build.library.exists():
        return
    for source in build.solution.sources:
        path = place / "src" / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = source.content
        for name in build.runtime if source.path == "tunables.h" else ():
            variable = f'extern "C" {{ int kopt_{name} = 0; }}\n#define KOPT_{name} kopt_{name}'
            text = re.sub(rf"#define KOPT_{name} .*", variable, text)
        path.write_text(text)
    units = [f"src/{s.path}" for s in build.solution.sources if s.path.endswith(".cpp")]
    command = ["g++", "-include", str(header), *units, *flags_of(build.solution)]
    # The object appears whole or not at all: the script may be stopped and started again.
    subprocess.run([*command, "-o", "partly.so"], cwd=place, check=False, capture_output=True)
    if (place / "partly.so").exists():
        (place / "partly.so").rename(build.library)


def load_module(path: Path) -> ModuleType:
    """A file of a definition's folder."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def case_of(definition: Definition, folder: Path, workload: Workload) -> Case:
    """Typical inputs of a workload, from a fixed seed."""
    axes = definition.bind(workload.axes)
    generator = next(iter(load_module(folder / "inputs.py").GENERATORS.values()))
    drawn = generator.draw(axes, torch.Generator().manual_seed(workload.index))
    inputs = {name: drawn[name] for name in definition.inputs}
    exact = load_module(folder / "reference.py").precise(*inputs.values())
    found = dict(zip(definition.outputs, exact, strict=True))
    outputs = {
        name: torch.empty(exact.shape, dtype=getattr(torch, definition.outputs[name].dtype))
        for name, exact in found.items()
    }
    return Case(workload, inputs, found, outputs)


def is_right(definition: Definition, case: Case) -> bool:
    """Whether the outputs pass both tiers."""
    axes = definition.bind(case.workload.axes)
    if check_outputs(definition, axes, case.outputs):
        return False
    tiers = (
        compare_contest(definition, case.exact, case.outputs),
        compare_strict(definition, case.exact, case.outputs),
    )
    return all(tier.verdict == "pass" for tier in tiers)


def fastest_us(
    run: Any, case: Case, calls: int, flush: torch.Tensor, clock_ns: Callable[[], int]
) -> float:
    """The fastest of some calls, each with caches evicted."""
    arguments = [
        tvm_ffi.from_dlpack(x) if isinstance(x, torch.Tensor) else x
        for x in (*case.inputs.values(), *case.outputs.values())
    ]
    found = []
    for number in range(calls):
        flush.fill_(number)
        start_ns = clock_ns()
        run(*arguments)
        found.append(clock_ns() - start_ns)
    return min(found) / 1e3


def measure(
    definition: Definition,
    builds: Sequence[Build],
    cases: Sequence[Case],
    options: argparse.Namespace,
) -> list[Passes | None]:
    """Of each build the fastest call of every pass by workload; None where it is not right."""
    rows: list[Passes | None] = [
        {case.workload.uuid: [] for case in cases} if build.library.exists() else None
        for build in builds
    ]
    functions: dict[Path, Any] = {}
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8)
    start = time.monotonic()
    for number in range(options.passes):
        for index in order_of(rows, number):
            row = rows[index]
            assert row is not None, index
            build = builds[index]
            if build.library not in functions:
                module = tvm_ffi.load_module(str(build.library))
                functions[build.library] = getattr(module, build.solution.spec.entry_function)
            for name, value in build.runtime.items():
                ctypes.c_int.in_dll(ctypes.CDLL(str(build.library)), f"kopt_{name}").value = value
            for case in cases:
                run = functions[build.library]
                us = fastest_us(run, case, options.calls, flush, CLOCKS[options.clock])
                row[case.workload.uuid].append(us)
            if number == 0 and not all(is_right(definition, case) for case in cases[:CHECKED]):
                rows[index] = None
        write(options.table, [build.settings for build in builds], rows, options.alike)
        spent_s = time.monotonic() - start
        print(f"pass {number + 1} of {options.passes}: {spent_s:.0f} s", flush=True)
        if spent_s * (number + 2) / (number + 1) > options.limit_s:
            break
    return rows


def order_of(rows: Sequence[Passes | None], number: int) -> list[int]:
    """In which order a pass times what is right."""
    order = list(range(len(rows)))
    random.Random(number).shuffle(order)
    return [index for index in order if rows[index] is not None]


def settled(
    rows: Sequence[Passes | None], groups: Sequence[Any], numbers: Sequence[int] | None = None
) -> list[dict[str, float] | None]:
    """The time of each setting by workload; see above.

    Args:
        rows: Fastest call of every pass; all of them in every pass, as ``order_of`` says.
        groups: Of each setting: settings of one group are slowed alike.
        numbers: Of the passes that count; None: all.
    """
    found: list[dict[str, float] | None] = [None if row is None else {} for row in rows]
    known = [index for index, row in enumerate(rows) if row is not None]
    for uuid in next(row for row in rows if row is not None):
        logs = {i: [math.log(us) for us in (rows[i] or {})[uuid]] for i in known}
        counted = range(len(next(iter(logs.values())))) if numbers is None else numbers
        free = {i: list(values) for i, values in logs.items()}
        for _ in range(ROUNDS):
            middle = {i: statistics.median(v[n] for n in counted) for i, v in free.items()}
            for number in counted:
                order = order_of(rows, number)
                for group in set(groups):
                    alike = [i for i in order if groups[i] == group]
                    excess = [logs[i][number] - middle[i] for i in alike]
                    for at, i in enumerate(alike):
                        near = excess[max(0, at - NEAR) : at] + excess[at + 1 : at + 1 + NEAR]
                        free[i][number] = logs[i][number] - (statistics.median(near or [0.0]))
        for i, values in free.items():
            place = found[i]
            assert place is not None, i
            place[uuid] = math.exp(statistics.median(values[n] for n in counted))
    return found


def agreement(rows: Sequence[Passes | None], groups: Sequence[Any]) -> float:
    """Rank correlation of the mean times of even and of odd passes: is the order real."""
    count = len(next(iter(next(row for row in rows if row is not None).values())))
    halves = [settled(rows, groups, range(first, count, 2)) for first in (0, 1)]
    means = [[statistics.fmean(us.values()) for us in half if us is not None] for half in halves]
    ranks = [[sorted(half).index(us) for us in half] for half in means]
    return statistics.correlation(*ranks) if count > 1 else math.nan


def write(
    table: Path,
    settings: Sequence[Settings],
    rows: Sequence[Passes | None],
    alike: str | None,
) -> None:
    """The table as far as it goes."""
    groups = [None if alike is None else each[alike] for each in settings]
    times = settled(rows, groups)
    lines = [
        json.dumps({"settings": each, "us": us, "passes_us": row}) + "\n"
        for each, us, row in zip(settings, times, rows, strict=True)
    ]
    # No time of writing in it: the same passes make the same bytes.
    table.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def read(table: Path) -> tuple[list[Settings], list[Passes | None]]:
    """Settings and passes of a table."""
    lines = gzip.decompress(table.read_bytes()).decode().splitlines()
    found = [json.loads(line) for line in lines]
    return [each["settings"] for each in found], [each["passes_us"] for each in found]


def estimate(table: Path, alike: str | None) -> None:
    """Computes the times of a table anew, and says how sure their order is."""
    settings, rows = read(table)
    write(table, settings, rows, alike)
    groups = [None if alike is None else each[alike] for each in settings]
    print(f"rank correlation of even and odd passes: {agreement(rows, groups):.3f}")


def main() -> int:
    """Builds, times and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("definition")
    parser.add_argument("solution")
    parser.add_argument("table", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="keeps the builds")
    parser.add_argument("--values", action="append", default=[], help="NAME=VALUE,VALUE")
    parser.add_argument("--runtime", action="append", default=[], help="NAME")
    parser.add_argument("--workload", action="append", default=[], help="default: rep")
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=900.0, help="of timing")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--alike", help="NAME: settings with one value are slowed alike")
    parser.add_argument("--estimate-only", action="store_true")
    options = parser.parse_args()
    if options.estimate_only:
        estimate(options.table, options.alike)
        return 0
    torch.set_num_threads(1)
    catalog = Catalog(Root(CHECKOUT))
    definition = catalog.resolve(options.definition)
    folder = catalog.folder(definition)
    source = folder / "solutions" / options.solution
    builds = []
    tunables = read_tunables(source)
    for settings in settings_of(tunables, options.values):
        runtime = {name: settings[name] for name in options.runtime}
        first = {name: tunables[name].values[0] for name in options.runtime}
        solution = pack(source, tunables=settings | first).solution
        place = options.folder.resolve() / solution.sha256[:16]
        place.mkdir(parents=True, exist_ok=True)
        builds.append(Build(settings, solution, place / "solution.so", runtime))
    header = precompile(builds[0].solution, options.folder.resolve())
    start = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        distinct = {build.library: build for build in builds}.values()
        list(pool.map(partial(compile_one, header=header), distinct))
    built = sum(build.library.exists() for build in builds)
    print(f"{built} of {len(builds)} built in {time.monotonic() - start:.0f} s", flush=True)
    if options.build_only:
        return 0
    workloads = catalog.select(definition, options.workload or ["rep"])
    cases = [case_of(definition, folder, workload) for workload in workloads]
    measure(definition, builds, cases, options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
