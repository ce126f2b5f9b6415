"""External confirmation: a profiler outside of the candidate times the kernels that it claims.

A candidate's timer lives in its process. Here the same bytes run twice more: once with that
timer, for what they claim, and once started by an external profiler, in the same sandbox, with
the same judge, who refills inputs, poisons outputs and compares them, so that a call cannot do
less than it did. Both runs get the same inputs in the same order, from a seed that nobody knows:
a solution may have more to do for some than for others. Beside the given workloads some are drawn
at random: a candidate cannot know which of its times will be looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from random import SystemRandom
from statistics import median
from typing import NamedTuple

from kopt_harness.errors import KoptError
from kopt_harness.external import (
    External,
    Launch,
    UnreadableError,
    attribute,
    external_for,
    read_report,
)
from kopt_harness.lease import device_lease
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.report_pipe import ReportPipe
from kopt_harness.schema import (
    BuildResult,
    Confirmation,
    ConfirmedWorkload,
    RowOutcome,
    Solution,
    Workload,
)
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.worker.spawn import Observer

__all__ = ["Bias", "Claim", "bias_of", "confirm", "weigh"]

SHARE = 0.10
SLACK_NS = 500.0
"""Claim and profiler agree within the larger of this and that share."""
SPREAD_SHARE = 0.15
MAX_BIAS_NS = 2_000.0
"""Of the evaluator's own kernels; what is more is no bias."""
CALLS = 5
WARM_CALLS = 2
OTHERS = 2
"""Workloads that are drawn at random."""
_OWN_CALLS = 7
_FINISH_S = 120.0
_COPIES = ("memcpy", "memset")
"""Names of activities that are no kernels, and which ncu does not report."""


class Claim(NamedTuple):
    """One call, as the candidate's timer tells it."""

    span_ns: int
    busy_ns: int
    """Kernels, copies and fills."""
    kernels_ns: int


class Bias(NamedTuple):
    """What the profiler adds to the time of a kernel."""

    least_ns: float
    """Measured on small kernels of the evaluator."""
    spread_ns: float
    """How much more it may add to others, ``SPREAD_SHARE`` of the kernel at most."""

    def without(self, ns: float, *, most: bool = False) -> float:
        """A kernel's time less what was added to it.

        Args:
            ns: as reported.
            most: whether to take off as much as may have been added.
        """
        more = min(self.spread_ns, SPREAD_SHARE * ns) if most else 0.0
        return max(0.0, ns - self.least_ns - more)


class _Observed(NamedTuple):
    own: list[tuple[Launch, ...]]
    """Calls of the evaluator's own kernels."""
    by_workload: dict[str, list[tuple[Launch, ...]]]
    isolation: dict[str, object]


def confirm(
    setting: Setting,
    solution: Solution,
    built: BuildResult,
    workloads: Sequence[Workload],
    *,
    claimed_us: Mapping[str, float] | None = None,
) -> Confirmation:
    """Runs a solution under the external profiler of the target.

    Args:
        setting: catalog, target and options.
        solution: archived bytes.
        built: of these bytes.
        workloads: representatives; others are added.
        claimed_us: medians of an earlier comparison by workload, which must hold as well.
    """
    external = external_for(setting.target.kind)
    if external is None:
        return Confirmation(outcome="not-needed", reason="no device keeps records here")
    told = {"profiler": external.name}
    if reason := external.missing():
        return Confirmation(outcome="unconfirmed", reason=reason, **told)
    told["version"] = external.version()
    # Another timer than the target's own does not tell kernels apart.
    given: dict[str, int | None] = {"timer": None}
    if setting.options.seed is None:
        given |= {"seed": SystemRandom().getrandbits(62)}
    setting = dataclasses.replace(setting, options=setting.options.model_copy(update=given))
    chosen = _with_others(setting, solution, workloads)
    with device_lease(setting.device_id):
        try:
            claims, own_ns = _claims(setting, solution, built, chosen)
            timed = [workload for workload in chosen if workload.uuid in claims]
            seen = _observe(setting, solution, built, timed, external)
        except UnreadableError as error:
            return Confirmation(outcome="unconfirmed", reason=str(error), **told)
        except CandidateFailedError as error:
            reason = f"{error.verdict}: {error.reason.detail}"
            return Confirmation(outcome="unconfirmed", reason=reason, **told)
        except KoptError as error:
            return Confirmation(outcome="unconfirmed", reason=error.message, **told)
    bias = bias_of(own_ns, seen.own, external.spread_ns)
    promised = claimed_us or {}
    rows = [
        weigh(w, claims[w.uuid], seen.by_workload[w.uuid], bias, promised.get(w.uuid))
        for w in timed
    ]
    return _concluded(rows, bias, seen.isolation, told)


def bias_of(own_ns: Sequence[int], own: Sequence[Sequence[Launch]], spread_ns: float) -> Bias:
    """What the profiler adds to each kernel.

    Args:
        own_ns: kernels of the evaluator in one call, by the candidate's timer, before any code
            of the candidate was there.
        own: the same calls under the profiler, the marker first.
        spread_ns: the profiler's own.
    """
    if not own_ns or not own:
        return Bias(0.0, spread_ns)
    kernels = median(len(call) - 1 for call in own)
    added = median(sum(each.ns for each in call[1:]) for call in own) - median(own_ns)
    return Bias(min(max(0.0, added / max(1, kernels)), MAX_BIAS_NS), spread_ns)


def weigh(
    workload: Workload,
    claims: Sequence[Claim],
    calls: Sequence[Sequence[Launch]],
    bias: Bias,
    promised_us: float | None,
) -> ConfirmedWorkload:
    """Claims and profiler on one workload.

    Args:
        workload: which.
        claims: of calls by the candidate's timer.
        calls: other calls under the profiler, the marker first.
        bias: of the profiler.
        promised_us: median span of an earlier comparison; None where there is none.
    """
    own_span = median(claim.span_ns for claim in claims)
    busy, kernels_ns = (
        median(claim.busy_ns for claim in claims),
        median(claim.kernels_ns for claim in claims),
    )
    count = int(median(len(call) - 1 for call in calls))
    raw = median(sum(each.ns for each in call[1:]) for call in calls)
    low, high = (
        median(sum(bias.without(each.ns, most=most) for each in call[1:]) for call in calls)
        for most in (True, False)
    )
    in_order = [_longest_stream_ns(call, bias) for call in calls]
    taken, span = median(in_order), own_span
    if promised_us is not None and promised_us * 1e3 < span and not _is_short(span, taken):
        # It was measured on other inputs, of which some may be less to do.
        taken, span = min(in_order), promised_us * 1e3
    nearest = min(max(kernels_ns, low), high)
    allowed = _allowed_ns(nearest)
    outcome: RowOutcome = "agreed"
    detail = ""
    if busy and not count:
        outcome, detail = "unconfirmed", "it launches no kernel, and nothing else is reported"
    elif abs(kernels_ns - nearest) > allowed:
        outcome = "disagreed"
        detail = f"kernels take {nearest / 1e3:.2f} us, {kernels_ns / 1e3:.2f} us are claimed"
    elif _is_short(span, taken):
        overlaps = busy - own_span > allowed
        outcome = "unconfirmed" if overlaps else "disagreed"
        detail = f"kernels of one stream take {taken / 1e3:.2f} us, a span of "
        detail += f"{span / 1e3:.2f} us is claimed"
        detail += ": they would overlap, and the profiler runs one at a time" if overlaps else ""
    return ConfirmedWorkload(
        uuid=workload.uuid,
        axes=workload.axes,
        kernels=count,
        claimed_span_us=span / 1e3,
        claimed_busy_us=kernels_ns / 1e3,
        external_us=nearest / 1e3,
        external_raw_us=raw / 1e3,
        allowed_us=allowed / 1e3,
        outcome=outcome,
        detail=detail,
    )


def _is_short(span_ns: float, taken_ns: float) -> bool:
    """Whether kernels that run one after the other do not fit into a span."""
    return span_ns < taken_ns - _allowed_ns(taken_ns)


def _allowed_ns(ns: float) -> float:
    return max(SHARE * ns, SLACK_NS)


def _concluded(
    rows: Sequence[ConfirmedWorkload],
    bias: Bias,
    isolation: Mapping[str, object],
    told: Mapping[str, str],
) -> Confirmation:
    bad = [row for row in rows if row.outcome == "disagreed"]
    bad = bad or [row for row in rows if row.outcome == "unconfirmed"]
    reason = ""
    if bad:
        first = bad[0]
        where = f"workload {first.uuid} {first.axes}"
        reason = f"{told['profiler']}: {first.detail} ({len(bad)} of {len(rows)}, first {where})"
    return Confirmation(
        outcome=bad[0].outcome if bad else "agreed",
        reason=reason,
        bias_us=(bias.least_ns / 1e3, (bias.least_ns + bias.spread_ns) / 1e3),
        workloads=tuple(rows),
        isolation=dict(isolation),
        **told,
    )


def _longest_stream_ns(call: Sequence[Launch], bias: Bias) -> float:
    """Kernels of one stream cannot run at the same time."""
    totals: dict[str, float] = {}
    for launch in call[1:]:
        ns = bias.without(launch.ns, most=True)
        totals[launch.stream] = totals.get(launch.stream, 0.0) + ns
    return max(totals.values(), default=0.0)


def _with_others(
    setting: Setting, solution: Solution, workloads: Sequence[Workload]
) -> list[Workload]:
    definition = setting.catalog.resolve(solution.definition)
    known = {workload.uuid for workload in workloads}
    others = [w for w in setting.catalog.workloads(definition) if w.uuid not in known]
    return [*workloads, *SystemRandom().sample(others, min(OTHERS, len(others)))]


def _claims(
    setting: Setting, solution: Solution, built: BuildResult, workloads: Sequence[Workload]
) -> tuple[dict[str, list[Claim]], list[int]]:
    """By workload, but for those that take too long; and the evaluator's own kernels.

    Begins anew without a workload that takes too long: the profiler's run has only the others, and
    draws the same inputs for them.
    """
    chosen = list(workloads)
    while True:
        found, own_ns, slow = _claims_until_slow(setting, solution, built, chosen)
        if slow is None:
            return found, own_ns
        chosen.remove(slow)


def _claims_until_slow(
    setting: Setting, solution: Solution, built: BuildResult, workloads: Sequence[Workload]
) -> tuple[dict[str, list[Claim]], list[int], Workload | None]:
    """The same, and the first workload that takes too long, if any."""
    definition = setting.catalog.resolve(solution.definition)
    found: dict[str, list[Claim]] = {}
    if not workloads:
        return found, [], None
    with Session(setting, definition, workloads, own_calls=_OWN_CALLS) as session:
        for workload in workloads:
            if not _warm_up(setting, session, solution, built, workload):
                return found, [], workload
            found[workload.uuid] = [
                _claim(session, solution, number) for number in _sets(session, CALLS)
            ]
        return found, session.own_busy_ns, None


def _claim(session: Session, solution: Solution, number: int) -> Claim:
    outcome = session.call(solution.sha256, number, phase="bench", timed=True, full=False)
    kernels = outcome.details.get("kernels", ())
    assert outcome.ns is not None
    return Claim(
        span_ns=outcome.ns,
        busy_ns=outcome.details.get("busy_ns", 0),
        kernels_ns=sum(each["ns"] for each in kernels if each["name"] not in _COPIES),
    )


def _observe(
    setting: Setting,
    solution: Solution,
    built: BuildResult,
    workloads: Sequence[Workload],
    external: External,
) -> _Observed:
    """The same calls, started by the profiler.

    Raises:
        UnreadableError: it says nothing of them, and why.
    """
    if not workloads:
        raise UnreadableError("no workload was timed")
    definition = setting.catalog.resolve(solution.definition)
    report = ReportPipe()
    observer = Observer(external.name, report.fd, external.folders())
    code, failed = None, None
    with Session(
        setting, definition, workloads, observer=observer, own_calls=_OWN_CALLS
    ) as session:
        try:
            for workload in workloads:
                _warm_up(setting, session, solution, built, workload)
                report.listen()
                for number in _sets(session, CALLS):
                    session.call(solution.sha256, number, phase="bench", timed=True, full=False)
            isolation = session.isolation.get("candidate", {})
            code = session.finish(solution.sha256, _FINISH_S)
        except (KoptError, CandidateFailedError) as error:
            failed = error
    text = report.text()
    launches = read_report(text) if failed is None else _why(text, failed)
    if code != 0:
        raise UnreadableError(f"{external.name} has ended with {code!r}")
    calls = attribute(launches, _OWN_CALLS + CALLS * len(workloads))
    by_workload = {
        workload.uuid: calls[_OWN_CALLS + at * CALLS :][:CALLS]
        for at, workload in enumerate(workloads)
    }
    return _Observed(calls[:_OWN_CALLS], by_workload, isolation)


def _why(text: str, failed: Exception) -> tuple[Launch, ...]:
    """What the profiler says of a failure, else the failure itself."""
    if any(line.startswith("==ERROR==") for line in text.splitlines()):
        read_report(text)
    raise failed


def _warm_up(
    setting: Setting, session: Session, solution: Solution, built: BuildResult, workload: Workload
) -> bool:
    """Whether a call is short enough to be timed."""
    session.start(solution, built.path)
    session.bind(workload)
    session.open(solution, built.path)
    wall_ns = 0
    for number in _sets(session, WARM_CALLS):
        outcome = session.call(solution.sha256, number, phase="check", timed=False, full=False)
        wall_ns = outcome.wall_ns
        if wall_ns > setting.options.timed_call_s * 1e9:
            return False
    return True


def _sets(session: Session, count: int) -> list[int]:
    first = next(iter(session.generators))
    return session.choose(session.sets(first, 2), count)
