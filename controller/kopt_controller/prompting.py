"""What an agent would be told if a round began now, without asking it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, NotFoundError, UnavailableError
from kopt_harness.ledger import DictLedger
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Profile, Solution
from kopt_harness.targets import Target, get_target

from .agents import AgentTask, RoundBrief, get_agent
from .agents.protocol import TaskMode
from .agents.writing import Prompt, call_allowance, render, task_of
from .config import RunConfig
from .costs import Allowance, Limits
from .directions import Direction, load_directions
from .harness import Harness
from .memory import Memory, gather
from .policy import get_policy
from .representing import representatives_of
from .seating import agent_context
from .state import Observation, Signature, State, derive_state
from .supervisor import supervise
from .world import Representative

__all__ = ["CurrentPrompt", "Wanted", "current_prompt"]

MakeHarness = Callable[[Target, RunConfig], Harness]


class Wanted(NamedTuple):
    """For what and whom."""

    definition: str
    target: str
    agent: str
    mode: str
    direction: str | None
    """Null: the first of the policy."""


class _Setting(NamedTuple):
    catalog: Catalog
    definition: Definition
    target: Target
    config: RunConfig
    incumbent: Solution
    memory: Memory


class CurrentPrompt(NamedTuple):
    """The task and its words."""

    task: AgentTask
    prompt: Prompt


def current_prompt(
    root: Root, wanted: Wanted, config: RunConfig, make_harness: MakeHarness
) -> CurrentPrompt:
    """What the agent would be told.

    Args:
        root: Of the checkout.
        wanted: For what and whom.
        config: Of a run.
        make_harness: Makes what profiles the incumbent; not called for a goal-only prompt.

    Raises:
        NotFoundError: If definition, incumbent, agent or direction does not exist.
        InvalidInputError: If the agent is told nothing, or there is no such mode.
        UnavailableError: If the incumbent is to be profiled, and the target is not here.
    """
    catalog = Catalog(root)
    definition, target = catalog.resolve(wanted.definition), get_target(wanted.target)
    mode = _mode(wanted.mode)
    named = None if wanted.direction is None else _known(wanted.direction)
    if get_agent(wanted.agent).writer is None:
        raise InvalidInputError(
            f"the agent {wanted.agent!r} is told nothing in words",
            hint="kopt doctor lists the agents; claude-code, codex and openai write code",
        )
    incumbent = catalog.incumbent(definition, target.name)
    if incumbent is None:
        raise NotFoundError(
            f"{definition.name} has no incumbent for the target {target.name!r}",
            hint="name one in its retained.toml",
        )
    memory = gather(Archive(root.local), definition.name, target.name)
    setting = _Setting(catalog, definition, target, config, incumbent, memory)
    state = _NOTHING_KNOWN
    if mode == "full":
        harness = _made(make_harness, target, config)
        try:
            state = _state(setting, harness)
        finally:
            harness.close()
    brief = RoundBrief(
        definition=definition,
        target=target.name,
        round=1,
        state=state,
        direction=named or _direction(state, setting),
        incumbent=incumbent,
        memory=memory,
        limit=config.candidates_on(target.kind),
        seed=config.search_seed or 0,
        mode=mode,
    )
    context = agent_context(catalog, definition, target, config, wanted.agent)
    left = _allowance(config.limits)
    task = task_of(brief, context, call_allowance(context.settings, left))
    return CurrentPrompt(task, render(task, "json" if wanted.agent == "openai" else "files"))


def _mode(value: str) -> TaskMode:
    if value == "full":
        return "full"
    if value == "goal-only":
        return "goal-only"
    raise InvalidInputError(f"there is no mode {value!r}", hint="modes are full and goal-only")


def _allowance(limits: Limits) -> Allowance:
    return Allowance(
        dollars=limits.max_dollars,
        tokens=limits.max_tokens,
        device_s=limits.max_device_s,
        wall_s=limits.max_wall_s,
    )


def _made(make_harness: MakeHarness, target: Target, config: RunConfig) -> Harness:
    try:
        return make_harness(target, config)
    except UnavailableError as error:
        raise UnavailableError(
            error.message, hint=f"--mode goal-only needs no device; {error.hint}"
        ) from error


def _known(wanted: str) -> Direction:
    """Looked for before anything is profiled."""
    known = load_directions()
    if wanted not in known:
        raise NotFoundError(f"no direction {wanted!r}", hint=f"directions are {', '.join(known)}")
    return known[wanted]


def _direction(state: State, setting: _Setting) -> Direction:
    target, config = setting.target, setting.config
    known = load_directions()
    fitting = {n: each for n, each in known.items() if each.is_for(target.name, target.kind)}
    seed = config.search_seed or 0
    advice = supervise(setting.memory)
    ranked = get_policy(config.ranking).rank(
        state, fitting, setting.memory, advice, setting.incumbent.sha256, seed=seed
    )
    return known[ranked[0].id] if ranked else known["exploration"]


def _state(setting: _Setting, harness: Harness) -> State:
    selectors = setting.config.gate_workloads
    chosen = representatives_of(setting.catalog, setting.definition, setting.target, selectors)
    return derive_state(
        [
            _observation(each, harness.profile(setting.incumbent, each.workload, DictLedger()))
            for each in chosen
        ]
    )


def _observation(representative: Representative, profile: Profile) -> Observation:
    return Observation(
        regime=representative.regime,
        workloads=representative.weight,
        profile=profile,
        cost_bytes=representative.cost_bytes,
        flops=representative.flops,
        floor=representative.floor,
        origin=representative.origin,
    )


_UNKNOWN = Signature(
    regime="all",
    uuid="",
    axes={},
    workloads=0,
    total_us=None,
    time_share=None,
    dominant_kernel=None,
    dominant_share=None,
    bottleneck="unknown",
    basis="none",
    limiting_resource=None,
    occupancy_theoretical=None,
    occupancy_achieved=None,
    compute_throughput=None,
    memory_throughput=None,
    waves_per_sm=None,
    spill_bytes=None,
    launch_count=None,
    floor_us=None,
    distance_to_floor=None,
    flop_per_byte=0.0,
    profiler="none",
)
_NOTHING_KNOWN = State(focus=_UNKNOWN, regimes=(_UNKNOWN,))
