"""Proposes a fixed list of solutions in order: for tests, and for measuring what is known."""

from __future__ import annotations

from .protocol import AgentContext, AgentFactory, Proposal, Proposals, RoundBrief

__all__ = ["AGENT", "ScriptedAgent"]


class ScriptedAgent:
    """Reads its list from the run configuration; each solution is proposed once."""

    name = "scripted"

    def __init__(self, context: AgentContext) -> None:
        self._solutions = [context.load(path).solution for path in context.scripted]

    def propose(self, brief: RoundBrief) -> Proposals:
        """The next ones that were not measured yet; an error of the list is the user's."""
        taken = set(brief.memory.measured()) | {brief.incumbent.sha256}
        proposals: list[Proposal] = []
        for solution in self._solutions:
            if solution.definition != brief.definition.name or solution.sha256 in taken:
                continue
            if len(proposals) == brief.limit:
                break
            taken.add(solution.sha256)
            proposals.append(Proposal(solution, "next in the script"))
        return Proposals(tuple(proposals))


def _create(context: AgentContext) -> ScriptedAgent:
    return ScriptedAgent(context)


AGENT = AgentFactory(create=_create, promotion="auto")
