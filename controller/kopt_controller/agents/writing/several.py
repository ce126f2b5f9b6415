"""Several sub-agents that work on one direction at the same time, each without the others.

What a round may measure is shared out among them. Their drafts are put together in the order of
the sub-agents, whoever was done first, so that the same answers give the same round.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kopt_harness.ledger import DictLedger

from ..protocol import Agent, Proposal, Proposals, RoundBrief

__all__ = ["SeveralAgents"]


class SeveralAgents:
    """One agent for the loop; so many calls beside each other for a direction."""

    def __init__(self, agent: Agent, count: int) -> None:
        self.name = agent.name
        self._agent = agent
        self._count = count

    def propose(self, brief: RoundBrief) -> Proposals:
        """What all of them left, without what two have in common."""
        ledger = brief.ledger or DictLedger()
        count = min(self._count, brief.limit)
        shares = [brief.limit // count + (n < brief.limit % count) for n in range(count)]
        briefs = [
            brief._replace(
                limit=share,
                seed=brief.seed + number,
                ledger=ledger.scoped(str(number)),
                sub_agent=f"{self.name}-{number + 1}",
                instructions=_alone(brief.instructions, number + 1, count),
            )
            for number, share in enumerate(shares)
        ]
        with ThreadPoolExecutor(count, thread_name_prefix="sub-agent") as pool:
            found = list(pool.map(self._agent.propose, briefs))
        kept: dict[str, Proposal] = {}
        for proposals in found:
            for proposal in proposals.candidates:
                kept.setdefault(proposal.solution.sha256, proposal)
        return Proposals(
            tuple(kept.values())[: brief.limit],
            tuple(dict.fromkeys(note for each in found for note in each.notes)),
            tuple(use for each in found for use in each.usage),
            "" if kept else next((each.unusable for each in found if each.unusable), ""),
            all(each.is_broken for each in found),
            tuple(dict.fromkeys(note for each in found for note in each.turned_down)),
        )


def _alone(instructions: str, number: int, count: int) -> str:
    if count == 1:
        return instructions
    own = (
        f"You are number {number} of {count} who work on this direction, none of whom sees the "
        "others. Take a way that is yours rather than the first that comes to mind."
    )
    return f"{instructions}\n\n{own}".strip()
