"""Numbers and texts of programs and endpoints are claims: what cannot be is not taken as said."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kopt_tests_agents
import pytest
from kopt_controller.agents import Question
from kopt_controller.agents.writing import Secrets, read_json
from kopt_controller.agents.writing.calls import CallLedger
from kopt_controller.agents.writing.claims import Numbers, harmless, unpaired
from kopt_controller.campaign import open_campaign
from kopt_controller.costs import spent_of
from kopt_controller.simulated import SimulatedHarness
from kopt_harness.ledger import DictLedger

Toy = Any
Install = Callable[[str, Any], Path]
Serve = Callable[[Sequence[dict[str, Any]]], Any]
brief_of, agent_of = kopt_tests_agents.brief_of, kopt_tests_agents.agent_of
ABSURD = ["1e400", "-1e400", "NaN", "-5", str(10**30), "9" * 400, '"many"', "true", "[1]"]
ESCAPE = "\x1b]0;owned\x07\x1b[31mred\x9b1m\u202eback\u2066"


def _event(value: str) -> str:
    """An answer of Claude Code whose count of tokens is what is given, as JSON."""
    event = {
        "type": "assistant",
        "message": {"id": "m", "model": "x", "usage": {"input_tokens": "@", "output_tokens": 3}},
    }
    return json.dumps(event).replace('"@"', value)


def _result(tokens: str, dollars: str) -> str:
    model = {"inputTokens": "@tokens", "outputTokens": 4, "costUSD": "@dollars"}
    event = {"type": "result", "subtype": "success", "result": "done", "modelUsage": {"x": model}}
    return json.dumps(event).replace('"@tokens"', tokens).replace('"@dollars"', dollars)


@pytest.mark.parametrize("value", ABSURD)
def test_a_count_of_claude_that_cannot_be_is_left_out(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any, value: str
) -> None:
    """The draft counts all the same, the rest of the numbers too, and a note names the one."""
    install("claude", [[*leaves(toy_draft()), ["raw", _event(value)]]])
    proposals = agent_of(toy, "claude-code").propose(brief_of(toy))
    assert len(proposals.candidates) == 1
    (usage,) = proposals.usage
    assert (usage.tokens_in, usage.tokens_out, usage.is_partial) == (0, 3, True)
    assert any(note.endswith("not counted: input_tokens") for note in proposals.notes)


@pytest.mark.parametrize("value", ["1e400", "NaN", "-0.5", "10000000", '"free"'])
def test_dollars_that_cannot_be_leave_a_use_without_a_price(
    toy: Toy, install: Install, value: str
) -> None:
    """Neither nothing nor a fortune: the sum is a lower bound."""
    install("claude", [[["raw", _result("7", value)]]])
    proposals = agent_of(toy, "claude-code").propose(brief_of(toy))
    (usage,) = proposals.usage
    assert (usage.tokens_in, usage.dollars) == (7, None)
    assert spent_of(proposals.usage).unpriced == 1
    assert any("costUSD" in note for note in proposals.notes)


def test_an_absurd_count_leaves_the_dollars_a_lower_bound(toy: Toy, install: Install) -> None:
    """What was said of the price is kept, and marked as less than all."""
    install("claude", [[["raw", _result(str(10**30), "0.25")]]])
    cost = spent_of(agent_of(toy, "claude-code").propose(brief_of(toy)).usage)
    assert (cost.tokens, cost.dollars, cost.unpriced) == (4, 0.25, 1)


@pytest.mark.parametrize("value", ABSURD)
def test_a_count_of_codex_that_cannot_be_is_left_out(
    toy: Toy, install: Install, value: str
) -> None:
    """Prices of the configuration make a lower bound of what is left."""
    usage = '{"input_tokens": @, "cached_input_tokens": 1, "output_tokens": 4}'
    line = f'{{"type": "turn.completed", "usage": {usage.replace("@", value)}}}'
    install("codex", [[["raw", line]]])
    prices = {"dollars_per_mtok_in": 1.0, "dollars_per_mtok_out": 1.0}
    proposals = agent_of(toy, "codex", **prices).propose(brief_of(toy))
    cost = spent_of(proposals.usage)
    assert (cost.tokens, cost.unpriced) == (5, 1)
    assert any("not counted: input_tokens" in note for note in proposals.notes)


@pytest.mark.parametrize("value", ABSURD)
def test_a_count_of_an_endpoint_that_cannot_be_is_left_out(
    toy: Toy, endpoint: Serve, value: str
) -> None:
    """Its answer is read to its end."""
    usage = '{"prompt_tokens": @, "completion_tokens": 4}'.replace("@", value)
    server = endpoint([{"text": '{"drafts": []}', "raw": [f'{{"usage": {usage}}}']}])
    agent = agent_of(toy, "openai", base_url=server.url, model="m")
    proposals = agent.propose(brief_of(toy))
    assert spent_of(proposals.usage).unpriced == len(proposals.usage) == 2
    assert {usage.tokens for usage in proposals.usage} == {4}
    assert any("not counted: prompt_tokens" in note for note in proposals.notes)


@pytest.mark.parametrize(
    "line",
    ["{not json", '{"x": ' + "1" * 5000 + "}", "[" * 100_000],
    ids=["broken", "many digits", "deep"],
)
def test_a_broken_event_of_an_endpoint_is_a_lost_connection(
    toy: Toy, endpoint: Serve, toy_draft: Any, line: str
) -> None:
    """It is asked again, and the ending is clear where that does not help."""
    server = endpoint([{"text": "{", "raw": [line]}])
    proposals = agent_of(toy, "openai", base_url=server.url, model="m", attempts=2).propose(
        brief_of(toy)
    )
    assert len(server.requests) == 2
    assert proposals.unusable.startswith("openai: server-error, an event cannot be read")
    files = [{"path": path, "content": text} for path, text in toy_draft().items()]
    draft = {"name": "fast", "rationale": "r", "technique": "", "files": files}
    server = endpoint([{"raw": [line]}, {"text": json.dumps({"drafts": [draft]})}])
    agent = agent_of(toy, "openai", base_url=server.url, model="m")
    assert len(agent.propose(brief_of(toy)).candidates) == 1


def test_events_of_another_shape_do_no_harm(toy: Toy, endpoint: Serve, toy_draft: Any) -> None:
    """Numbers, nulls and lists where objects should be are passed over."""
    files = [{"path": path, "content": text} for path, text in toy_draft().items()]
    draft = {"name": "fast", "rationale": "r", "technique": "", "files": files}
    odd = ["5", "null", "[]", '{"choices": null}', '{"choices": [{}]}', '{"choices": [1]}']
    odd += ['{"choices": [{"delta": {"content": 5}}], "model": 5, "usage": 7}']
    server = endpoint([{"text": json.dumps({"drafts": [draft]}), "raw": odd}])
    proposals = agent_of(toy, "openai", base_url=server.url, model="m").propose(brief_of(toy))
    assert len(proposals.candidates) == 1
    assert proposals.usage[0].model == "stand-in-2"


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_lists_that_are_none_are_not_read_letter_by_letter(
    toy: Toy, install: Install, name: str
) -> None:
    """Whatever stands where a list or an object should be, the call ends with what it says."""
    lines = [
        {"type": "assistant", "message": 5},
        {"type": "item.completed", "item": "x"},
        {"type": "turn.failed", "error": 5},
        {
            "type": "rate_limit_event",
            "rate_limit_info": {"status": "rejected", "resetsAt": 10**400},
        },
        {"type": "result", "subtype": "x", "errors": 5, "permission_denials": "none"},
    ]
    steps = [["raw", json.dumps(line)] for line in lines]
    install({"claude-code": "claude", "codex": "codex"}[name], [[*steps, ["raw", "[" * 100_000]]])
    proposals = agent_of(toy, name).propose(brief_of(toy))
    assert any("1 line of its output is no event" in note for note in proposals.notes)
    assert not any("may not use" in note for note in proposals.notes)


def test_what_is_absurd_is_named_and_adds_nothing() -> None:
    """A cap each for tokens and for dollars; what is not there is no claim."""
    numbers = Numbers({"a": 5, "b": 10**12, "c": 10**12 + 1, "d": True, "e": 10.0**6, "f": 1e6 + 1})
    assert numbers.tokens("a", "b", "c", "d", "nothing") == 5 + 10**12
    assert (numbers.dollars("e"), numbers.dollars("f"), numbers.dollars("g")) == (1e6, None, None)
    assert numbers.dropped == ["c", "d", "f"]


def test_nothing_in_a_text_is_obeyed() -> None:
    """Controls are spelt out, one by one; tabs, line breaks and other letters stay."""
    shown = harmless(f"é\t1\r\n2\r{ESCAPE}\x00\x7f\ud800")
    assert shown == (
        "é\t1\n2\\x0d\\x1b]0;owned\\x07\\x1b[31mred\\x9b1m\\u202eback\\u2066\\x00\\x7f\\ud800"
    )
    assert unpaired("a\ud83d\ude00b\ud800") == "a\U0001f600b\ufffd"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "1" * 5000 + "}"])
def test_an_answer_that_no_reader_takes_is_no_object(text: str) -> None:
    """Deeper or longer than Python reads: it is broken, and nobody's error."""
    assert read_json(text) is None


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_texts_of_a_program_are_harmless(
    toy: Toy, install: Install, toy_draft: Any, leaves: Any, name: str
) -> None:
    """In notes, in a rationale and in the name of a model."""
    program = {"claude-code": "claude", "codex": "codex"}[name]
    end = [["end", {"subtype": ESCAPE, "text": ESCAPE}], ["fail", ESCAPE]][name == "codex"]
    steps = [*leaves({**toy_draft(), "NOTE.md": f"Why {ESCAPE}"}), ["deny", ESCAPE], end]
    install(program, [steps])
    brief = brief_of(toy)
    proposals = agent_of(toy, name, model=f"m{ESCAPE}".replace("\0", "")).propose(brief)
    assert len(proposals.candidates) == 1
    shown = [*proposals.notes, proposals.candidates[0].rationale, proposals.usage[0].model]
    assert any("\\x1b[31m" in text for text in proposals.notes)
    assert [text for text in shown if text != harmless(text)] == []


def test_texts_of_an_endpoint_are_harmless(toy: Toy, endpoint: Serve, toy_draft: Any) -> None:
    """In what it answers a question with, and in the words beside a draft."""
    files = [{"path": path, "content": text} for path, text in toy_draft().items()]
    draft = {"name": "fast", "rationale": ESCAPE, "technique": ESCAPE, "files": files}
    server = endpoint(
        [
            {"text": json.dumps({"drafts": [draft]})},
            {"text": json.dumps({"argument": ESCAPE, ESCAPE: [ESCAPE]})},
            {"refusal": ESCAPE},
        ]
    )
    agent = agent_of(toy, "openai", base_url=server.url, model="m")
    (candidate,) = agent.propose(brief_of(toy)).candidates
    shown = [candidate.rationale, candidate.technique]
    question = Question("Why?", role="debater", shape={"type": "object"})
    answer = agent.writer.ask(question, DictLedger())
    assert answer.data is not None
    shown += [answer.text, *answer.data, answer.data["argument"], *answer.data[harmless(ESCAPE)]]
    shown += agent.writer.ask(question, DictLedger()).notes
    assert sum("\\x1b[31m" in text for text in shown) >= 6
    assert [text for text in shown if text != harmless(text)] == []


def test_the_last_line_of_a_program_that_dies_is_kept(
    toy: Toy, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a secret, whole up to 200 letters: it says what was wrong."""
    secret = "sk-ant-a-key-that-nobody-may-see"
    install("claude", [[["error", f"first\nno model of {secret} {ESCAPE[:9]}{'x' * 300}\n\n", 3]]])
    (note,) = agent_of(toy, "claude-code").propose(brief_of(toy)).notes
    assert "exit code 3 and did not say how: no model of [ANTHROPIC_API_KEY] \\x1b" in note
    assert note.endswith("x")
    assert note.count("x") < 250
    assert secret not in note


def test_a_program_that_kopt_ends_was_not_ended_by_somebody(toy: Toy, install: Install) -> None:
    """The limit is the reason, and no signal is spoken of; one from elsewhere is."""
    install("claude", [[["turn", [1, 0, 1]]] * 9 + [["sleep", 30]]])
    notes = agent_of(toy, "claude-code", max_turns=3).propose(brief_of(toy)).notes
    assert any("after 3 turns" in note for note in notes)
    assert not any("signal" in note for note in notes)
    install("codex", [[["run", ["sh", "-c", "kill -9 $PPID"]], ["sleep", 30]]])
    proposals = agent_of(toy, "codex").propose(brief_of(toy))
    assert "killed" in proposals.unusable


def test_a_call_keeps_no_text_that_is_obeyed() -> None:
    """The one place through which all of them go."""
    call = CallLedger(DictLedger(), Secrets())
    assert call.redacted("\x1b[2J") == "\\x1b[2J"


def test_names_that_people_drop_are_harmless(toy: Toy, toy_draft: Any) -> None:
    """No decision, note or archived solution has what a terminal would obey."""
    inbox = toy.root.path / "inbox"
    written = {
        **toy_draft(name="tuned"),
        "solution/python/kernel.py": "def run(x, y):\n    y.copy_(1 + x)\n",
    }
    written["config.toml"] = written["config.toml"].replace('"tuned"', '"a\\u001b[31mb"')
    for path, text in written.items():
        (inbox / "x" / path).parent.mkdir(parents=True, exist_ok=True)
        (inbox / "x" / path).write_text(text)
    (inbox / "\x1b[2J.json").write_text("{")
    lines: list[str] = []
    device = toy.device._replace(latency_us=lambda solution, workload: 10.0)
    run = toy.campaign(device, agent="inbox", inbox=str(inbox)).run
    harness = SimulatedHarness("cpu", device)
    campaign = open_campaign(toy.root, run.id, lambda *_: harness, lines.append)
    (round_,) = campaign.execute().rounds
    assert [each.name for each in round_.candidates] == ["a\\x1b[31mb"]
    shown = [*round_.notes, round_.decision.reason, *lines]
    assert any("\\x1b[2J" in text for text in shown)
    assert [text for text in shown if text != harmless(text)] == []
