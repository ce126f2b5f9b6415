"""What all agents that write code share: task, prompt, worktree, drafts, and the way back.

Read ``agent.py`` first: it is the whole way from a round's brief to its proposals.
"""

from __future__ import annotations

from .agent import WritingAgent, call_allowance
from .calls import CallLedger
from .charging import Account, left_of, priced
from .claims import harmless, harmless_all
from .dialect import Call, Dialect, Observed, program_status
from .drafts import DRAFTS_SCHEMA, drafts_of, gather_drafts, pack_draft
from .programs import ProgramWriter
from .prompt import Prompt, render, render_question
from .repair import Repaired, read_json
from .secrets import Secrets
from .several import SeveralAgents
from .task import goal_only, task_of
from .worktree import Worktree, open_worktree

__all__ = [
    "DRAFTS_SCHEMA",
    "Account",
    "Call",
    "CallLedger",
    "Dialect",
    "Observed",
    "ProgramWriter",
    "Prompt",
    "Repaired",
    "Secrets",
    "SeveralAgents",
    "Worktree",
    "WritingAgent",
    "call_allowance",
    "drafts_of",
    "gather_drafts",
    "goal_only",
    "harmless",
    "harmless_all",
    "left_of",
    "open_worktree",
    "pack_draft",
    "priced",
    "program_status",
    "read_json",
    "render",
    "render_question",
    "task_of",
]
