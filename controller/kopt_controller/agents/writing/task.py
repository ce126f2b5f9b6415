"""The task of a round as data, out of what the loop tells an agent."""

from __future__ import annotations

from kopt_harness.schema import Solution, Verdict
from kopt_harness.solution_config import languages
from kopt_harness.targets import Figure, Target, get_target

from ...costs import Allowance
from ...mechanisms import Mechanism
from ...memory import Memory, RoundMemory, Trial
from ..protocol import AgentContext, AgentTask, Evidence, RoundBrief, TaskFile

__all__ = ["goal_only", "task_of"]

MOST_EVIDENCE = 24
"""Earlier candidates that a task tells of; more would push the task itself out of sight."""
_GPU_LANGUAGES = frozenset({"cuda", "triton"})


def task_of(brief: RoundBrief, context: AgentContext, allowance: Allowance) -> AgentTask:
    """Everything that an agent is told in a round.

    Args:
        brief: Of the round.
        context: Of the campaign.
        allowance: What the call may spend.
    """
    target = get_target(brief.target)
    settings = context.settings
    offered = languages() if brief.mode == "goal-only" else brief.direction.languages
    known = set(offered) - (_GPU_LANGUAGES if target.kind == "cpu" else set())
    allowed = tuple(sorted(known & set(settings.languages or known)))
    task = AgentTask(
        round=brief.round,
        definition=brief.definition,
        contract=context.sections.get("contract", ""),
        reference=context.sections.get("reference", ""),
        target=brief.target,
        target_facts=_facts(target),
        languages=allowed,
        drafts=brief.limit,
        workloads=context.workloads,
        incumbent_name=brief.incumbent.name,
        incumbent_language=brief.incumbent.spec.language,
        incumbent_entry_point=brief.incumbent.spec.entry_point,
        incumbent=_files(brief.incumbent),
        state=brief.state.focus,
        regimes=brief.state.regimes,
        direction=brief.direction,
        evidence=_evidence(brief.memory),
        steers=tuple(steer.sentence for steer in brief.steering.steers),
        references=brief.steering.references,
        model=brief.steering.model,
        seed=brief.seed,
        skills=settings.skills,
        allowance=allowance,
        instructions=brief.instructions,
        sub_agent=brief.sub_agent,
    )
    return goal_only(task, brief.shown) if brief.mode == "goal-only" else task


def goal_only(task: AgentTask, shown: frozenset[Mechanism] = frozenset()) -> AgentTask:
    """Objective and constraints alone: no state, direction, memory, word of a person or tool.

    Args:
        task: A full one.
        shown: Mechanisms whose parts stay.
    """
    parts: dict[Mechanism, dict[str, object]] = {
        "state": {"state": None, "regimes": ()},
        "directions": {"direction": None},
        "memory": {"evidence": (), "past": ()},
        "skills": {"skills": False},
        "tools": {"tools": False},
    }
    hidden: dict[str, object] = {
        "mode": "goal-only",
        "incumbent": (),
        "incumbent_name": "",
        "incumbent_language": "",
        "incumbent_entry_point": "",
        "steers": (),
        "references": (),
        "instructions": "",
    }
    for mechanism, fields in parts.items():
        if mechanism not in shown:
            hidden |= fields
    return task.model_copy(update=hidden)


def _files(solution: Solution) -> tuple[TaskFile, ...]:
    return tuple(TaskFile(path=s.path, content=s.content) for s in solution.sources)


def _facts(target: Target) -> dict[str, str]:
    facts = {"description": target.description}
    if target.arch:
        facts["architecture"] = target.arch
    figures: dict[str, Figure | None] = {"copy bandwidth, GB/s": target.copy_gbps}
    figures |= {f"peak {name}, TFLOP/s": each for name, each in target.peak_tflops.items()}
    figures["launch, us"] = target.launch_us
    facts |= {n: f"{each.value:g} ({each.source})" for n, each in figures.items() if each}
    return facts


def _evidence(memory: Memory) -> tuple[Evidence, ...]:
    """The newest first; what the machine is to blame for says nothing."""
    found = [
        _one(past, trial)
        for past in reversed(memory.rounds)
        for trial in past.trials
        if trial.verdict not in (Verdict.INFRA, Verdict.INVALID)
    ]
    return tuple(found[:MOST_EVIDENCE])


def _one(past: RoundMemory, trial: Trial) -> Evidence:
    faster = trial.ratio is not None and (trial.ci[1] if trial.ci else trial.ratio) < 1
    return Evidence(
        name=trial.name,
        direction=past.direction,
        technique=trial.technique,
        outcome=trial.outcome,
        helped=trial.passed and faster,
        regimes={effect.regime: effect.ratio for effect in trial.effects},
    )
