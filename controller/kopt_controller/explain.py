"""Why a round went the way it went: what ``kopt explain`` prints.

Everything comes out of the record of the round; nothing is computed again, so that the
explanation is of what was decided, also after the catalogue or the policy has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .report import Block, Table, search_lines
from .result import RoundResult

__all__ = ["explain_blocks", "explanation"]


def explanation(result: RoundResult) -> dict[str, Any]:
    """The JSON of one explained round."""
    document = result.document()
    return {
        name: document[name]
        for name in (
            "round",
            "definition",
            "target",
            "incumbent_before",
            "state",
            "direction",
            "ranking",
            "refused",
            "candidates",
            "notes",
            "decision",
            "signals",
            "actions",
            "steers",
            "rung",
            "policy",
            "parent",
            "committed",
            "review",
            "debate",
        )
    }


def explain_blocks(document: Mapping[str, Any]) -> tuple[Block, ...]:
    """One round for a person.

    Args:
        document: What ``explanation`` gave.
    """
    state, chosen = document["state"], document["direction"]
    return (
        f"Round {document['round']}: {document['definition']} on {document['target']}, "
        f"incumbent {document['incumbent_before']['name']}",
        f"State: most can be won in {state['regime']}, limited by {state['bottleneck']} "
        f"(from {state['basis']})",
        *_diagnosis(state),
        "",
        *_ranking(document["ranking"]),
        f"Chosen: {chosen['id']} - {chosen['title']}",
        *(f"  {f['name']} {f['value']:.3g}: {f['reason']}" for f in chosen["factors"]),
        *(() if chosen["factors"] else (f"  because {chosen['reason']}",)),
        f"  expected: {chosen['expected_effect'] or 'nothing was said'}",
        "",
        *(f"Said: {steer['kind']} {steer['value']}" for steer in document["steers"]),
        *((f"Rung of the plateau ladder: {document['rung']}",) if document["rung"] else ()),
        *map(_candidate, document["candidates"]),
        *(f"Note: {text}" for text in document["notes"]),
        *search_lines(document),
        f"Came to: {document['decision']['label']} - {document['decision']['reason']}",
        *(f"Supervisor: {s['kind']}: {s['detail']}" for s in document["signals"]),
        *(f"  so it will {_action(action)}" for action in document["actions"]),
        "",
    )


_SAID = {
    "direction": " (of the direction alone)",
    "joint": " (joint: with more than the direction)",
}


def _candidate(candidate: Mapping[str, Any]) -> str:
    """What was proposed, and what its effect would say of the direction."""
    said = _SAID.get(candidate.get("attribution") or "", "")
    return f"Candidate: {candidate['name']}{said} - {candidate['rationale'] or 'nothing was said'}"


def _diagnosis(state: Mapping[str, Any]) -> tuple[str, ...]:
    """What the profile says of the regime, with the numbers behind it."""
    if state["diagnosis"] in (None, "unknown"):
        return ()
    limiter = f" ({state['limiter']})" if state["limiter"] else ""
    rows = (
        f"  {row['metric']} {row['value']:.3g}, threshold {row['threshold']:.3g} ({row['source']})"
        for row in state["evidence"]
    )
    return (f"Profile: {state['diagnosis']}{limiter}", *rows)


def _action(action: Mapping[str, Any]) -> str:
    what = {"ask": "ask a person", "widen": "widen the search"}.get(action["kind"], action["kind"])
    return f"{what} {', '.join(action['directions'])}".rstrip() + f" ({action['because']})"


def _ranking(ranking: Sequence[Mapping[str, Any]]) -> tuple[Block, ...]:
    if not ranking:
        return ("The ranking was not recorded: the round is of an older version.", "")
    names = list(dict.fromkeys(f["name"] for each in ranking for f in each["factors"]))
    rows = tuple(
        (
            each["id"],
            each["standing"],
            f"{each['score']:.4f}" if each["factors"] else None,
            *_values(each["factors"], names),
            each["regime"] or None,
            None if each["factors"] else each["reason"],
        )
        for each in ranking
    )
    columns = ("direction", "standing", "score", *names, "regime", "why not")
    return (Table(columns, rows, ("score", *names)), "")


def _values(factors: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[str | None, ...]:
    by_name = {factor["name"]: f"{factor['value']:.3g}" for factor in factors}
    return tuple(by_name.get(name) for name in names)
