"""Takes what people and other programs drop into a folder.

A candidate is a packed JSON file or a solution folder. Nothing is moved or changed: what was
taken is remembered by content, so a corrected file is a new candidate and a copy is none. It
is taken in whatever direction the round goes; more than the round's limit waits for the next.
"""

from __future__ import annotations

from pathlib import Path

from kopt_harness.errors import KoptError

from .protocol import AgentContext, AgentFactory, Proposal, Proposals, RoundBrief

__all__ = ["AGENT", "InboxAgent"]


class InboxAgent:
    """Reads one folder, by name."""

    name = "inbox"

    def __init__(self, context: AgentContext) -> None:
        self._folder = context.inbox
        self._load = context.load

    def propose(self, brief: RoundBrief) -> Proposals:
        """What is new in the folder; a file that is no candidate becomes a note."""
        taken = set(brief.memory.measured()) | {brief.incumbent.sha256}
        proposals: list[Proposal] = []
        notes: list[str] = []
        for path in self._entries():
            try:
                solution = self._load(path).solution
            except KoptError as error:
                # A half-written or malformed file must not end an unattended campaign.
                notes.append(f"{path.name} is no candidate: {error.message}")
                continue
            if solution.definition != brief.definition.name:
                notes.append(f"{path.name} is for {solution.definition}")
            elif solution.sha256 not in taken and len(proposals) < brief.limit:
                taken.add(solution.sha256)
                proposals.append(Proposal(solution, f"found in the inbox as {path.name}"))
        if not self._folder.is_dir():
            notes.append(f"there is no inbox at {self._folder}")
        return Proposals(tuple(proposals), tuple(notes))

    def _entries(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        visible = (path for path in self._folder.iterdir() if not path.name.startswith("."))
        return sorted(p for p in visible if p.suffix == ".json" or (p / "config.toml").is_file())


def _create(context: AgentContext) -> InboxAgent:
    return InboxAgent(context)


AGENT = AgentFactory(create=_create, promotion="ask")
