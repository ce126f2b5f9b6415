"""The whole way of an agent that writes code: brief, task, prompt, drafts, packed proposals."""

from __future__ import annotations

from collections.abc import Sequence

from kopt_harness.errors import KoptError
from kopt_harness.ledger import DictLedger
from kopt_harness.targets import get_target, runs_on

from ...agent_settings import AgentSettings
from ...costs import Allowance, Usage, least
from ..protocol import (
    AgentContext,
    AgentTask,
    Draft,
    Drafted,
    Ending,
    Proposal,
    Proposals,
    RoundBrief,
    Writer,
)
from .claims import harmless
from .drafts import pack_draft
from .secrets import Secrets
from .task import task_of

__all__ = ["WritingAgent", "call_allowance"]

BROKEN: frozenset[Ending] = frozenset(
    {"broken", "failed", "killed", "rate-limit", "refusal", "server-error"}
)
"""Endings of an agent that would do no better for another direction; where it came to the end of
its turns or its time with one task, another task may suit it."""


class WritingAgent:
    """What the loop sees of a ``Writer``."""

    def __init__(self, writer: Writer, context: AgentContext) -> None:
        self.name = writer.name
        self.writer = writer
        self._context = context

    def propose(self, brief: RoundBrief) -> Proposals:
        """What the writer left, packed; what is no candidate becomes a note."""
        left = Allowance() if brief.left is None else brief.left()
        task = task_of(brief, self._context, call_allowance(self._context.settings, left))
        if not task.languages:
            wanted = ", ".join(brief.direction.languages)
            return Proposals((), (f"{self.name} may write none of {wanted}",))
        drafted = self.writer.generate(task, brief.ledger or DictLedger())
        return self.proposals(brief, task, drafted)

    def proposals(self, brief: RoundBrief, task: AgentTask, drafted: Drafted) -> Proposals:
        """Packs the drafts of a call.

        Args:
            brief: Of the round.
            task: What was asked for.
            drafted: What came of it.
        """
        known = _Known(brief)
        candidates: list[Proposal] = []
        notes = list(drafted.notes)
        key = self._context.settings.key_env
        drafts, refused = Secrets([key] if key else []).screen(drafted.drafts)
        down = list(refused)
        for draft in drafts:
            proposal = self._pack(brief, task, draft, down)
            if proposal is None:
                continue
            why = known.why(draft.name, proposal.solution.sha256)
            if why:
                down.append(f"the draft {draft.name!r} {why}")
            elif len(candidates) < brief.limit:
                candidates.append(proposal)
        down = [harmless(each) for each in down]
        notes += down
        unusable = ""
        if not candidates and drafted.ending != "done":
            last = [notes.pop().removeprefix(f"{self.name}: ")] if notes else []
            unusable = ": ".join([self.name, ", ".join([drafted.ending, *last])])
            notes.append(f"{brief.direction.id}: no usable answer of {unusable}")
        return Proposals(
            tuple(candidates),
            tuple(dict.fromkeys(notes)),
            shared(drafted.usage, [proposal.solution.sha256 for proposal in candidates]),
            unusable,
            is_broken=bool(unusable) and drafted.ending in BROKEN,
            turned_down=tuple(dict.fromkeys((*drafted.refused, *down))),
        )

    def _pack(
        self, brief: RoundBrief, task: AgentTask, draft: Draft, notes: list[str]
    ) -> Proposal | None:
        """None, and a note, where it cannot be measured."""
        try:
            solution = pack_draft(draft, self._context.load, self.name)
        except KoptError as error:
            notes.append(f"the draft {draft.name!r} is no candidate: {error.message}")
            return None
        language = solution.spec.language
        if solution.definition != brief.definition.name:
            notes.append(f"the draft {draft.name!r} is for {solution.definition!r}")
        elif language not in task.languages:
            notes.append(f"the draft {draft.name!r} is in {language}, which was not asked for")
        elif not runs_on(solution, get_target(brief.target)):
            notes.append(f"the draft {draft.name!r} is not for {brief.target}")
        else:
            rationale = draft.rationale or f"written by {self.name}"
            return Proposal(solution, rationale, technique=draft.technique)
        return None


class _Known:
    """What a draft may be equal to, so that nobody would learn anything from measuring it."""

    def __init__(self, brief: RoundBrief) -> None:
        self._incumbent = brief.incumbent.sha256
        self._measured = brief.memory.measured()
        self._names: dict[str, str] = {}

    def why(self, name: str, sha256: str) -> str:
        """What it is the same as; empty where it is new."""
        if sha256 == self._incumbent:
            return "is the same as what must be beaten"
        if sha256 in self._names:
            return f"is the same as the draft {self._names[sha256]!r}"
        self._names[sha256] = name
        return "is what was measured or refused before" if sha256 in self._measured else ""


def shared(uses: Sequence[Usage], sha256s: Sequence[str]) -> tuple[Usage, ...]:
    """Uses with what they led to."""
    return tuple(usage.model_copy(update={"candidates": tuple(sha256s)}) for usage in uses)


def call_allowance(settings: AgentSettings, left: Allowance) -> Allowance:
    """What one call may spend: the settings' own, and never more than is left of the campaign.

    Args:
        settings: Of the agent.
        left: Of the campaign.
    """
    own = Allowance(
        dollars=settings.max_dollars, device_s=settings.device_s, wall_s=settings.timeout_s
    )
    return least(own, left)
