"""A closed round once more: the same incumbent, memory, seeds and candidates, measured anew.

The new run has the number of the old round, so that all that depends on it is the same. The
old proposals and steers are its input and are copied; nothing that was measured is. It asks
before it promotes, since its incumbent may not be today's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.journal import Journal
from kopt_harness.root import Root

from .campaign import Campaign, MakeHarness, read_manifest
from .directions import load_directions
from .history import find_round
from .provenance import versions
from .result import RoundResult

__all__ = ["Rerun", "comparison_of", "start_rerun"]


class Rerun(NamedTuple):
    """A round that is to be run again."""

    campaign: Campaign
    before: RoundResult
    """What it came to."""
    changed: tuple[str, ...]
    """What the old run was made with and is no longer the same."""


def start_rerun(
    root: Root, run_id: str, number: str, make_harness: MakeHarness, notify: Callable[[str], None]
) -> Rerun:
    """A new run of one round; nothing is measured yet.

    Args:
        root: Where it was run.
        run_id: Id or an unambiguous part of it.
        number: Of a closed round.
        make_harness: Makes what measures.
        notify: Gets progress.

    Raises:
        NotFoundError: If there is no such run or round, or a candidate is no longer archived.
    """
    archive, catalog = Archive(root.local), Catalog(root)
    found = find_round(archive, run_id, number)
    view, before = found.view, found.result
    old = view.manifest
    memory = old.memory
    for result in view.rounds:
        if result.round < before.round:
            memory = memory.learn(view.run.id, result)
    definition = catalog.resolve_exact(old.definition)
    now = versions(load_directions(), catalog.folder(definition))
    config = old.config.model_copy(update={"rounds": 1, "budget_s": None})
    manifest = old.model_dump(mode="json", exclude={"schema_", "run", "created"}) | {
        "config": config.model_dump(mode="json"),
        "mode": "ask",
        "incumbent": before.incumbent_before.model_dump(mode="json"),
        "memory": memory.model_dump(mode="json"),
        "first_round": before.round,
        "rerun_of": f"{view.run.id}/{before.round}",
        "versions": now,
    }
    run = archive.create_run(f"rerun-{definition.kopt.alias}-{old.target}", manifest)
    given = re.compile(
        rf"r{before.round}/(steer|urged|plan|proposals/.+|(agent|planner|reviewer|debate)/.+/prompt)"
    )
    with Journal(run.journal_path) as journal:
        for record in view.records:
            if given.fullmatch(record.key):
                journal.put(record.key, record.value)
    changed = tuple(
        f"{name}: {was or 'not recorded'}, now {now.get(name)}"
        for name, was in sorted((old.versions or dict.fromkeys(now, "")).items())
        if was != now.get(name)
    )
    campaign = Campaign(run, read_manifest(run), catalog, archive, make_harness, notify)
    return Rerun(campaign, before, changed)


def comparison_of(before: RoundResult, after: RoundResult) -> dict[str, Any]:
    """What came out the same, and both decisions."""
    shas = [{c.sha256 for c in each.candidates} for each in (before, after)]
    return {
        "direction": before.direction.id == after.direction.id,
        "candidates": shas[0] == shas[1],
        "best": before.best == after.best,
        "decision": before.decision.label == after.decision.label,
        "before": before.decision.model_dump(mode="json"),
        "after": after.decision.model_dump(mode="json"),
    }
