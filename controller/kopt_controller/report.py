"""A round for a person: lines and tables out of the document of ``kopt round``.

Works on the document, not on the objects behind it, so that what is shown for a fresh round
and for one read from the archive cannot differ. Knows no terminal: the command line prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .shown import counted, ratio_text

__all__ = ["Block", "Table", "cost_line", "retained_after", "round_blocks", "search_lines"]

SHORT = 12
"""Digits of a hash that are shown."""


class Table(NamedTuple):
    """Rows under headings."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    numeric: tuple[str, ...] = ()
    """Headings of columns to align to the right."""


Block = str | Table
"""A line, or a table."""


def round_blocks(
    document: Mapping[str, Any], retained: Mapping[str, Any] | None = None
) -> tuple[Block, ...]:
    """One round, from state to decision.

    Args:
        document: One element of ``rounds`` in the JSON of ``kopt round``.
        retained: Name and hash of what was retained after it; None where that is not known.
    """
    return (
        f"Round {document['round']}: {document['definition']} on {document['target']}, "
        f"incumbent {_named(document['incumbent_before'])}",
        "",
        *_state(document["state"]),
        f"Direction: {document['direction']['id']} - {document['direction']['title']}",
        f"  because {document['direction']['reason']}",
        "",
        *_candidates(document["candidates"]),
        *(f"Note: {text}" for text in document["notes"]),
        *_sweep(document["best"], document["sweep"]),
        *_decision(document["decision"]),
        *_outcome(document, retained),
    )


def cost_line(cost: Mapping[str, Any]) -> str:
    """What a run has cost, in one line.

    Args:
        cost: Of the JSON of ``kopt round``.
    """
    total = cost["total"]
    device = f"{cost['device_s']:.1f} s of the device"
    if not total["calls"]:
        return f"Cost: {device}; no agent was paid"
    tokens = total["tokens_in"] + total["tokens_cached"] + total["tokens_out"]
    at_least = "at least " if total["unpriced"] else ""
    is_known = total["dollars"] or total["unpriced"] < total["calls"]
    dollars = f"{at_least}{total['dollars']:.4f} dollars" if is_known else "price unknown"
    uses = "1 use of a model" if total["calls"] == 1 else f"{total['calls']} uses of models"
    return f"Cost: {dollars}, {counted(tokens, 'token')} in {uses}, {device}"


def _state(state: Mapping[str, Any]) -> tuple[Block, ...]:
    rows = tuple(
        (
            signature["regime"],
            signature["workloads"],
            _percent(signature["time_share"]),
            _number(signature["total_us"], ".1f"),
            signature["bottleneck"],
            signature["launch_count"],
            _number(signature["distance_to_floor"], ".2f"),
            _dominant(signature),
        )
        for signature in state["regimes"]
    )
    columns = ("regime", "workloads", "time", "us", "limit", "launches", "x floor", "dominant")
    numeric = ("workloads", "time", "us", "launches", "x floor")
    resource = state["limiting_resource"]
    what = "" if resource in (None, state["bottleneck"]) else f": {resource}"
    return (
        Table(columns, rows, numeric),
        f"State: most can be won in {state['regime']}, limited by {state['bottleneck']}{what} "
        f"(from {state['basis']}){_diagnosis(state)}",
        "",
    )


def _diagnosis(state: Mapping[str, Any]) -> str:
    """What the profile says beyond the class; empty where it says nothing more."""
    found = state["diagnosis"]
    if found in (None, "unknown", state["bottleneck"]):
        return ""
    limiter = f", {state['limiter']}" if state["limiter"] else ""
    return f"; the profile says {found}{limiter}"


def _dominant(signature: Mapping[str, Any]) -> str | None:
    name = signature["dominant_kernel"]
    if name is None:
        return None
    # Of a C++ kernel the name alone: its template arguments can fill a screen.
    plain = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0] or name
    return f"{plain} {_percent(signature['dominant_share'])}"


def _candidates(candidates: Sequence[Mapping[str, Any]]) -> tuple[Block, ...]:
    if not candidates:
        return ("No candidates.", "")
    rows = tuple(
        (
            candidate["name"],
            candidate["sha256"][:SHORT],
            candidate["verdict"],
            "passed" if candidate["gate"]["passed"] else "not passed",
            _ratio(candidate["gate"]["comparison"]),
            candidate["gate"]["reason"]["detail"]
            if candidate["verdict"] != "pass"
            else candidate["rationale"],
        )
        for candidate in candidates
    )
    columns = ("candidate", "sha256", "verdict", "gate", "time / incumbent", "what")
    return (Table(columns, rows), "")


def _sweep(best: Mapping[str, Any] | None, sweep: Mapping[str, Any] | None) -> tuple[Block, ...]:
    if best is None or sweep is None:
        return ("Sweep: none, since no candidate passed the gate", "")
    head = (
        f"Sweep of {_named(best)}: {sweep['verdict']} on {counted(sweep['workloads'], 'workload')}"
    )
    comparison = sweep["comparison"]
    if comparison is None or comparison["ratio"] is None:
        return (head, "")
    means = ""
    if comparison["a_mean_us"] is not None and comparison["b_mean_us"] is not None:
        means = f", mean {comparison['b_mean_us']:.1f} us against {comparison['a_mean_us']:.1f} us"
    confidence = f"{comparison['confidence']:.0%}"
    return (f"{head}; time / incumbent {_ratio(comparison)} at {confidence}{means}", "")


def _decision(decision: Mapping[str, Any]) -> tuple[Block, ...]:
    rows = tuple(
        (
            "ok" if condition["ok"] else "NO",
            condition["name"],
            condition["measured"],
            condition["required"],
        )
        for condition in decision["evidence"]
    )
    table = (Table(("", "condition", "measured", "required"), rows),) if rows else ()
    return (*table, f"Decision: {decision['label'].upper()} - {decision['reason']}")


def retained_after(rounds: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any] | None, ...]:
    """Name and hash of what was retained after each round; a line goes on without a promotion.

    Args:
        rounds: All of a run. Where its first is a later one, run again, it is not known from
            what that started: None until a promotion.
    """
    found: list[Mapping[str, Any] | None] = []
    for each in rounds:
        promotion = each["promotion"]
        is_promoted = promotion is not None and promotion["applied"]
        started = each["incumbent_before"] if each["round"] == 1 else None
        before = found[-1] if found else started
        found.append(each["incumbent"] if is_promoted else before)
    return tuple(found)


def _outcome(document: Mapping[str, Any], retained: Mapping[str, Any] | None) -> tuple[Block, ...]:
    promotion = document["promotion"]
    signals = tuple(f"Supervisor: {s['kind']}: {s['detail']}" for s in document["signals"])
    moved = () if promotion is None else (promotion["detail"],)
    if document["decision"]["label"] == "promote-dispatch":
        moved = ("Put it before the incumbent for these sizes: kopt promote-dispatch RUN/ROUND",)
    lines = search_lines(document)
    return (*moved, *lines, *_standing(document, retained), *signals, "")


def _standing(document: Mapping[str, Any], retained: Mapping[str, Any] | None) -> tuple[str, ...]:
    """From what the next round starts, and what is retained where that is something else."""
    newest = document["incumbent"]
    is_version = document["committed"] or (
        retained is not None and retained["sha256"] != newest["sha256"]
    )
    if not is_version:
        return (f"Incumbent: {_named(newest)}",)
    kept = () if retained is None else (f"Incumbent (retained): {_named(retained)}",)
    return (f"Newest version: {_named(newest)}", *kept)


def search_lines(document: Mapping[str, Any]) -> tuple[str, ...]:
    """What the search policy, a reviewer and a debate had to do with a round; often nothing.

    Args:
        document: Of a round.
    """
    parent, review, debate = document["parent"], document["review"], document["debate"]
    lines = [] if parent is None else [f"Started from: {_named(parent)}"]
    if document["committed"]:
        lines.append("Committed to the line without a promotion")
    if review is not None:
        reasons = "; ".join(review["reasons"]) or "no reason given"
        lines.append(f"Review by {review['by']}: {review['verdict']} - {reasons}")
    if debate is not None:
        lines += [
            f"Debate, {each['by']}: {each['direction']} - {each['argument']}"
            for each in debate["closing"]
        ]
        lines.append(f"Debate agreed on: {debate['agreed'] or 'nothing; a person is asked'}")
    return tuple(lines)


def _named(ref: Mapping[str, Any]) -> str:
    return f"{ref['name']} ({ref['sha256'][:SHORT]})"


def _ratio(comparison: Mapping[str, Any] | None) -> str | None:
    if comparison is None or comparison["ratio"] is None:
        return None
    return ratio_text(comparison["ratio"], comparison["ci"])


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
