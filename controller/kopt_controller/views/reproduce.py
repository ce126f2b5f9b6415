"""Command lines that make what a chapter shows again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kopt_harness.root import Root

from ..history import RunView
from .model import Command
from .overview import SubjectKey
from .sources import Pair

__all__ = ["commands"]

SHORT = 12


def commands(
    key: SubjectKey,
    views: Sequence[RunView],
    pair: Pair | None,
    retained: Path | None,
    root: Root,
) -> tuple[Command, ...]:
    """From the cheapest to the whole campaign.

    Args:
        key: Of the chapter.
        views: Its campaigns.
        pair: Of its headline.
        retained: Folder of the committed evidence.
        root: Relative to which paths are written.
    """
    found: list[Command] = []
    if pair is not None:
        source = pair.candidate.sha256[:SHORT]
        if retained is not None and pair.source.startswith("retained/"):
            source = str((retained / "solution.json").relative_to(root.path))
        on = f"--target {key.target}"
        found += [
            _command("check that the candidate is right", f"kopt check {source} {on}"),
            _command(
                "measure every workload again, beside the incumbent of today",
                f"kopt sweep {source} {on}",
            ),
            _command("look for what a few calls miss", f"kopt replay {source} {on} --trials 200"),
        ]
        run, _, number = pair.source.partition("/")
        if number.isdecimal():
            found.append(_command("run the round again", f"kopt rerun {run} {number}"))
            found.append(_command("why that direction", f"kopt explain {run} {number}"))
    if views:
        manifest = views[-1].manifest
        line = f"kopt round --definition {key.definition} --target {key.target}"
        line += f" --agent {manifest.config.agent} --rounds {manifest.config.rounds}"
        found.append(_command("a new campaign like the last one", line))
    return tuple(found)


def _command(why: str, line: str) -> Command:
    return Command(why=why, line=line)
