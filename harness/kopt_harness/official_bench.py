"""An installed flashinfer-bench: what it is, how the contest calls it, what it says.

It runs in a process of its own, under an interpreter that need not be kopt's, with a home of its
own and none of the caller's variables but those that every worker has. It has no sandbox: it runs
solutions with the rights of whoever called.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kopt_harness import proc
from kopt_harness.environ import worker_environment
from kopt_harness.errors import InfraError
from kopt_harness.export import TraceSet
from kopt_harness.schema import Definition, Model, Solution

__all__ = [
    "Bench",
    "OfficialRow",
    "about_bench",
    "contest_flags",
    "read_traces",
    "require_runnable",
    "run_bench",
]

RUNNER = Path(__file__).with_name("_official_runner.py")
ABOUT_TIMEOUT_S = 180.0
SOLUTION_TIMEOUT_S = 300
"""That flashinfer-bench allows for a solution on one workload, as by default."""
BASELINE_TIMEOUT_S = 300.0
"""For the reference on one workload, which flashinfer-bench does not limit."""
_FALLBACK = "Falling back to CUDA events"
_LOG_CHARS = 2000

_CALLS = {
    "": {"warmup_runs": 10, "iterations": 50, "num_trials": 5},
    "gdn_prefill": {"warmup_runs": 1, "iterations": 5, "num_trials": 3},
}
"""Calls of a contest run, by alias of the definition; "" stands for all others."""


class Bench(Model):
    """An interpreter with flashinfer-bench."""

    python: str
    """Of the interpreter: its path."""
    version: str
    commit: str | None = None
    """Where it was installed from a repository."""
    torch: str
    python_version: str
    device: str | None
    """Name of the CUDA device that it sees; null without one."""
    timer: str
    """``cupti``, ``cuda-events`` or ``none``."""
    timer_note: str


class OfficialRow(Model):
    """What flashinfer-bench says of one workload."""

    uuid: str
    status: str
    """Its own word, as ``PASSED``; ``NO_TRACE`` where it left none."""
    timer: str
    latency_us: float | None = None
    reference_latency_us: float | None = None
    """Null: the reference is not profiled unless asked for."""
    max_absolute_error: float | None = None
    """Null where it is not finite or was not computed."""
    max_relative_error: float | None = None
    log: str = ""
    """The end of it, where the status is not ``PASSED``."""


def about_bench(python: str, environment: Mapping[str, str] | None = None) -> Bench:
    """Asks an interpreter what it has.

    Args:
        python: path of the interpreter.
        environment: variables beside those of every worker.

    Raises:
        InfraError: If it cannot be started or lacks flashinfer-bench.
    """
    with tempfile.TemporaryDirectory(prefix="kopt-official-") as made:
        found = _ask(
            python, Path(made), {"job": "about"}, timeout_s=ABOUT_TIMEOUT_S, more=environment or {}
        )
    if missing := found.get("missing"):
        raise InfraError(
            f"{python} has no flashinfer-bench: the package {missing} is not installed",
            hint="pip install -e '.[official]', or name another interpreter with --python",
        )
    return Bench(python=python, python_version=found.pop("python"), **found)


def require_runnable(bench: Bench) -> None:
    """Refuses where flashinfer-bench cannot benchmark.

    Raises:
        InfraError: If there is no CUDA device, or no timer.
    """
    if bench.device is None:
        raise InfraError(
            f"flashinfer-bench {bench.version} benchmarks on CUDA devices only, and "
            f"{bench.python} sees none",
            hint="run it on a machine with a GPU, or write the data set: --dataset-only DIR",
        )
    if bench.timer == "none":
        raise InfraError(
            f"flashinfer-bench {bench.version} cannot time: {bench.timer_note}",
            hint=f"install what it lacks for {bench.python}: flashinfer-python, usually",
        )


def contest_flags(
    definition: Definition, solution: Solution, *, trials: int | None = None
) -> dict[str, Any]:
    """Fields of flashinfer-bench's configuration as the contest sets them.

    Args:
        definition: whose tolerances are used.
        solution: what alone is run.
        trials: replaces the contest's number.
    """
    calls = _CALLS.get(definition.kopt.alias, _CALLS[""])
    tolerance = definition.kopt.contest.model_dump()
    return {
        **calls,
        **{name: float(value) for name, value in tolerance.items()},
        **({} if trials is None else {"num_trials": trials}),
        "use_isolated_runner": True,
        "profile_baseline": False,
        "timeout_seconds": SOLUTION_TIMEOUT_S,
        "definitions": [definition.name],
        "solutions": [solution.name],
    }


def run_bench(
    bench: Bench,
    trace_set: TraceSet,
    flags: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> tuple[OfficialRow, ...]:
    """Runs flashinfer-bench on a data set, in its own process.

    Raises:
        InfraError: If it does not come to an end with an answer.
    """
    request = {"job": "run", "root": str(trace_set.folder.resolve()), "flags": dict(flags)}
    limit_s = (SOLUTION_TIMEOUT_S + BASELINE_TIMEOUT_S) * len(trace_set.workloads)
    with tempfile.TemporaryDirectory(prefix="kopt-official-") as made:
        found = _ask(
            bench.python, Path(made), request, timeout_s=limit_s, more=dict(environment or {})
        )
    return read_traces(found["traces"], trace_set.workloads, bench.timer)


def read_traces(
    traces: Sequence[Mapping[str, Any]], uuids: Sequence[str], timer: str
) -> tuple[OfficialRow, ...]:
    """Rows out of flashinfer-bench's traces as JSON, one for each workload that was asked for.

    Args:
        traces: as ``Trace.model_dump(mode="json")`` gives them.
        uuids: of the workloads, in order.
        timer: that flashinfer-bench uses, unless a log says that it fell back.
    """
    found = {trace["workload"]["uuid"]: trace.get("evaluation") or {} for trace in traces}
    return tuple(_official_row(uuid, found.get(uuid, {}), timer) for uuid in uuids)


def _official_row(uuid: str, evaluation: Mapping[str, Any], timer: str) -> OfficialRow:
    performance = evaluation.get("performance") or {}
    correctness = evaluation.get("correctness") or {}
    log = str(evaluation.get("log") or "")
    status = evaluation.get("status", "NO_TRACE")
    return OfficialRow(
        uuid=uuid,
        status=status,
        timer="cuda-events" if _FALLBACK in log else timer,
        latency_us=_microseconds(performance.get("latency_ms")),
        reference_latency_us=_microseconds(performance.get("reference_latency_ms")),
        max_absolute_error=_finite(correctness.get("max_absolute_error")),
        max_relative_error=_finite(correctness.get("max_relative_error")),
        log="" if status == "PASSED" else log[-_LOG_CHARS:],
    )


def _microseconds(ms: float | None) -> float | None:
    """Zero stands for a latency that was not taken."""
    return ms * 1e3 if ms else None


def _finite(value: float | str | None) -> float | None:
    """Infinities and NaN are strings in a trace."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


def _ask(
    python: str,
    folder: Path,
    request: Mapping[str, Any],
    *,
    timeout_s: float,
    more: Mapping[str, str],
) -> dict[str, Any]:
    """One job of the runner; a copy of it, since beside the original are modules of kopt."""
    script, asked, answer = (folder / n for n in ("runner.py", "request.json", "answer.json"))
    shutil.copyfile(RUNNER, script)
    asked.write_text(json.dumps(request))
    environment = worker_environment(folder / "home") | dict(more)
    environment["FIB_CACHE_PATH"] = str(folder / "home" / "flashinfer-bench")
    try:
        ended = proc.run(
            [python, "-W", "ignore", script, asked, answer], timeout_s=timeout_s, env=environment
        )
    except OSError as error:
        raise InfraError(
            f"the interpreter {python!r} cannot be started: {error.strerror}",
            hint="give --python the path of a Python that has flashinfer-bench",
        ) from error
    if not answer.is_file() or not ended.ok:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        what = f"took more than {timeout_s:g} s" if ended.timed_out else f"failed: {last}"
        raise InfraError(
            f"flashinfer-bench in {python!r} {what}", hint="run the same interpreter by hand"
        )
    found: dict[str, Any] = json.loads(answer.read_text())
    return found
