"""Is a solution right, and how long does it take: the start of the harness.

``evaluate`` reads the sources (``lint``), builds the solution and checks it on workloads, one
ledger unit a workload, so that an interrupted evaluation continues where it stopped. Checking
is: for each of several distinct secret input sets, refill the arena, poison the outputs,
call, compare both tiers; stress sets of the definition are always among them. ``kopt bench``
adds timed calls, each of them refilled, poisoned and compared as well, and calls with moved
pointers afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from kopt_harness.build import build_in_worker
from kopt_harness.conduct import weighed
from kopt_harness.errors import UnavailableError
from kopt_harness.ledger import Ledger
from kopt_harness.lint import lint
from kopt_harness.outcome import CallOutcome, CandidateFailedError
from kopt_harness.own_kernels import kernel_flags
from kopt_harness.schema import (
    BuildResult,
    Evaluation,
    Flag,
    Phase,
    Reason,
    Solution,
    SolutionRef,
    TierResult,
    Timing,
    Verdict,
    Workload,
    WorkloadResult,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.timed import TimedCalls

__all__ = ["Progress", "build", "conclude", "evaluate", "evaluate_workload", "solution_ref"]

Progress = Callable[[Workload, WorkloadResult], None]

_ONE_WRITER = Lock()
"""Sessions of a sweep run in threads; the first of them records."""

MAX_DEATHS = 3
"""After so many crashes and timeouts a solution gets no further workload."""


def evaluate(
    setting: Setting,
    solution: Solution,
    workloads: Sequence[Workload],
    ledger: Ledger,
    *,
    timed: bool = False,
    progress: Progress | None = None,
    session: Session | None = None,
    stress_sets: int | None = None,
) -> Evaluation:
    """Verdict of a solution on workloads.

    Args:
        setting: catalog, target and options.
        solution: what to evaluate.
        workloads: of the solution's definition.
        ledger: completed workloads are taken from it and added to it.
        timed: whether ``bench_calls`` timed calls follow the check of each workload.
        progress: called after each workload.
        session: a warm one to use; by default one is opened when it is needed.
        stress_sets: how many stress generators a workload gets, in turn; None: all of them.

    Raises:
        InfraError: the machine failed.
        UnavailableError: a toolchain, timer or device is missing.
    """
    refused = refusal(setting, solution)
    if refused is not None:
        return refused
    built = build(setting, solution)
    if not built.ok:
        return _not_built(setting, built)
    definition = setting.catalog.resolve(solution.definition)
    results: list[WorkloadResult] = []
    own = session is None
    session = session or Session(setting, definition, workloads)
    try:
        deaths = 0
        for workload in workloads:
            key = _unit(setting, solution, workload, timed=timed, stress_sets=stress_sets)
            recorded = ledger.get(key)
            if recorded is None:
                result = evaluate_workload(
                    setting,
                    session,
                    solution,
                    built,
                    workload,
                    timed=timed,
                    stress_sets=stress_sets,
                )
                ledger.put(key, result.model_dump(mode="json"))
            else:
                result = WorkloadResult.model_validate(recorded)
            results.append(result)
            if progress is not None:
                progress(workload, result)
            deaths += result.verdict in (Verdict.CRASH, Verdict.TIMEOUT)
            if deaths >= MAX_DEATHS:
                break
        isolation = in_force(ledger, solution, session)
        return conclude(setting, solution, results, isolation=isolation)
    finally:
        if own:
            session.close()


def _unit(
    setting: Setting,
    solution: Solution,
    workload: Workload,
    *,
    timed: bool,
    stress_sets: int | None,
) -> str:
    """Ledger key: what a result depends on beside the environment."""
    what = "bench" if timed else "check"
    sets = f"{setting.options.trials}+{'all' if stress_sets is None else stress_sets}"
    return f"{what}/{solution.sha256[:12]}/{workload.uuid}/{sets}"


def in_force(ledger: Ledger, solution: Solution, session: Session) -> dict[str, Any]:
    """The isolation of the session, or of the one that the recorded results come from."""
    key = f"isolation/{solution.sha256[:12]}"
    with _ONE_WRITER:
        known = ledger.get(key)
        if known is None and session.isolation:
            ledger.put(key, session.isolation)
    return known or session.isolation


def build(setting: Setting, solution: Solution, workload: Workload | None = None) -> BuildResult:
    """Builds for the setting's target, or takes the build from the cache.

    Sources that the lint rejects are not built: see ``refusal``.

    Args:
        setting: Its target need not be here.
        solution: What to build.
        workload: Shapes of what is compiled ahead; the definition's first by default.
    """
    refused = lint(solution).reject
    if refused is not None:
        return BuildResult(
            solution=solution_ref(solution),
            target=setting.target.name,
            ok=False,
            log=refused.detail,
            key="",
        )
    definition = setting.catalog.resolve(solution.definition)
    shapes = workload or setting.catalog.workloads(definition)[0]
    return build_in_worker(
        solution,
        setting.target.name,
        setting.build_cache,
        definition=definition,
        axes=shapes.axes,
        timeout_s=setting.options.build_timeout_s,
    )


def evaluate_workload(
    setting: Setting,
    session: Session,
    solution: Solution,
    built: BuildResult,
    workload: Workload,
    *,
    timed: bool,
    stress_sets: int | None = None,
) -> WorkloadResult:
    """Checks, and with ``timed`` times, one workload; a fault becomes the verdict."""
    tiers: dict[str, TierResult] = {}
    trials, wall_ns, timing = 0, 0, None
    flags: tuple[Flag, ...] = ()
    raised: list[Flag] = []
    try:
        session.start(solution, built.path)
        session.bind(workload)
        session.open(solution, built.path)
        generators = turn(session.generators, workload.index, stress_sets)
        for number in check_sets(session, solution, generators, setting.options.trials):
            outcome = session.call(solution.sha256, number, phase="check", timed=False, full=True)
            tiers = _worse(tiers, outcome)
            trials += 1
            wall_ns = outcome.wall_ns
            raised += outcome.flags
        flags = weighed(raised, trials)
        if timed:
            timing, more = _time_alone(setting, session, solution, built, workload, wall_ns=wall_ns)
            flags = (*flags, *more)
    except CandidateFailedError as error:
        return WorkloadResult(
            uuid=workload.uuid,
            axes=workload.axes,
            verdict=error.verdict,
            phase=error.phase,
            trials=trials + bool(error.tiers),
            reasons=(error.reason,),
            tiers=error.tiers or tiers,
            flags=weighed(raised, trials),
        )
    return WorkloadResult(
        uuid=workload.uuid,
        axes=workload.axes,
        verdict=Verdict.PASS,
        phase="bench" if timed else "check",
        trials=trials,
        flags=flags,
        tiers=tiers,
        timing=timing.document() if timing else None,
    )


def turn(kinds: Mapping[str, str], index: int, stress_sets: int | None) -> list[str]:
    """The contest generators, and the stress generators whose turn it is on a workload.

    Args:
        kinds: kind by generator name.
        index: of the workload; the next one gets the next stress generators.
        stress_sets: how many; None: all.
    """
    contest = [name for name, kind in kinds.items() if kind == "contest"]
    stress = [name for name, kind in kinds.items() if kind == "stress"]
    count = len(stress) if stress_sets is None else min(stress_sets, len(stress))
    chosen = [stress[(index * count + step) % len(stress)] for step in range(count)]
    return contest + chosen


def check_sets(
    session: Session, solution: Solution, generators: Sequence[str], trials: int
) -> list[int]:
    """``trials`` sets of the first generator and one of every other.

    They are shared by candidates, but for one that is drawn after the solution was loaded.
    """
    first, *others = generators
    # The last is drawn now, so that no solution is judged by sets of earlier sessions alone.
    contest = session.sets(first, trials, shelved=trials - 1)
    numbers = session.fresh_for(solution.sha256, first, contest)
    for generator in others:
        numbers += session.sets(generator, 1, shelved=1)
    return numbers


def conclude(
    setting: Setting,
    solution: Solution,
    results: Sequence[WorkloadResult],
    *,
    isolation: dict[str, Any],
) -> Evaluation:
    """The evaluation over all workloads."""
    definition = setting.catalog.resolve(solution.definition)
    verdict = Verdict.combine(result.verdict for result in results)
    deciding = [result for result in results if result.verdict == verdict]
    phase: Phase = deciding[0].phase if deciding else "check"
    reasons = tuple(r for result in deciding[:1] for r in result.reasons)
    flags = {flag.code: flag for flag in lint(solution).flags}
    flags |= {f.code: f for result in results for f in result.flags}
    if setting.options.seed is not None:
        detail = f"inputs were drawn from the public seed {setting.options.seed}"
        flags["public-seed"] = Flag(code="public-seed", detail=detail)
    if setting.target.caveat:
        flags["simulated-device"] = Flag(code="simulated-device", detail=setting.target.caveat)
    return Evaluation(
        solution=solution_ref(solution),
        target=setting.target.name,
        verdict=verdict,
        phase=phase,
        reasons=reasons if verdict != Verdict.PASS else (),
        flags=tuple(flags.values()),
        workloads=tuple(results),
        isolation=isolation,
        environment=setting.environment | {"rules": setting.rules(definition)},
    )


def solution_ref(solution: Solution) -> SolutionRef:
    """Name and content of a solution."""
    return SolutionRef(name=solution.name, definition=solution.definition, sha256=solution.sha256)


def _time_alone(
    setting: Setting,
    session: Session,
    solution: Solution,
    built: BuildResult,
    workload: Workload,
    *,
    wall_ns: int,
) -> tuple[Timing, tuple[Flag, ...]]:
    """Samples of one solution; none where its last call took ``wall_ns`` and that is too long."""
    calls = TimedCalls(setting, session, workload)
    if reason := calls.too_slow(wall_ns):
        return calls.untimed(reason), ()
    samples = calls.slot(solution.sha256, setting.options.bench_calls)
    calls.require_possible(solution.sha256)
    calls.new_contents(solution.sha256)
    calls.moved_pointers(solution.sha256)
    calls.back_to_back(solution.sha256)
    timing = calls.timing(samples)
    whose = kernel_flags(solution, built, calls.census(solution.sha256))
    return timing, (*calls.flags(solution.sha256), *whose)


def _worse(tiers: dict[str, TierResult], outcome: CallOutcome) -> dict[str, TierResult]:
    """Of each tier, the trial with the largest error; both have passed."""

    def error(tier: TierResult) -> float:
        return max((output.max_abs or 0.0 for output in tier.outputs), default=-1.0)

    worst = dict(outcome.tiers)
    for name, tier in tiers.items():
        if name not in worst or error(tier) >= error(worst[name]):
            worst[name] = tier
    return worst


def refusal(setting: Setting, solution: Solution) -> Evaluation | None:
    """The verdict on sources that nothing may be built from; None for all others."""
    found = lint(solution)
    if found.reject is None:
        return None
    return Evaluation(
        solution=solution_ref(solution),
        target=setting.target.name,
        verdict=Verdict.REJECT,
        phase="build",
        reasons=(found.reject,),
        flags=found.flags,
        environment=setting.environment,
    )


def cannot_build(setting: Setting, solution: Solution, error: UnavailableError) -> Evaluation:
    """This machine lacks a toolchain: nothing is said of the solution."""
    return Evaluation(
        solution=solution_ref(solution),
        target=setting.target.name,
        verdict=Verdict.INFRA,
        phase="build",
        reasons=(Reason(code="toolchain-missing", detail=error.message),),
        environment=setting.environment,
    )


def _not_built(setting: Setting, built: BuildResult) -> Evaluation:
    lines = [line for line in built.log.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    verdict = Verdict.TIMEOUT if built.timed_out else Verdict.CRASH
    return Evaluation(
        solution=built.solution,
        target=setting.target.name,
        verdict=verdict,
        phase="build",
        reasons=(Reason(code="build-failed", detail=first[:500] or "no compiler output"),),
        environment=setting.environment,
    )
