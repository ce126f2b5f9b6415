"""Rounds and promotions as rows of tables, out of their documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .shown import ratio_text

__all__ = [
    "PROMOTION_COLUMNS",
    "ROUND_COLUMNS",
    "ROUND_NUMERIC",
    "promotion_row",
    "round_row",
]

ROUND_COLUMNS = (
    "run",
    "round",
    "limit",
    "direction",
    "passed",
    "best",
    "sha256",
    "time / incumbent",
    "decision",
    "applied",
)
"""Headings of ``round_row``."""

ROUND_NUMERIC = ("round",)


def round_row(run_id: str, document: Mapping[str, Any]) -> tuple[object, ...]:
    """One round of ``run_document`` as a row of a table."""
    best = document["best"]
    return (
        run_id,
        document["round"],
        document["bottleneck"],
        document["direction"],
        f"{document['passed']} of {document['candidates']}",
        None if best is None else best["name"],
        None if best is None else best["sha256"][:12],
        _ratio(document),
        document["decision"],
        "by command" if document["promoted_by"] else "yes" if document["applied"] else "no",
    )


PROMOTION_COLUMNS = (
    "run",
    "when",
    "by",
    "candidate",
    "sha256",
    "against",
    "time / incumbent",
    "outcome",
)
"""Headings of ``promotion_row``."""


def promotion_row(document: Mapping[str, Any]) -> tuple[object, ...]:
    """One document of ``promotion_document`` as a row of a table."""
    incumbent, conditions = document["incumbent"], document["conditions"] or ()
    failed = ", ".join(each["name"] for each in conditions if not each["ok"])
    ended = "promoted" if document["applied"] else f"refused: {failed or document['detail']}"
    return (
        document["run"],
        document["created"],
        document["by"],
        document["candidate"]["name"] or None,
        document["candidate"]["sha256"][:12],
        None if incumbent is None else incumbent["name"],
        _ratio(document),
        document["state"] if document["detail"] is None else ended,
    )


def _ratio(document: Mapping[str, Any]) -> str | None:
    """With its interval, without which it says nothing."""
    if document["ratio"] is None:
        return None
    return ratio_text(document["ratio"], document["ci"])
