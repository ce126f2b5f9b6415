"""How a campaign searches, one module each.

A search policy says from what a round starts, what its agent is told, what becomes the start of
the next round and what is kept of it. It never judges: gate, sweep, conditions and promotion are
the loop's, the same for all. To add one, add a module here that defines ``POLICY`` (a
``SearchFactory``). The contract test finds it by itself.
"""

from __future__ import annotations

import importlib
import pkgutil

from kopt_harness.errors import InvalidInputError, NotFoundError

from ..agents import agent_names, get_agent
from ..config import RunConfig
from .protocol import SearchContext, SearchFactory, SearchPolicy

__all__ = [
    "SearchContext",
    "SearchFactory",
    "SearchPolicy",
    "check_search",
    "get_search",
    "search_names",
]


def search_names() -> tuple[str, ...]:
    """Names of all search policies as the command line has them, found by listing this folder."""
    modules = (m.name for m in pkgutil.iter_modules(__path__) if m.name != "protocol")
    return tuple(sorted(name.replace("_", "-") for name in modules))


def get_search(name: str) -> SearchFactory:
    """The search policy of this name.

    Raises:
        NotFoundError: If there is none; the hint lists the names.
    """
    if name not in search_names():
        raise NotFoundError(
            f"unknown policy {name!r}", hint=f"policies are {', '.join(search_names())}"
        )
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    factory: SearchFactory = module.POLICY
    return factory


def check_search(config: RunConfig) -> None:
    """Refuses what no policy could follow, before the campaign and not in its middle.

    Raises:
        NotFoundError: If a policy or an agent does not exist.
        InvalidInputError: If an agent that is to answer in words cannot, or mechanisms are given
            back by a policy that takes none away.
    """
    get_search(config.policy)
    asked = {"planner": config.planner, "reviewer": config.reviewer}
    roles = [(role, name) for role, name in asked.items() if name is not None]
    for role, name in (*roles, *(("debater", each) for each in config.debaters)):
        if get_agent(name).writer is None:
            able = ", ".join(each for each in agent_names() if get_agent(each).writer is not None)
            raise InvalidInputError(
                f"the agent {name!r} cannot be a {role}: it does not answer in words",
                hint=f"agents that do: {able or 'none'}",
            )
    if config.mechanisms and config.policy != "goal-only":
        raise InvalidInputError(
            f"mechanisms {', '.join(config.mechanisms)} with the policy {config.policy!r}",
            hint="only --policy goal-only takes mechanisms away and gives some back",
        )
