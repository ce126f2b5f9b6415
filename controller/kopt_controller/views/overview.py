"""Lists out of the index alone: campaigns, and which operators and targets there is evidence of.

Nothing here opens a journal, so that a page over thousands of runs is there at once.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from kopt_harness.index import Index
from kopt_harness.root import Root

from ..indexed import runs_document
from ..kinds import CAMPAIGN
from .model import EvaluationTable, Interval, View

__all__ = [
    "CampaignRow",
    "SubjectKey",
    "campaign_rows",
    "evaluation_table",
    "list_subjects",
    "retained_folder",
]


class CampaignRow(View):
    """One campaign in a list."""

    run: str
    definition: str
    target: str
    created: str
    agent: str
    state: str
    rounds_closed: int
    rounds_planned: int
    decisions: dict[str, int]
    """How often each label closed a round."""
    best_ratio: float | None
    """The least ratio of a sweep."""
    best_ci: Interval | None
    last_time: str


class SubjectKey(NamedTuple):
    """A definition on a target."""

    definition: str
    """Full id."""
    target: str


def list_subjects(
    root: Root, index: Index, *, definition: str | None = None, target: str | None = None
) -> tuple[SubjectKey, ...]:
    """Of which there are campaigns or committed evidence, in order.

    Args:
        root: With the committed evidence.
        index: Of the archive.
        definition: Full id; None: all.
        target: Name; None: all.
    """
    runs = index.runs(CAMPAIGN, definition=definition, target=target)
    found = {SubjectKey(run.definition, run.target) for run in runs if run.manifest}
    for path in root.retained.glob("*/*/summary.json"):
        key = SubjectKey(path.parent.parent.name, path.parent.name)
        if definition in (None, key.definition) and target in (None, key.target):
            found.add(key)
    return tuple(sorted(found))


def retained_folder(root: Root, key: SubjectKey) -> Path | None:
    """Where the committed evidence is; None where there is none."""
    folder = root.retained / key.definition / key.target
    return folder if (folder / "summary.json").is_file() else None


def campaign_rows(
    index: Index,
    *,
    definition: str | None = None,
    target: str | None = None,
    last: int | None = None,
) -> tuple[CampaignRow, ...]:
    """Campaigns, oldest first.

    Args:
        index: Of the archive.
        definition: Full id; None: all.
        target: Name; None: all.
        last: Only so many, the latest.
    """
    runs = index.runs(CAMPAIGN, definition=definition, target=target, last=last)
    rows = []
    for each in runs_document(index, runs):
        timed = [r for r in each["rounds"] if r["ratio"] is not None]
        best = min(timed, key=lambda r: r["ratio"], default=None)
        rows.append(
            CampaignRow(
                run=each["run"],
                definition=each["definition"],
                target=each["target"],
                created=each["created"],
                agent=each["agent"],
                state=each["state"],
                rounds_closed=len(each["rounds"]),
                rounds_planned=each["rounds_planned"],
                decisions=dict(Counter(r["decision"] for r in each["rounds"])),
                best_ratio=None if best is None else best["ratio"],
                best_ci=None if best is None else best["ci"],
                last_time=each["last"]["time"] if each["last"] else "",
            )
        )
    return tuple(rows)


def evaluation_table(
    index: Index, orders: dict[str, dict[int, int]], most: int | None = None
) -> EvaluationTable:
    """Every evaluated workload of some runs.

    Args:
        index: Of the archive.
        orders: By run, then by number of the round: where it stands in the trajectory.
        most: Only so many rows, the latest.
    """
    texts: tuple[dict[str, int], ...] = ({}, {}, {}, {})
    rows = []
    for run, by_round in orders.items():
        for row in index.evaluations(run):
            told = (row.solution, row.uuid, row.verdict, row.phase)
            places = [t.setdefault(text, len(t)) for t, text in zip(texts, told, strict=True)]
            order = by_round.get(_round_of(row.key), 0)
            rows.append((order, places[0], places[1], places[2], places[3], row.median_us))
    solutions, uuids, verdicts, phases = (tuple(each) for each in texts)
    return EvaluationTable(
        solutions=solutions,
        uuids=uuids,
        verdicts=verdicts,
        phases=phases,
        rows=tuple(rows if most is None else rows[max(0, len(rows) - most) :]),
        in_all=len(rows),
    )


def _round_of(key: str) -> int:
    head = key.partition("/")[0]
    return int(head[1:]) if head[:1] == "r" and head[1:].isdecimal() else 0
