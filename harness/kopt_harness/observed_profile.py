"""Profiles by an external profiler, which starts the candidate in a worker of its own.

The worker is the one that a confirmation uses: same sandbox, same judge, and a bracket around
one call, so that neither inputs nor references are profiled. The first kernel in the bracket is
a marker, and is left out.
"""

from __future__ import annotations

from typing import Any

from .diagnose.classify import classify
from .diagnose.kernels import Figures, Kernel, group
from .diagnose.readers.ncu_csv import parse_csv
from .diagnose.record import Launch
from .diagnose.report import failure_of
from .errors import KoptError, ProfileError, UnavailableError
from .external import UnreadableError, get_external
from .lease import device_lease
from .outcome import CandidateFailedError
from .profile import external_of
from .profile_diagnosis import diagnosis_fields
from .report_pipe import ReportPipe
from .schema import BuildResult, Solution, Workload
from .session import Session
from .setting import Setting
from .worker.spawn import Observer

__all__ = ["profile_observed"]

_FINISH_S = 120.0
_METRICS = {
    "theoretical_occupancy_pct": "occupancy_theoretical_pct",
    "achieved_occupancy_pct": "occupancy_achieved_pct",
    "compute_throughput_pct": "compute_pct",
    "memory_throughput_pct": "memory_pct",
    "dram_throughput_pct": "dram_pct",
    "l2_throughput_pct": "l2_pct",
    "waves_per_sm": "waves_per_sm",
    "registers": "registers",
    "spill_requests": "spills",
}
"""Metrics of a profile, and the figures that they are."""


def profile_observed(
    setting: Setting, solution: Solution, built: BuildResult, workload: Workload, profiler: str
) -> dict[str, Any]:
    """One call of a solution under an external profiler; the fields of a ``Profile``.

    Raises:
        UnavailableError: If there is no such profiler for the device, or it is not here.
        ProfileError: If it says nothing of the call, and why.
        CandidateFailedError: If the solution fails.
    """
    name = external_of(profiler, setting.target.kind)
    if name is None:
        raise UnavailableError(
            f"the profiler {profiler!r} does not know a device of kind {setting.target.kind!r}",
            hint="--profiler torch works everywhere",
        )
    external = get_external(name)
    if reason := external.missing():
        raise UnavailableError(
            f"the profiler {profiler!r} cannot start: {reason}",
            hint="install Nsight Compute, or use --profiler torch",
        )
    with device_lease(setting.device_id):
        text, code = _observe(setting, solution, built, workload, name)
    launches = tuple(parse_csv(text.split("\n"), profiler))
    if not launches:
        raise failure_of(text, profiler)
    if code != 0:
        raise ProfileError(f"{profiler} has ended with {code!r}", hint="take the profile again")
    return _fields(_without_marker(launches), external.version(), profiler)


def _observe(
    setting: Setting, solution: Solution, built: BuildResult, workload: Workload, name: str
) -> tuple[str, int | None]:
    """What the profiler printed, and how it ended."""
    definition = setting.catalog.resolve(solution.definition)
    external, report = get_external(name), ReportPipe()
    observer = Observer(external.name, report.fd, external.folders())
    code, failed = None, None
    with Session(setting, definition, [workload], observer=observer) as session:
        try:
            session.start(solution, built.path)
            session.bind(workload)
            session.open(solution, built.path)
            report.listen()
            (number,) = session.sets(next(iter(session.generators)), 1)
            session.call(solution.sha256, number, phase="check", timed=False, full=False)
            session.call(solution.sha256, number, phase="bench", timed=True, full=False)
            code = session.finish(solution.sha256, _FINISH_S)
        except (KoptError, CandidateFailedError) as error:
            failed = error
    text = _text(report)
    if failed is not None:
        # A profiler that fails takes the candidate with it, and says why.
        if "==ERROR==" in text:
            raise failure_of(text, name) from failed
        raise failed
    return text, code


def _text(report: ReportPipe) -> str:
    try:
        return report.text()
    except UnreadableError as error:
        raise ProfileError(str(error), hint="profile a smaller workload") from error


def _without_marker(launches: tuple[Launch, ...]) -> list[Launch]:
    marker = launches[0].name, launches[0].grid
    return [one for one in launches[1:] if (one.name, one.grid) != marker]


def _fields(launches: list[Launch], version: str, profiler: str) -> dict[str, Any]:
    if not launches:
        raise ProfileError(
            "the call launches no kernel", hint="a call of copies alone has no counters"
        )
    kernels = group([Figures(launch) for launch in launches])
    times = [kernel.total_us for kernel in kernels if kernel.total_us is not None]
    if len(times) != len(kernels):
        raise ProfileError("a kernel has no duration", hint="use a newer Nsight Compute")
    limits = classify(kernels, None)
    limiter = f": {limits.limiter}" if limits.limiter else ""
    return {
        "total_us": sum(times),
        "launches": sum(kernel.launches for kernel in kernels),
        "kernels": [_kernel(kernel) for kernel in kernels],
        "notes": (
            f"one cold call under {profiler} {version}".rstrip(),
            f"limited by {limits.bottleneck}{limiter}",
        ),
        "diagnosis": diagnosis_fields(limits),
    }


def _kernel(kernel: Kernel) -> dict[str, Any]:
    figures = kernel.main.figures
    found = {name: figures.get(field) for name, field in _METRICS.items()}
    return {
        "name": kernel.name,
        "calls": kernel.launches,
        "total_us": kernel.total_us,
        "share": kernel.share,
        "metrics": {name: value for name, value in found.items() if value is not None},
    }
