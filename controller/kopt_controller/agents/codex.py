"""Codex without a person: ``codex exec --json`` in a worktree of its own, read event by event.

It writes in its worktree under its own sandbox, within the confinement that all programs have.
It says what it has used at the end of a turn and only for the whole thread; within a turn, steps
and time are what can be limited. The thread is kept, so that a killed round goes on with
``resume``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kopt_harness.proc import Completed

from ..agent_settings import AgentSettings
from ..costs import Usage
from .protocol import AgentContext, AgentFactory, Ending
from .writing import Call, Observed, ProgramWriter, WritingAgent, program_status
from .writing.claims import Numbers, table, text

__all__ = ["AGENT", "CodexDialect"]

_STEPS = frozenset(
    {"agent_message", "command_execution", "file_change", "mcp_tool_call", "web_search"}
)
_LIMIT = re.compile(r"rate.?limit|usage limit|too many requests|\b429\b|quota", re.I)
_SERVER = re.compile(r"\b5\d\d\b|overloaded|stream disconnected|at capacity|connection", re.I)
_REFUSAL = re.compile(r"refus|content.?policy|content.?filter|safety|flagged", re.I)
_STALE = re.compile(r"no rollout found|(session|thread|conversation).{0,40} not found", re.I)
_AGAIN = re.compile(r"try again in (?P<s>\d+(?:\.\d+)?)\s*s", re.I)
_SANDBOX = 'sandbox_mode="{}"'


class CodexDialect:
    """Arguments and events of ``codex exec --json``."""

    name = "codex"
    program = "codex"
    cumulative = True
    variables: tuple[str, ...] = ("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL")

    def command(self, call: Call) -> list[str]:
        """Arguments; the prompt comes on standard input."""
        mode = "workspace-write" if call.tools else "read-only"
        words = ["exec", "--json", "--skip-git-repo-check", "-c", _SANDBOX.format(mode)]
        if call.model is not None:
            words += ["-m", call.model]
        words += call.extra
        # Options of a thread that goes on are those of the first command, and come before it.
        return [*words, *(() if call.session is None else ("resume", call.session)), "-"]

    def environment(self, home: Path) -> Mapping[str, str]:
        """Settings and threads in the private home."""
        folder = home / ".codex"
        folder.mkdir(exist_ok=True)
        return {"CODEX_HOME": str(folder)}

    def read(self, event: dict[str, Any], observed: Observed) -> None:
        """Adds one event."""
        kind = event.get("type")
        if kind == "thread.started":
            observed.session = text(event.get("thread_id")) or None
        elif kind == "item.completed":
            _item(table(event.get("item")), observed)
        elif kind == "turn.completed":
            observed.ending = "done"
            observed.final = _final(table(event.get("usage")), observed)
        elif kind == "turn.failed":
            _failed(text(table(event.get("error")).get("message")), observed)
        elif kind == "error":
            # It connects again by itself; only what ends the turn counts.
            observed.problems.append(text(event.get("message")))

    def finish(self, done: Completed, observed: Observed) -> None:
        """A thread that is not there is said on standard error."""
        if _STALE.search(done.stderr) or any(map(_STALE.search, observed.problems)):
            observed.is_stale = True
        if observed.ending is None and observed.problems:
            observed.ending = _of_error(observed.problems[-1])


def _item(item: dict[str, Any], observed: Observed) -> None:
    kind = text(item.get("type"))
    observed.steps += kind in _STEPS
    if kind == "agent_message":
        observed.text = text(item.get("text"))
    elif kind == "error":
        observed.problems.append(text(item.get("message")))
    elif kind:
        observed.tools[kind] += 1
        if item.get("status") == "declined":
            observed.denied[kind.replace("_", " ")] += 1


def _failed(message: str, observed: Observed) -> None:
    observed.ending = _of_error(message)
    observed.problems.append(message or "the turn failed")
    again = _AGAIN.search(message)
    if again is not None:
        observed.wait_s = float(again["s"])


def _of_error(message: str) -> Ending:
    if _LIMIT.search(message):
        return "rate-limit"
    if _REFUSAL.search(message):
        return "refusal"
    return "server-error" if _SERVER.search(message) else "failed"


def _final(used: dict[str, Any], observed: Observed) -> list[Usage]:
    """Tokens that were read count those out of the cache among them."""
    said = Numbers(used)
    cached = said.tokens("cached_input_tokens")
    usage = Usage(
        agent="codex",
        tokens_in=max(0, said.tokens("input_tokens") - cached),
        tokens_cached=cached,
        tokens_out=said.tokens("output_tokens"),
        is_partial=bool(said.dropped),
    )
    observed.dropped |= dict.fromkeys(said.dropped)
    return [usage]


def _writer(context: AgentContext) -> ProgramWriter:
    return ProgramWriter(CodexDialect(), context)


def _create(context: AgentContext) -> WritingAgent:
    return WritingAgent(_writer(context), context)


def _status(settings: AgentSettings) -> dict[str, Any]:
    return program_status(CodexDialect(), settings)


AGENT = AgentFactory(
    create=_create, promotion="ask", writer=_writer, status=_status, says_cost=False
)
