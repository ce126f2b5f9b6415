"""What opening a GPU costs a process, by step, and what it does to whoever is timed meanwhile.

What: processes that open the device side by side print how long each step took (driver, context,
first kernel, timer), and how long it takes to end them. With ``--beside`` this process times a
copy meanwhile, as a solution is timed, and before it with nobody else there.
When: a round of a comparison takes long, or another driver, or before processes are opened beside
timed calls: see docs/measurement.md, Rounds.
How: python scripts/opening_cost.py [--counts 1,4,16] [--set CUDA_DEVICE_MAX_CONNECTIONS=1 ...]
         [--beside] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

STEPS = ("import", "driver", "context", "kernel", "timer")
COPY_BYTES = 32 << 20
"""Read and written once by what is timed: about ten microseconds on an H200."""
QUIET_CALLS = 300


def main() -> None:
    """Prints a row for each count and environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="1,4,16", help="processes side by side")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--beside", action="store_true", help="time a copy meanwhile")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        open_device()
        return
    counts = [int(word) for word in arguments.counts.split(",")]
    rows = []
    for variable in ("", *arguments.set):
        for count in counts:
            rows.append({"set": variable, **opened(count, variable)})
            print(line(rows[-1]), flush=True)
    found: dict[str, Any] = {"opened": rows}
    if arguments.beside:
        found["beside"] = beside(max(counts))
        for name, row in found["beside"].items():
            print(name, json.dumps(row), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def line(row: dict[str, Any]) -> str:
    """One row: medians in milliseconds."""
    steps = " ".join(f"{step} {row['median_ms'][step]:.0f}" for step in STEPS)
    head = f"{row['set'] or 'as it is'}: {row['count']} processes, all open after"
    return f"{head} {row['open_ms']:.0f} ms ({steps}); ended in {row['end_ms']:.0f} ms"


def opened(count: int, variable: str = "") -> dict[str, Any]:
    """Opens so many side by side and ends them."""
    environment = dict(os.environ)
    if variable:
        name, _, value = variable.partition("=")
        environment[name] = value
    start = time.perf_counter()
    children = [start_child(environment) for _ in range(count)]
    lines = [child.stdout.readline() for child in children if child.stdout]
    if not all(lines):
        raise SystemExit("no GPU could be opened; what a process said of it is above")
    steps = [json.loads(line) for line in lines]
    open_ms = (time.perf_counter() - start) * 1e3
    start = time.perf_counter()
    for child in children:
        child.send_signal(signal.SIGKILL)
    for child in children:
        child.wait()
    return {
        "count": count,
        "open_ms": open_ms,
        "end_ms": (time.perf_counter() - start) * 1e3,
        "median_ms": {step: statistics.median(each[step] for each in steps) for step in STEPS},
    }


def start_child(environment: dict[str, str]) -> subprocess.Popen[str]:
    """This script, opening the device."""
    return subprocess.Popen(
        [sys.executable, __file__, "--child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def open_device() -> None:
    """Prints milliseconds by step, then waits for its end."""
    taken: dict[str, float] = {}

    def step(name: str, do: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        found = do()
        taken[name] = (time.perf_counter() - start) * 1e3
        return found

    def load() -> Any:
        return import_module("torch"), import_module("cuda.bindings.driver")

    torch, driver = step("import", load)
    step("driver", lambda: driver.cuInit(0))
    device = driver.cuDeviceGet(0)[1]
    step("context", lambda: driver.cuDevicePrimaryCtxRetain(device))

    def kernel() -> None:
        torch.cuda.init()
        torch.zeros(1, device="cuda").add_(1)
        torch.cuda.synchronize()

    step("kernel", kernel)
    step("timer", lambda: make_timer().flush())
    print(json.dumps(taken), flush=True)
    sys.stdin.read()


def make_timer() -> Any:
    """The one that solutions are timed with."""
    cupti = import_module("kopt_harness.bench.timers.cupti")
    return cupti.create(cache="cold", torch_device="cuda:0", l2_bytes=None)


class Copy:
    """A call of the evaluator, as the timer takes one."""

    def __init__(self) -> None:
        torch = import_module("torch")
        self._from = torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda")
        self._to = torch.zeros_like(self._from)

    def run(self) -> None:
        """One kernel of some microseconds."""
        self._to.add_(self._from)

    def seal(self) -> None:
        """There is nothing to look at."""


def beside(count: int) -> dict[str, Any]:
    """Calls with nobody there, while others open, and while they end."""
    timer, call = make_timer(), Copy()
    timed(timer, call, 20)
    found: dict[str, Any] = {"quiet": summary(timed(timer, call, QUIET_CALLS))}
    environment = dict(os.environ)
    children = [start_child(environment) for _ in range(count)]
    done = threading.Event()

    def wait() -> None:
        for child in children:
            if child.stdout:
                child.stdout.readline()
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    samples: list[tuple[int, float]] = []
    while not done.is_set():
        samples += timed(timer, call, 1)
    found["opening"] = summary(samples)
    for child in children:
        child.kill()
    samples = []
    while any(child.poll() is None for child in children):
        samples += timed(timer, call, 1)
    found["ending"] = summary(samples)
    found["quiet again"] = summary(timed(timer, call, QUIET_CALLS))
    return found


def timed(timer: Any, call: Copy, count: int) -> list[tuple[int, float]]:
    """Span in nanoseconds, and milliseconds that flush and call took by the clock."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        timer.flush()
        sample = timer.measure(call)
        found.append((sample.ns, (time.perf_counter() - start) * 1e3))
    return found


def summary(samples: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """Median and tails."""
    if not samples:
        return {"calls": 0}
    spans = sorted(ns / 1e3 for ns, _ in samples)
    walls = sorted(ms for _, ms in samples)

    def at(values: Sequence[float], share: float) -> float:
        return round(values[min(len(values) - 1, int(share * len(values)))], 3)

    return {
        "calls": len(samples),
        "span_us": {name: at(spans, q) for name, q in QUANTILES.items()},
        "wall_ms": {name: at(walls, q) for name, q in QUANTILES.items()},
    }


QUANTILES = {"p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99}


if __name__ == "__main__":
    main()
