"""Seating an agent: what it is made with in a campaign, and whether it can be asked at all."""

from __future__ import annotations

from pathlib import Path

from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, UnavailableError
from kopt_harness.files import read_text
from kopt_harness.pack import load
from kopt_harness.schema import Definition
from kopt_harness.targets import Target

from .agents import AgentContext, AgentFactory
from .config import RunConfig
from .space import CatalogSpace

__all__ = ["agent_context", "require_ready"]


def require_ready(name: str, factory: AgentFactory, config: RunConfig) -> None:
    """Refuses an agent that could not be asked, before anything is measured for it.

    Args:
        name: Of the agent.
        factory: Of the agent.
        config: Of the run.

    Raises:
        UnavailableError: If its program, package or key is missing; says which.
        InvalidInputError: If a limit of dollars could not hold for it.
    """
    if factory.status is None:
        return
    settings = config.settings_of(name)
    prices = (settings.dollars_per_mtok_in, settings.dollars_per_mtok_out)
    if config.limits.max_dollars is not None and not factory.says_cost and None in prices:
        raise InvalidInputError(
            f"the limit of {config.limits.max_dollars:g} dollars cannot hold: nobody says what "
            f"{name!r} costs",
            hint=f"give dollars_per_mtok_in and dollars_per_mtok_out in [agents.{name}], or set "
            "--max-tokens instead",
        )
    status = factory.status(settings)
    if not status["ok"]:
        raise UnavailableError(
            f"the agent {name!r} cannot be asked on this machine",
            hint=f"{status['hint']}; kopt doctor lists all agents",
        )


def agent_context(
    catalog: Catalog, definition: Definition, target: Target, config: RunConfig, name: str
) -> AgentContext:
    """What an agent is made with.

    Args:
        catalog: Of the checkout.
        definition: That is worked on.
        target: That is worked for.
        config: Of the run.
        name: Of the agent.
    """
    inbox = config.inbox or catalog.root.local / "inbox" / definition.name
    reference = catalog.folder(definition) / "reference.py"
    return AgentContext(
        definition=definition,
        space=CatalogSpace(catalog, definition, target),
        load=lambda path: load(path, known=catalog),
        inbox=Path(inbox).expanduser(),
        scripted=tuple(Path(path).expanduser() for path in config.scripted),
        settings=config.settings_of(name),
        root=catalog.root.path,
        workloads=tuple(dict(workload.axes) for workload in catalog.workloads(definition)),
        sections={"reference": read_text(reference, "reference")} if reference.is_file() else {},
    )
