"""Who writes candidates, one module each.

To add an agent, add a module here that defines ``AGENT`` (an ``AgentFactory``). The contract
test finds it by itself. What they share is in ``protocol``, ``settings`` and the package
``writing``.
"""

from __future__ import annotations

import importlib
import pkgutil

from kopt_harness.errors import NotFoundError

from .protocol import (
    Agent,
    AgentContext,
    AgentFactory,
    AgentTask,
    Answer,
    Draft,
    Drafted,
    Evidence,
    PastDraft,
    Proposal,
    Proposals,
    Question,
    RoundBrief,
    TaskFile,
    Writer,
)
from .settings import AgentSettings

__all__ = [
    "Agent",
    "AgentContext",
    "AgentFactory",
    "AgentSettings",
    "AgentTask",
    "Answer",
    "Draft",
    "Drafted",
    "Evidence",
    "PastDraft",
    "Proposal",
    "Proposals",
    "Question",
    "RoundBrief",
    "TaskFile",
    "Writer",
    "agent_names",
    "get_agent",
]

_SHARED = frozenset({"protocol", "settings"})
"""Modules that are no agents."""


def agent_names() -> tuple[str, ...]:
    """Names of all agents as the command line has them, found by listing this folder."""
    modules = (
        module.name
        for module in pkgutil.iter_modules(__path__)
        if not module.ispkg and module.name not in _SHARED
    )
    return tuple(sorted(name.replace("_", "-") for name in modules))


def get_agent(name: str) -> AgentFactory:
    """The agent of this name.

    Raises:
        NotFoundError: If there is none; the hint lists the names.
    """
    if name not in agent_names():
        raise NotFoundError(
            f"unknown agent {name!r}", hint=f"agents are {', '.join(agent_names())}"
        )
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    factory: AgentFactory = module.AGENT
    return factory
