"""An ablation for programs and for people: one document, and a page of Markdown out of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from .design import Arm, Plan, Scope
from .estimate import CONFIDENCE, Effect, Estimate, Result, Results, effects_of, level_of

__all__ = ["arm_rows", "caveat", "document_of", "effect_rows", "markdown_of"]

SCOPES: tuple[Scope, ...] = ("single", "whole")
NOT_APPLICABLE = "n/a"
UNKNOWN = "-"


def document_of(
    name: str, plan: Plan, results: Results, environment: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON of ``kopt ablate``.

    Args:
        name: Of the ablation.
        plan: What was run.
        results: What came of it.
        environment: In which the results were measured once more.
    """
    wanted = len(plan.cells())
    ran = sum(len(each) for (_, arm), each in results.items() if plan.is_run(arm))
    return {
        "ablation": name,
        "definition": plan.definition,
        "target": plan.target,
        "agent": plan.config.agent,
        "start": plan.start.model_dump(mode="json"),
        "seeds": plan.seeds,
        "rounds": plan.config.rounds,
        "candidates": plan.config.max_candidates,
        "whole": list(plan.whole),
        "single": plan.single,
        "reuse": plan.reuse,
        "campaigns": ran,
        "complete": ran == wanted,
        "confidence": CONFIDENCE,
        "environment": dict(environment),
        "arms": [
            _arm(plan, scope, arm, results.get((scope, arm), {}))
            for scope in SCOPES
            for arm in plan.arms
        ],
        "effects": [_effect(each) for each in effects_of(plan, results)],
    }


def _arm(plan: Plan, scope: Scope, arm: Arm, found: Mapping[int, Result]) -> dict[str, Any]:
    return {
        "scope": scope,
        "arm": arm,
        "applies": plan.applies(arm, scope),
        "level": _estimate(level_of(found)),
        "wrong": sum(not each.is_right for each in found.values()),
        "results": [
            {
                "seed": seed,
                "name": each.name,
                "sha256": each.sha256,
                "ratio": each.ratio,
                "ci": list(each.ci),
                "single_ratio": each.single_ratio,
                "single_ci": None if each.single_ci is None else list(each.single_ci),
                "evaluations": each.evaluations,
                "right": each.is_right,
            }
            for seed, each in sorted(found.items())
        ],
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {"name": effect.name, "of": effect.of, "estimate": _estimate(effect.estimate)}


def _estimate(found: Estimate | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"ratio": found.ratio, "ci": [found.lo, found.hi], "seeds": found.n}


def arm_rows(document: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Arm, level in either scope, and evaluations of a campaign.

    Args:
        document: Of ``kopt ablate``.
    """
    by_arm: dict[str, dict[str, Any]] = {}
    for row in document["arms"]:
        by_arm.setdefault(row["arm"], {})[row["scope"]] = row
    return tuple(
        (
            arm,
            *(
                _cell(
                    rows[scope]["level"],
                    applies=rows[scope]["applies"],
                    why=_seeds(len(rows[scope]["results"]), document),
                )
                for scope in SCOPES
            ),
            _evaluations([each for row in rows.values() for each in row["results"]]),
        )
        for arm, rows in by_arm.items()
    )


def _seeds(ended: int, document: Mapping[str, Any]) -> str:
    """Why there is no level: two seeds are the fewest that have one."""
    return f"{ended} of {document['seeds']} seeds"


def _evaluations(results: Sequence[Mapping[str, Any]]) -> str:
    counts = [each["evaluations"] for each in results]
    return f"{statistics.fmean(counts):.1f}" if counts else NOT_APPLICABLE


def effect_rows(document: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Harness and mechanisms in either scope; then the scope effect of each arm.

    Args:
        document: Of ``kopt ablate``.
    """
    applies = {(row["arm"], row["scope"]): row["applies"] for row in document["arms"]}
    found = {(each["name"], each["of"]): each["estimate"] for each in document["effects"]}
    names = list(dict.fromkeys(name for name, _ in found if name != "scope"))
    why = "no interval" if document["complete"] else "incomplete"
    inside = [
        (
            "the whole harness" if name == "harness" else name,
            *(
                _cell(found[name, scope], applies=applies.get((name, scope), True), why=why)
                for scope in SCOPES
            ),
        )
        for name in names
    ]
    scopes = [
        (
            f"one workload alone, {arm}",
            _cell(estimate, applies=applies.get((arm, "single"), True), why=why),
            "",
        )
        for (name, arm), estimate in found.items()
        if name == "scope"
    ]
    return (*inside, *scopes)


def _cell(estimate: Mapping[str, Any] | None, *, applies: bool, why: str) -> str:
    if not applies:
        return NOT_APPLICABLE
    if estimate is None:
        return f"{UNKNOWN} ({why})"
    low, high = estimate["ci"]
    return f"{estimate['ratio']:.3f} [{low:.3f}, {high:.3f}]"


def caveat(document: Mapping[str, Any]) -> str:
    """What the intervals leave out; empty where that is nothing that is known.

    Args:
        document: Of ``kopt ablate``.
    """
    if not document["reuse"]:
        return ""
    return (
        "Campaigns that came to the same pair of solutions share its gate and sweep: what that "
        "noise did to all of them is in no interval."
    )


def markdown_of(document: Mapping[str, Any], date: str, command: str) -> str:
    """Both tables with where, when and how; for a page of its own or a part of one.

    Args:
        document: Of ``kopt ablate``.
        date: When it was measured.
        command: That was typed.
    """
    environment = document["environment"]
    device = environment.get("device") or environment.get("processor") or "unknown hardware"
    wanted = "" if document["complete"] else ", incomplete"
    lines = [
        f"`{document['definition']}` on `{document['target']}` ({device}), {date}, agent "
        f"`{document['agent']}`, start `{document['start']['name']}`: {document['campaigns']} "
        f"campaigns{wanted}, {document['seeds']} seeds, {document['rounds']} rounds of at most "
        f"{document['candidates'] or 'the default number of'} candidates, "
        f"{len(document['whole'])} workloads as the whole.",
        "",
        f"Time over that of the start, mean over seeds [interval at {document['confidence']:.0%}]:",
        "",
        *_table(("arm", "one workload", "whole definition", "candidates"), arm_rows(document)),
        "",
        "Effects: time with over time without; below 1 is a gain.",
        "",
        *_table(("effect", "one workload", "whole definition"), effect_rows(document)),
        "",
        *((caveat(document), "") if document["reuse"] else ()),
        "```sh",
        command,
        "```",
        "",
    ]
    return "\n".join(lines)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
