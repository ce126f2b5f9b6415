"""A round of the toy definition, and an agent for it: what the tests of agents start from."""

from __future__ import annotations

from typing import Any

from kopt_controller.agent_settings import AgentSettings
from kopt_controller.agents import RoundBrief, get_agent
from kopt_controller.config import RunConfig
from kopt_controller.directions import load_directions
from kopt_controller.memory import Memory
from kopt_controller.seating import agent_context
from kopt_controller.state import Floor, Observation, derive_state
from kopt_harness.ledger import DictLedger
from kopt_harness.schema import Profile, SolutionRef
from kopt_harness.targets import get_target

Toy = Any


def brief_of(toy: Toy, **changes: Any) -> RoundBrief:
    """A round of which nothing is known."""
    profile = Profile(
        profiler="null",
        solution=SolutionRef(name="plain", definition="toy_op_n", sha256="00"),
        target="cpu",
        uuid="0",
        axes={"n": 1},
        total_us=None,
    )
    state = derive_state([Observation("n=1", 1, profile, 8, 1, Floor(None, None, "unknown"))])
    brief = RoundBrief(
        definition=changes.pop("definition", None) or toy.catalog.resolve("toy"),
        target="cpu",
        round=1,
        state=state,
        direction=load_directions()["fusion"],
        incumbent=changes.pop("incumbent", None) or toy.solution("plain"),
        memory=Memory(),
        limit=3,
        seed=1,
        ledger=DictLedger(),
    )
    return brief._replace(**changes)


def agent_of(toy: Toy, name: str, **settings: Any) -> Any:
    """An agent with settings, quick to give up."""
    quick = {"timeout_s": 30.0, "wait_s": 0.01, **settings}
    config = RunConfig(agents={name: AgentSettings.model_validate(quick)})
    definition = toy.catalog.resolve("toy")
    context = agent_context(toy.catalog, definition, get_target("cpu"), config, name)
    return get_agent(name).create(context)
