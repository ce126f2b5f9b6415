"""Claude Code without a person: ``claude -p`` in a worktree of its own, read event by event.

It may read, search and edit files there and run the helper; no other command, no network tools,
no servers of the user. Turns and cost are limited by its own options and watched beside. The
session is kept, so that a killed round goes on with ``--resume``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kopt_harness.proc import Completed

from ..agent_settings import AgentSettings
from ..costs import Usage
from .protocol import AgentContext, AgentFactory, Ending
from .writing import Call, Observed, ProgramWriter, WritingAgent, program_status
from .writing.claims import MOST_SECONDS, Numbers, is_number, listed, table, text

__all__ = ["AGENT", "ClaudeDialect"]

_TOOLS = ("Read", "Glob", "Grep", "Write", "Edit", "TodoWrite", "Bash(./kopt:*)")
_NOT = ("WebFetch", "WebSearch", "NotebookEdit")
_STALE = "No conversation found"
_LIMIT = re.compile(r"rate.?limit|usage limit|session limit|too many requests|\b429\b", re.I)
_SERVER = re.compile(r"overloaded|\b5\d\d\b|internal server error|connection error", re.I)
_ENDINGS: dict[str, Ending] = {
    "error_max_turns": "turns",
    "error_max_budget_usd": "budget",
    "error_during_execution": "failed",
}


class ClaudeDialect:
    """Arguments and events of ``claude -p --output-format stream-json``."""

    name = "claude-code"
    program = "claude"
    cumulative = False
    variables: tuple[str, ...] = (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CODE_OAUTH_TOKEN",
    )

    def command(self, call: Call) -> list[str]:
        """Arguments; the prompt comes on standard input."""
        words = ["-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config"]
        words += ["--max-turns", str(call.max_turns)]
        if call.tools:
            words += ["--permission-mode", "acceptEdits", "--allowedTools", ",".join(_TOOLS)]
            words += ["--disallowedTools", ",".join(_NOT)]
        else:
            words += ["--disallowedTools", ",".join((*_NOT, "Bash", "Write", "Edit", "Task"))]
        if call.max_dollars is not None:
            words += ["--max-budget-usd", f"{call.max_dollars:.4f}"]
        if call.model is not None:
            words += ["--model", call.model]
        if call.session is not None:
            words += ["--resume", call.session]
        return [*words, *call.extra]

    def environment(self, home: Path) -> Mapping[str, str]:
        """Settings and sessions in the private home; nothing is sent but the conversation."""
        folder = home / ".claude"
        folder.mkdir(exist_ok=True)
        return {
            "CLAUDE_CONFIG_DIR": str(folder),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def read(self, event: dict[str, Any], observed: Observed) -> None:
        """Adds one event."""
        session = text(event.get("session_id"))
        kind, subtype = event.get("type"), event.get("subtype")
        if kind == "system" and subtype == "init":
            observed.session = session or observed.session
            observed.model = text(event.get("model"))
        elif kind == "assistant":
            _assistant(event, observed)
        elif kind == "rate_limit_event":
            _limit(table(event.get("rate_limit_info")), observed)
        elif kind == "result":
            _result(event, observed)

    def finish(self, done: Completed, observed: Observed) -> None:
        """A session that is not there is said on standard error."""
        _flush(observed)
        if _STALE in done.stderr:
            observed.is_stale = True


def _assistant(event: dict[str, Any], observed: Observed) -> None:
    message = table(event.get("message"))
    is_own = event.get("parent_tool_use_id") is None
    number = text(message.get("id"))
    # One answer comes in several events, each with what it has used by then.
    if observed.pending is None or observed.pending[0] != number:
        _flush(observed)
        observed.steps += is_own
    usage = _usage(table(message.get("usage")), text(message.get("model")), observed)
    sub_agent = "" if is_own else "sub-agents"
    observed.pending = (number, usage.model_copy(update={"sub_agent": sub_agent}))
    for block in listed(message.get("content")):
        part = table(block)
        if part.get("type") == "tool_use":
            observed.tools[text(part.get("name"))] += 1
        elif part.get("type") == "text" and is_own:
            observed.text = text(part.get("text"))
    if message.get("stop_reason") == "refusal":
        observed.ending = "refusal"
        observed.problems.append("the model refused")
    if event.get("error") == "rate_limit":
        observed.problems.append(observed.text)


def _flush(observed: Observed) -> None:
    if observed.pending is not None:
        usage = observed.pending[1]
        observed.turns += [usage] if usage.tokens or usage.is_partial else []
    observed.pending = None


def _limit(info: dict[str, Any], observed: Observed) -> None:
    resets = info.get("resetsAt")
    if info.get("status") == "rejected" and is_number(resets, MOST_SECONDS):
        observed.wait_s = max(0.0, resets - time.time())


def _result(event: dict[str, Any], observed: Observed) -> None:
    _flush(observed)
    observed.final = _final(event, observed)
    for denial in listed(event.get("permission_denials")):
        observed.denied[text(table(denial).get("tool_name")) or "a tool"] += 1
    words = text(event.get("result"))
    errors = [text(each) for each in listed(event.get("errors"))]
    subtype = text(event.get("subtype"))
    if any(_STALE in error for error in errors):
        observed.is_stale = True
    if observed.ending == "refusal":
        return
    if subtype in _ENDINGS:
        observed.ending = _ENDINGS[subtype]
        observed.problems += [error for error in errors if error] or [subtype]
    elif event.get("is_error"):
        status = event.get("api_error_status")
        observed.ending = _of_error(status if isinstance(status, int) else None, words)
        observed.problems.append(words or f"it failed with status {status!r:.40}")
    else:
        observed.ending = "done"
        observed.text = words or observed.text


def _of_error(status: int | None, words: str) -> Ending:
    if status == 429 or _LIMIT.search(words):
        return "rate-limit"
    if (status is not None and status >= 500) or _SERVER.search(words):
        return "server-error"
    return "failed"


def _final(event: dict[str, Any], observed: Observed) -> list[Usage]:
    """By model, with the cost that the program says; sub-agents apart where they had their own."""
    own = {usage.model for usage in observed.turns if not usage.sub_agent}
    found = []
    for model, each in table(event.get("modelUsage")).items():
        said = Numbers(table(each))
        usage = Usage(
            agent="claude-code",
            model=text(model),
            sub_agent="" if model in own or not own else "sub-agents",
            tokens_in=said.tokens("inputTokens", "cacheCreationInputTokens"),
            tokens_cached=said.tokens("cacheReadInputTokens"),
            tokens_out=said.tokens("outputTokens"),
            dollars=said.dollars("costUSD"),
        )
        found.append(_noted(usage, said, observed))
    if not found:
        usage = _usage(table(event.get("usage")), observed.model, observed)
        total = Numbers(event)
        dollars = total.dollars("total_cost_usd")
        if usage.tokens or usage.is_partial or dollars is not None or total.dropped:
            usage = usage.model_copy(update={"dollars": dollars})
            found.append(_noted(usage, total, observed))
    return sorted(found, key=lambda usage: bool(usage.sub_agent))


def _usage(used: dict[str, Any], model: str, observed: Observed) -> Usage:
    said = Numbers(used)
    usage = Usage(
        agent="claude-code",
        model=model,
        tokens_in=said.tokens("input_tokens", "cache_creation_input_tokens"),
        tokens_cached=said.tokens("cache_read_input_tokens"),
        tokens_out=said.tokens("output_tokens"),
    )
    return _noted(usage, said, observed)


def _noted(usage: Usage, said: Numbers, observed: Observed) -> Usage:
    observed.dropped |= dict.fromkeys(said.dropped)
    return usage.model_copy(update={"is_partial": True}) if said.dropped else usage


def _writer(context: AgentContext) -> ProgramWriter:
    return ProgramWriter(ClaudeDialect(), context)


def _create(context: AgentContext) -> WritingAgent:
    return WritingAgent(_writer(context), context)


def _status(settings: AgentSettings) -> dict[str, Any]:
    return program_status(ClaudeDialect(), settings)


AGENT = AgentFactory(create=_create, promotion="ask", writer=_writer, status=_status)
