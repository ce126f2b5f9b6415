"""Agents that are programs, against stand-ins that speak their events."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kopt_tests_agents
import pytest
from kopt_controller.agents import Question, RoundBrief
from kopt_controller.costs import Allowance
from kopt_harness.errors import UnavailableError
from kopt_harness.ledger import DictLedger

Toy = Any
Install = Callable[[str, Any], Path]
brief_of, agent_of = kopt_tests_agents.brief_of, kopt_tests_agents.agent_of
PROGRAMS = {"claude-code": "claude", "codex": "codex"}


def _end(name: str, dollars: float = 0.25) -> list[Any]:
    return ["end", {"dollars": dollars}] if name == "claude-code" else ["end"]


def _worktrees() -> set[str]:
    return {path.name for path in Path(os.environ["TMPDIR"]).glob("kopt-agent-*")}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_draft_becomes_a_candidate(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any, name: str
) -> None:
    """With its cost, without its worktree; the prompt is kept, and a second look starts nothing."""
    draft = {**toy_draft(), "NOTE.md": "Adds in place.\n"}
    install(PROGRAMS[name], [[*leaves(draft), ["turn", [100, 20, 30], "I am done"], _end(name)]])
    brief = brief_of(toy)
    agent = agent_of(toy, name)
    proposals = agent.propose(brief)
    assert proposals.notes == ()
    (candidate,) = proposals.candidates
    assert candidate.rationale == "Adds in place."
    assert candidate.solution.name == "fast"
    assert candidate.solution.author == name
    (usage,) = proposals.usage
    assert (usage.tokens_in, usage.tokens_cached, usage.tokens_out) == (100, 20, 30)
    assert usage.dollars == (0.25 if name == "claude-code" else None)
    assert usage.candidates == (candidate.solution.sha256,)
    assert usage.wall_s > 0
    assert proposals.notes == ()
    assert _worktrees() == set()
    kept = brief.ledger.get("prompt")
    assert "One kernel instead of a sequence" in kept["text"]
    install(PROGRAMS[name], [[["error", "started again", 9]]])
    assert agent.propose(brief).candidates == proposals.candidates


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_is_not_there_is_the_users_error(toy: Toy, name: str) -> None:
    """It says what to install or to name."""
    agent = agent_of(toy, name, program="no-such-program")
    with pytest.raises(UnavailableError, match="no-such-program"):
        agent.propose(brief_of(toy))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_time_out_takes_what_is_there(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any, name: str
) -> None:
    """The program is ended, its drafts count, its turns are paid."""
    install(
        PROGRAMS[name],
        [[*leaves(toy_draft()), ["turn", [10, 0, 5]], ["turn", [1, 0, 1]], ["sleep", 60]]],
    )
    start = time.monotonic()
    proposals = agent_of(toy, name, timeout_s=4.0).propose(brief_of(toy))
    assert time.monotonic() - start < 30
    assert [c.solution.name for c in proposals.candidates] == ["fast"]
    assert any("ended after" in note for note in proposals.notes)
    if name == "claude-code":
        assert proposals.usage[0].tokens_in == 10 + 1


def test_claude_waits_for_a_rate_limit_and_goes_on_in_its_session(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any
) -> None:
    """The second start resumes what the first began, and both are paid."""
    text = "API Error: Request rejected (429)"
    first = [["turn", [7, 0, 1]], ["limited", 0.2]]
    first.append(["end", {"is_error": True, "text": text, "status": 429, "dollars": 0.1}])
    second = [*leaves(toy_draft()), ["turn", [3, 4, 2]], ["end", {"dollars": 0.2}]]
    install("claude", [first, second])
    brief = brief_of(toy)
    proposals = agent_of(toy, "claude-code").propose(brief)
    assert len(proposals.candidates) == 1
    assert sum(usage.dollars or 0 for usage in proposals.usage) == pytest.approx(0.3)
    sessions = {brief.ledger.get(f"session/{n}")["session"] for n in range(2)}
    assert len(sessions) == 1
    assert any("429" in note for note in proposals.notes)


def test_codex_counts_a_thread_once(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any
) -> None:
    """It sums over the whole thread; a second turn in it is charged for its own part."""
    first = [["turn", [100, 50, 10]], ["fail", "exceeded retry limit, last status: 429"]]
    second = [*leaves(toy_draft()), ["turn", [30, 20, 5]], ["end"]]
    third = [["turn", [1, 1, 1]], ["fail", "stream disconnected before completion"]]
    install("codex", [third, first, second])
    proposals = agent_of(toy, "codex").propose(brief_of(toy))
    assert len(proposals.candidates) == 1
    assert sum(usage.tokens_in for usage in proposals.usage) == 131
    assert sum(usage.tokens_cached for usage in proposals.usage) == 71
    assert sum(usage.tokens_out for usage in proposals.usage) == 16


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_passes_is_tried_a_few_times_only(toy: Toy, install: Install, name: str) -> None:
    """Then the round has no candidate, and says why."""
    end = (
        ["end", {"is_error": True, "text": "API Error: 529 overloaded", "status": 529}]
        if name == "claude-code"
        else ["fail", "unexpected status 503 Service Unavailable"]
    )
    install(PROGRAMS[name], [[end]])
    brief = brief_of(toy)
    proposals = agent_of(toy, name, attempts=3).propose(brief)
    assert proposals.candidates == ()
    assert brief.ledger.get("started/2") is not None
    assert brief.ledger.get("started/3") is None
    assert any("server-error" in note for note in proposals.notes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_refusal_is_not_tried_again(toy: Toy, install: Install, name: str) -> None:
    """Asking once more would cost the same for the same."""
    steps = (
        [["refuse"], ["end", {"text": "I cannot help with that."}]]
        if name == "claude-code"
        else [["fail", "The request was flagged by our content policy"]]
    )
    install(PROGRAMS[name], [steps])
    brief = brief_of(toy)
    proposals = agent_of(toy, name).propose(brief)
    assert proposals.candidates == ()
    assert brief.ledger.get("started/1") is None
    assert any("refusal" in note for note in proposals.notes)


def test_runaway_cost_is_ended(toy: Toy, install: Install) -> None:
    """By tokens that are left, by dollars at a price, by turns: each while it runs."""
    endless = [["turn", [1000, 0, 1000]]] * 200 + [["sleep", 30]]
    install("claude", [endless])
    limited = brief_of(toy, left=lambda: Allowance(tokens=10_000))
    proposals = agent_of(toy, "claude-code").propose(limited)
    assert 10_000 < sum(usage.tokens for usage in proposals.usage) < 30_000
    priced = {"dollars_per_mtok_in": 10.0, "dollars_per_mtok_out": 90.0, "max_dollars": 1.0}
    proposals = agent_of(toy, "claude-code", **priced).propose(brief_of(toy))
    assert 1.0 < sum(usage.dollars or 0 for usage in proposals.usage) < 2.0
    proposals = agent_of(toy, "claude-code", max_turns=5).propose(brief_of(toy))
    assert any("after 5 turns" in note for note in proposals.notes)
    install("codex", [[["turn", [1, 0, 1]]] * 200 + [["sleep", 30]]])
    proposals = agent_of(toy, "codex", max_turns=5).propose(brief_of(toy))
    assert any("after 5 turns" in note for note in proposals.notes)


def test_the_programs_own_limits_are_set(toy: Toy, install: Install) -> None:
    """Claude Code gets turns, dollars that are left, and the tools that it may use."""
    install("claude", [[["steal", "{home}", "x"], ["end", {"subtype": "error_max_budget_usd"}]]])
    brief = brief_of(toy, left=lambda: Allowance(dollars=0.5))
    agent = agent_of(toy, "claude-code", max_turns=7, max_dollars=2.0, model="opus")
    words = agent.writer._dialect.command(_call(0.5))
    assert words[words.index("--max-turns") + 1] == "7"
    assert words[words.index("--max-budget-usd") + 1] == "0.5000"
    assert "Bash(./kopt:*)" in words[words.index("--allowedTools") + 1]
    proposals = agent.propose(brief)
    assert any("budget" in note for note in proposals.notes)


def _call(dollars: float) -> Any:
    from kopt_controller.agents.writing import Call

    return Call(None, "opus", 7, dollars, tools=True, work=Path("/work"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_misused_tool_is_said(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any, name: str
) -> None:
    """What was denied is a note; the drafts count all the same."""
    wanted = "Bash" if name == "claude-code" else "curl example.org"
    install(PROGRAMS[name], [[*leaves(toy_draft()), ["deny", wanted], _end(name)]])
    proposals = agent_of(toy, name).propose(brief_of(toy))
    assert len(proposals.candidates) == 1
    assert any("may not use" in note for note in proposals.notes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_that_are_no_events_do_no_harm(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any, name: str
) -> None:
    """Broken JSON, numbers, events of another time; the end is still understood."""
    noise = [["raw", line] for line in ('{"type": "assis', "17", "", '{"type": "new"}', "[1]")]
    install(PROGRAMS[name], [[*noise, *leaves(toy_draft()), *noise, _end(name)]])
    proposals = agent_of(toy, name).propose(brief_of(toy))
    assert len(proposals.candidates) == 1
    assert any("6 lines of its output are no event" in note for note in proposals.notes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_dies_without_a_word_is_said(toy: Toy, install: Install, name: str) -> None:
    """No candidate, no error of ours."""
    install(PROGRAMS[name], [[["error", "Segmentation fault", 139]]])
    proposals = agent_of(toy, name).propose(brief_of(toy))
    assert proposals.candidates == ()
    assert any("exit code 139" in note for note in proposals.notes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_session_that_is_lost_is_begun_anew(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any, name: str
) -> None:
    """A killed call whose session nobody knows any more starts from the task."""
    install(PROGRAMS[name], [[*leaves(toy_draft()), _end(name)]])
    brief = brief_of(toy)
    agent = agent_of(toy, name)
    ledger = brief.ledger
    task_prompt = _begin_and_die(agent, brief)
    top = ledger.get("worktree/0")["path"]
    ledger.put("started/0", {"attempt": 0})
    ledger.put("session/0", {"session": "gone", "path": top})
    proposals = agent.propose(brief)
    assert len(proposals.candidates) == 1
    assert ledger.get("session/1")["session"] == ""
    assert ledger.get("session/2")["session"] not in ("", "gone")
    assert ledger.get("prompt")["sha256"] == task_prompt


def _begin_and_die(agent: Any, brief: RoundBrief) -> str:
    """What a process leaves that is killed right after it made the worktree."""
    from kopt_controller.agents.writing import open_worktree, render, task_of

    task = task_of(brief, agent._context, Allowance())
    prompt = render(task, "files")
    brief.ledger.put("prompt", prompt.document())
    with open_worktree(brief.ledger, prompt, task, None):
        pass
    return prompt.sha256


def test_helpers_work_within_their_budget(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any
) -> None:
    """A check from within the worktree is answered; past the budget it is refused."""
    steps = [*leaves(toy_draft())]
    steps += [["run", ["./kopt", "budget"], "drafts/fast/solution/python/a.py"]]
    steps += [["run", ["./kopt", "check", "nothing"], "drafts/fast/solution/python/b.py"]]
    steps += [["run", ["./kopt", "check", "fast"], "drafts/fast/solution/python/c.py"]]
    install("claude", [[*steps, ["end"]]])
    proposals = agent_of(toy, "claude-code", device_s=0.0).propose(brief_of(toy))
    (candidate,) = proposals.candidates
    texts = {
        source.path: json.loads(source.content)
        for source in candidate.solution.sources
        if len(source.path) == 4
    }
    assert json.loads(texts["a.py"]["out"]) == {"left_s": 0.0, "limit_s": 0.0}
    assert texts["b.py"]["code"] == 2
    assert "no draft" in texts["b.py"]["out"]
    assert texts["c.py"]["code"] == 2
    assert "0.0 of 0.0 s of the device are used" in texts["c.py"]["out"]


def test_sub_agents_are_counted_apart(toy: Toy, install: Install) -> None:
    """A model that only sub-agents used is theirs."""
    models = {"small-1": {"inputTokens": 40, "outputTokens": 4, "costUSD": 0.01}}
    steps = [["turn", [5, 0, 5]], ["turn", [40, 0, 4], {"sub": True, "model": "small-1"}]]
    install("claude", [[*steps, ["end", {"dollars": 0.09, "models": models}]]])
    proposals = agent_of(toy, "claude-code").propose(brief_of(toy))
    by_name = {usage.sub_agent: usage for usage in proposals.usage}
    assert by_name[""].dollars == pytest.approx(0.09)
    assert by_name["sub-agents"].tokens_in == 40


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_question_is_answered_in_words(toy: Toy, install: Install, name: str) -> None:
    """In an empty worktree, by the role that asks, once; a shape makes data of the words."""
    text = 'Here: {"plan": "smaller tiles"}'
    steps = [["write", "planted.txt", "x"], ["turn", [9, 0, 3], text]]
    end = ["end", {"text": text}] if name == "claude-code" else ["end"]
    install(PROGRAMS[name], [[*steps, end]])
    writer = agent_of(toy, name).writer
    question = Question("What next?", role="planner", shape={"type": "object"})
    ledger = DictLedger()
    answer = writer.ask(question, ledger)
    assert answer.data == {"plan": "smaller tiles"}
    assert answer.ending == "done"
    assert [usage.role for usage in answer.usage] == ["planner"]
    assert answer.usage[0].tokens_in == 9
    assert "What next?" in ledger.get("prompt")["text"]
    install(PROGRAMS[name], [[["error", "asked again", 9]]])
    assert writer.ask(question, ledger) == answer
