"""``benchmark_detailed_results.json``: the results of a sweep as people's scripts read them.

The file has the shape that evaluators of the contest write, is whole at every moment and is
rewritten when a workload is done. What those evaluators have no word for has one of its own:
``REJECTED``, ``INVALID_WORKLOAD``, ``INFRA``. Nothing here decides: the journal is the truth.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kopt_harness.atomic import write_atomic
from kopt_harness.errors import InfraError
from kopt_harness.schema import Evaluation, Solution, Verdict, Workload, WorkloadResult

__all__ = ["FILE_NAME", "DetailedResults", "status_of"]

FILE_NAME = "benchmark_detailed_results.json"
_STATUS = {
    Verdict.PASS: "PASSED",
    Verdict.TIMEOUT: "TIMEOUT",
    Verdict.REJECT: "REJECTED",
    Verdict.INVALID: "INVALID_WORKLOAD",
    Verdict.INFRA: "INFRA",
}


def status_of(verdict: Verdict, phase: str, reasons: Sequence[tuple[str, str]]) -> str:
    """The word for a verdict.

    Args:
        verdict: What was found.
        phase: In which.
        reasons: Code and detail of each.
    """
    if verdict == Verdict.CRASH:
        return "COMPILE_ERROR" if phase == "build" else "RUNTIME_ERROR"
    if verdict == Verdict.FAIL:
        form = next((detail for code, detail in reasons if code == "bad-output"), "")
        words = (word for word in ("shape", "dtype") if word in form)
        return f"INCORRECT_{next(words, 'numerical').upper()}"
    return _STATUS[verdict]


class DetailedResults:
    """The file of one or more solutions, each of another definition. Thread-safe."""

    def __init__(self, path: Path, total: int) -> None:
        """Nothing is written yet.

        Args:
            path: Of the file.
            total: Workloads that it will have.
        """
        self.path = path
        self._total = total
        self._started = datetime.now(UTC)
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._results: dict[str, dict[str, dict[str, Any]]] = {}

    def add(self, solution: Solution, workload: Workload, result: WorkloadResult) -> None:
        """One workload is done; the file has it when this returns, if the disk takes it."""
        with self._lock, contextlib.suppress(OSError):  # the journal has it, and decides
            self._results.setdefault(solution.definition, {})[workload.uuid] = _row(result, None)
            self._write()

    def conclude(
        self,
        evaluation: Evaluation,
        workloads: Sequence[Workload],
        reference_ms: Mapping[str, float | None],
    ) -> None:
        """A solution is done: timings, and a word for workloads that had no turn.

        Args:
            evaluation: Of the sweep.
            workloads: All that were asked for.
            reference_ms: Latency of the reference by workload, where it was timed.

        Raises:
            InfraError: The disk does not take it.
        """
        found = {row.uuid: _row(row, reference_ms.get(row.uuid)) for row in evaluation.workloads}
        if not found and evaluation.phase == "build":
            reasons = [(reason.code, reason.detail) for reason in evaluation.reasons]
            status = status_of(evaluation.verdict, evaluation.phase, reasons)
            found = {workload.uuid: _row_of(status) for workload in workloads}
        with self._lock:
            self._results[evaluation.solution.definition] = found
            try:
                self._write()
            except OSError as error:
                raise InfraError(
                    f"cannot write {str(self.path)!r}: {error.strerror}",
                    hint="make room on the disk",
                ) from error

    def _write(self) -> None:
        now = datetime.now(UTC)
        rows = [row for rows in self._results.values() for row in rows.values()]
        passed = sum(row["status"] == "PASSED" for row in rows)
        document = {
            "generated_at_utc": now.isoformat(),
            "definition": next(iter(self._results), None) if len(self._results) == 1 else None,
            "results": self._results,
            "summary": {name: _summary(found) for name, found in self._results.items()},
            "meta": {
                "completed": len(rows),
                "total": self._total,
                "passed": passed,
                "failed": len(rows) - passed,
                "estimated_time_s": None,
                "real_time_s": time.monotonic() - self._begin,
                "started": self._started.isoformat(),
                "finished": now.isoformat() if len(rows) == self._total else None,
            },
        }
        write_atomic(self.path, json.dumps(document, indent=1) + "\n")


def _summary(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Counts, and the middle and ends of latencies and ratios of what has passed."""
    rows = list(found.values())
    passed = [row for row in rows if row["status"] == "PASSED"]
    names = {
        "latency": "latency_ms",
        "reference": "reference_latency_ms",
        "speedup": "speedup_factor",
    }
    known = {
        key: sorted(row[name] for row in passed if row[name] is not None)
        for key, name in names.items()
    }
    summary: dict[str, Any] = {
        "total_workloads": len(rows),
        "passed_workloads": len(passed),
        "failed_workloads": len(rows) - len(passed),
        "passed_with_latency": len(known["latency"]),
        "passed_with_reference_latency": len(known["reference"]),
        "passed_with_speedup": len(known["speedup"]),
    }
    for key, name in names.items():
        values = known[key]
        summary |= {
            f"avg_{name}": statistics.fmean(values) if values else None,
            f"median_{name}": statistics.median(values) if values else None,
            f"p95_{name}": values[-(-len(values) * 95 // 100) - 1] if values else None,
        }
        if key != "reference":
            summary |= {
                f"min_{name}": values[0] if values else None,
                f"max_{name}": values[-1] if values else None,
            }
    return summary


def _row_of(status: str) -> dict[str, Any]:
    return {
        "status": status,
        "latency_ms": None,
        "reference_latency_ms": None,
        "speedup_factor": None,
        "max_abs_error": None,
        "max_rel_error": None,
    }


def _row(result: WorkloadResult, reference_ms: float | None) -> dict[str, Any]:
    reasons = [(reason.code, reason.detail) for reason in result.reasons]
    latency_us = (result.timing or {}).get("median_us")
    speedup = reference_ms * 1e3 / latency_us if latency_us and reference_ms else None
    tier = result.tiers.get("contest") or result.tiers.get("strict")
    outputs = () if tier is None else tier.outputs
    return _row_of(status_of(result.verdict, result.phase, reasons)) | {
        "latency_ms": latency_us and latency_us / 1e3,
        "reference_latency_ms": reference_ms,
        "speedup_factor": speedup,
        "max_abs_error": max((o.max_abs for o in outputs if o.max_abs is not None), default=None),
        "max_rel_error": max((o.max_rel for o in outputs if o.max_rel is not None), default=None),
    }
