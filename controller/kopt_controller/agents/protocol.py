"""What an agent gets, gives and is.

The loop calls ``propose`` and knows nothing else. Agents that write code (programs, language
models) are ``Writer`` objects behind one adapter: brief to task, task to prompt, prompt to
drafts, drafts to packed solutions. What a policy wants of them beyond a round (several drafts,
a review, a debate) it asks of the ``Writer`` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from kopt_harness.ledger import Ledger
from kopt_harness.pack import Packed
from kopt_harness.schema import Definition, Model, Solution

from ..agent_settings import AgentSettings
from ..costs import Allowance, Usage
from ..directions import Direction
from ..mechanisms import Mechanism
from ..memory import Memory
from ..result import Attribution
from ..space import SearchSpace
from ..state import Signature, State
from ..steering import Steering

__all__ = [
    "Agent",
    "AgentContext",
    "AgentFactory",
    "AgentTask",
    "Answer",
    "Draft",
    "Drafted",
    "Ending",
    "Evidence",
    "PastDraft",
    "Proposal",
    "Proposals",
    "Question",
    "RoundBrief",
    "TaskFile",
    "TaskMode",
    "Writer",
]

TaskMode = Literal["full", "goal-only"]
"""``goal-only``: objective and constraints, and nothing that kopt knows beyond them."""

Ending = Literal[
    "done",
    "timeout",
    "rate-limit",
    "server-error",
    "refusal",
    "broken",
    "turns",
    "budget",
    "killed",
    "failed",
]
"""How a call ended; drafts may have been left whatever it says."""


class RoundBrief(NamedTuple):
    """What an agent is told in one round."""

    definition: Definition
    target: str
    round: int
    """From 1."""
    state: State
    direction: Direction
    incumbent: Solution
    memory: Memory
    limit: int
    """Candidates at most."""
    seed: int
    """Of choices that are left open; the same brief gives the same proposals."""
    steering: Steering = Steering()
    """What people said: notes, references, the model to use, and all else in their words."""
    ledger: Ledger | None = None
    """Where an agent keeps what a killed round needs to go on; null: nowhere."""
    mode: TaskMode = "full"
    shown: frozenset[Mechanism] = frozenset()
    """In a goal-only brief: what is shown all the same."""
    instructions: str = ""
    """What a policy adds: a plan to carry out, findings of a review."""
    sub_agent: str = ""
    """Name of one of several that are asked at the same time."""
    left: Callable[[], Allowance] | None = None
    """What the campaign may still spend, at the moment of asking; null: there is no limit."""


class Proposal(NamedTuple):
    """One candidate; what the agent says about it is a proposal, nothing more."""

    solution: Solution
    rationale: str
    family: str | None = None
    """Solution folder that it is a setting of."""
    settings: dict[str, Any] = {}  # a NamedTuple's default, never changed
    technique: str = ""
    """What was done, in a word or two that other rounds would use for the same."""
    attribution: Attribution | None = None
    """To what its effect will be put down; null where that cannot be told."""


class Proposals(NamedTuple):
    """All candidates of a round."""

    candidates: tuple[Proposal, ...]
    notes: tuple[str, ...] = ()
    """What a person should know: files that could not be used, and the like."""
    usage: tuple[Usage, ...] = ()
    """What the calls have cost that led to them."""
    unusable: str = ""
    """Why there is no candidate, where the agent did not answer as it should; empty where it just
    has nothing left."""
    is_broken: bool = False
    """Whether it would be the same for another direction, so that it is asked for none."""
    turned_down: tuple[str, ...] = ()
    """Why drafts that were left are no candidates: known, refused or not to be measured."""


class TaskFile(Model):
    """One source by its plain relative path."""

    path: str
    content: str


class Evidence(Model):
    """What one earlier candidate came to; not its code."""

    name: str
    direction: str
    technique: str
    outcome: str
    """A sentence with the numbers."""
    helped: bool
    """Whether it was right and faster than its incumbent at the gate, beyond its interval."""
    regimes: dict[str, float | None] = {}
    """Ratio to its incumbent by regime."""


class PastDraft(Model):
    """An earlier candidate with its code: only where a policy allows it."""

    name: str
    files: tuple[TaskFile, ...]
    outcome: str


class AgentTask(Model):
    """A bounded task as data: everything that a prompt is rendered from, and nothing secret.

    No seed of the judge, no input, no expected output, no key; another candidate's code only in
    ``past``, which a policy fills.
    """

    mode: TaskMode = "full"
    round: int
    definition: Definition
    contract: str
    """How a solution is called and judged, in words."""
    reference: str
    """Source of the definition's reference."""
    target: str
    target_facts: dict[str, str] = {}
    """What is known of the hardware, each with its unit in the name."""
    languages: tuple[str, ...]
    """That a draft may be written in."""
    drafts: int
    """At most."""
    workloads: tuple[dict[str, int], ...] = ()
    """Axes of every workload."""
    incumbent_name: str = ""
    incumbent_language: str = ""
    incumbent_entry_point: str = ""
    incumbent: tuple[TaskFile, ...] = ()
    """Sources of what must be beaten; empty where the agent is not to see them."""
    state: Signature | None = None
    """Of the regime to work on; null in a goal-only task."""
    regimes: tuple[Signature, ...] = ()
    """All regimes, largest share of the time first."""
    direction: Direction | None = None
    """With its playbook; null in a goal-only task."""
    evidence: tuple[Evidence, ...] = ()
    """For and against, newest first."""
    past: tuple[PastDraft, ...] = ()
    steers: tuple[str, ...] = ()
    """What people said, in their words."""
    references: tuple[str, ...] = ()
    instructions: str = ""
    """What a policy adds: a plan to carry out, findings of a review."""
    role: str = "author"
    """As whom the agent is asked: ``author``, ``planner``, ``reviewer``, ...: for the costs."""
    sub_agent: str = ""
    """Name among several that work for one round; for the costs."""
    model: str | None = None
    """That people asked for; null: the settings'."""
    seed: int = 0
    skills: bool = True
    """Whether the skills are laid into the worktree."""
    tools: bool = True
    """Whether check, bench, profile and diagnose are at the agent's disposal."""
    allowance: Allowance = Allowance()
    """What the call may spend."""


class Draft(Model):
    """What an agent wrote: files, and what it says about them. It has claimed nothing else."""

    name: str
    files: tuple[TaskFile, ...]
    """``config.toml`` and sources below ``solution/<language>/``."""
    rationale: str = ""
    technique: str = ""


class Drafted(NamedTuple):
    """What came of one call."""

    drafts: tuple[Draft, ...]
    usage: tuple[Usage, ...] = ()
    """One for each model and sub-agent."""
    notes: tuple[str, ...] = ()
    """What was ignored or refused, and why the call ended early."""
    ending: Ending = "done"
    session: str | None = None
    """By which the program continues."""
    refused: tuple[str, ...] = ()
    """Those of the notes that say why a draft was not taken."""


class Question(NamedTuple):
    """Something that is to be answered in words: a plan, a review, a position in a debate."""

    prompt: str
    role: str
    """For the costs: ``planner``, ``reviewer``, ..."""
    sub_agent: str = ""
    model: str | None = None
    allowance: Allowance = Allowance()
    shape: dict[str, Any] | None = None
    """JSON schema of the answer; null: free text."""


class Answer(NamedTuple):
    """What was answered."""

    text: str
    """Empty where there was none; ``ending`` says why."""
    data: dict[str, Any] | None = None
    """The answer by ``Question.shape``; null where it had none, or the text did not keep to it."""
    usage: tuple[Usage, ...] = ()
    notes: tuple[str, ...] = ()
    ending: Ending = "done"


@runtime_checkable
class Writer(Protocol):
    """A program or a model that writes code for a task."""

    name: str

    def generate(self, task: AgentTask, ledger: Ledger) -> Drafted:
        """Drafts for a task; never raises for what the other side did.

        Args:
            task: What is wanted.
            ledger: Of this call alone: it keeps the prompt, the session and the costs, so that a
                killed call goes on in the same session.
        """
        ...

    def ask(self, question: Question, ledger: Ledger) -> Answer:
        """An answer in words, without a worktree and without tools.

        Args:
            question: What is wanted.
            ledger: Of this call alone.
        """
        ...


class AgentContext(NamedTuple):
    """What an agent is made with, once for a campaign."""

    definition: Definition
    space: SearchSpace
    load: Callable[[Path], Packed]
    """Reads a solution from a folder or a JSON file."""
    inbox: Path
    scripted: tuple[Path, ...] = ()
    settings: AgentSettings = AgentSettings()
    """The configuration's table for this agent."""
    root: Path = Path()
    """Of the checkout: where definitions are; never shown to a program."""
    scratch: Path | None = None
    """Folder of the run for worktrees; null: temporary ones."""
    workloads: tuple[dict[str, int], ...] = ()
    """Axes of every workload."""
    sections: dict[str, str] = {}  # a NamedTuple's default, never changed
    """What a task says beyond the brief: ``reference``; ``contract`` where it is special."""


@runtime_checkable
class Agent(Protocol):
    """Whoever writes candidates."""

    name: str

    def propose(self, brief: RoundBrief) -> Proposals:
        """A bounded family of candidates for the direction; empty where it has none.

        Never more than ``brief.limit``, no content twice, all of ``brief.definition``.
        """
        ...


class AgentFactory(NamedTuple):
    """What a module of this package defines as ``AGENT``."""

    create: Callable[[AgentContext], Agent]
    promotion: Literal["auto", "ask"]
    """Whether a promotion is applied without a person, where the configuration is silent."""
    writer: Callable[[AgentContext], Writer] | None = None
    """Of agents that write code: what a policy asks directly; null: it writes none."""
    status: Callable[[AgentSettings], dict[str, Any]] | None = None
    """For ``kopt doctor``: ``ok``, ``program``, ``version``, ``key``, ``hint``; starts nothing but
    ``--version``."""
    says_cost: bool = True
    """Whether the other side says what a call has cost in dollars; else prices are needed."""
