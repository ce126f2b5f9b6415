"""The agent behind an endpoint, against a server that streams what a script says."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kopt_tests_agents
import pytest
from kopt_controller.agents import Question
from kopt_controller.cli import main
from kopt_controller.costs import Allowance
from kopt_harness.errors import UnavailableError
from kopt_harness.ledger import DictLedger

Toy = Any
Serve = Callable[[Sequence[dict[str, Any]]], Any]
brief_of, agent_of = kopt_tests_agents.brief_of, kopt_tests_agents.agent_of
USED = {
    "prompt_tokens": 120,
    "completion_tokens": 40,
    "total_tokens": 160,
    "prompt_tokens_details": {"cached_tokens": 20},
}


def answer_of(draft: dict[str, str], **more: Any) -> str:
    """An answer by the schema, with one draft."""
    files = [{"path": path, "content": text} for path, text in draft.items()]
    one = {"name": "fast", "rationale": "In place.", "technique": "copy", "files": files}
    return json.dumps({"drafts": [one]}, **more)


def _openai(toy: Toy, server: Any, **settings: Any) -> Any:
    return agent_of(toy, "openai", base_url=server.url, model="m-1", **settings)


def test_an_answer_becomes_a_candidate(toy: Toy, endpoint: Serve, toy_draft: Any) -> None:
    """Asked for by schema and streamed; paid by the usage that the endpoint says and the prices."""
    server = endpoint([{"text": answer_of(toy_draft()), "usage": USED, "part": 7}])
    prices = {"dollars_per_mtok_in": 10.0, "dollars_per_mtok_out": 50.0}
    proposals = _openai(toy, server, dollars_per_mtok_cached=1.0, **prices).propose(brief_of(toy))
    (candidate,) = proposals.candidates
    assert candidate.rationale == "In place."
    assert candidate.technique == "copy"
    assert proposals.notes == ()
    (usage,) = proposals.usage
    assert (usage.tokens_in, usage.tokens_cached, usage.tokens_out) == (100, 20, 40)
    assert usage.dollars == pytest.approx((100 * 10 + 20 * 1 + 40 * 50) / 1e6)
    assert usage.model == "stand-in-2"
    (request,) = server.requests
    assert request["stream"] is True
    assert request["response_format"]["json_schema"]["strict"] is True
    assert request["model"] == "m-1"
    assert "What must be beaten" in request["messages"][0]["content"]


def test_the_key_is_sent_and_kept_nowhere(toy: Toy, endpoint: Serve, toy_draft: Any) -> None:
    """Not even where the endpoint sends it back: in a message, an error or a draft."""
    key = "sk-openai-a-key-that-nobody-may-see"
    leak = toy_draft(body=f"y.copy_(x + 1)  # {key}")
    answers = [
        {"status": 500, "error": {"message": f"key {key} is tired", "code": None}},
        {"text": answer_of(leak), "usage": USED},
    ]
    server = endpoint(answers)
    brief = brief_of(toy)
    proposals = _openai(toy, server).propose(brief)
    assert server.keys == [key, key]
    assert proposals.candidates == ()
    assert any("OPENAI_API_KEY" in note for note in proposals.notes)
    kept = json.dumps([brief.ledger.get(name) for name in brief.ledger.completed()])
    assert key not in kept + repr(proposals)
    assert "[OPENAI_API_KEY]" in kept


def test_another_variable_may_have_the_key(
    toy: Toy, endpoint: Serve, toy_draft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named in the configuration; where it is not set, that is said before anything is sent."""
    server = endpoint([{"text": answer_of(toy_draft()), "usage": USED}])
    monkeypatch.setenv("MY_OWN", "another-secret-value")
    assert _openai(toy, server, key_env="MY_OWN").propose(brief_of(toy)).candidates
    assert server.keys == ["another-secret-value"]
    monkeypatch.delenv("MY_OWN")
    with pytest.raises(UnavailableError, match="MY_OWN"):
        _openai(toy, server, key_env="MY_OWN").propose(brief_of(toy))
    assert len(server.requests) == 1


def test_a_rate_limit_is_waited_for_as_long_as_it_says(
    toy: Toy, endpoint: Serve, toy_draft: Any
) -> None:
    """Retry-After counts, not our own pause."""
    limit = {"status": 429, "headers": {"Retry-After": "0.3"}}
    server = endpoint([limit, {"text": answer_of(toy_draft()), "usage": USED}])
    assert _openai(toy, server, wait_s=20.0).propose(brief_of(toy)).candidates
    assert 0.3 <= server.times[1] - server.times[0] < 10


def test_a_limit_that_outlasts_the_call_is_not_waited_for(toy: Toy, endpoint: Serve) -> None:
    """An hour is longer than the call may take."""
    server = endpoint([{"status": 429, "headers": {"Retry-After": "3600"}}])
    start = time.monotonic()
    proposals = _openai(toy, server).propose(brief_of(toy))
    assert time.monotonic() - start < 10
    assert len(server.requests) == 1
    assert any("rate-limit" in note for note in proposals.notes)


@pytest.mark.parametrize(
    ("answer", "requests", "ending"),
    [
        ({"status": 503}, 3, "server-error"),
        ({"text": "{", "cut": True}, 3, "server-error"),
        ({"status": 401}, 1, "failed"),
        ({"status": 400}, 1, "failed"),
        ({"status": 429, "error": {"message": "pay", "code": "insufficient_quota"}}, 1, "failed"),
        ({"refusal": "I will not."}, 1, "refusal"),
        ({"text": "x", "finish": "content_filter"}, 1, "refusal"),
        ({"text": "", "sleep_s": 3.0}, 2, "timeout"),
    ],
)
def test_what_is_tried_again_hangs_on_what_went_wrong(
    toy: Toy, endpoint: Serve, answer: dict[str, Any], requests: int, ending: str
) -> None:
    """What passes is tried again, a refusal, a wrong key or a bad request is not."""
    server = endpoint([answer])
    patience = {"timeout_s": 1.0, "attempts": 2} if ending == "timeout" else {"attempts": 3}
    proposals = _openai(toy, server, **patience).propose(brief_of(toy))
    assert proposals.candidates == ()
    assert any(ending in note for note in proposals.notes)
    if ending != "timeout":
        assert len(server.requests) == requests


def test_every_attempt_is_paid(toy: Toy, endpoint: Serve, toy_draft: Any) -> None:
    """Also what came of an answer that was lost on its way."""
    whole = answer_of(toy_draft())
    server = endpoint([{"text": whole[:200], "cut": True}, {"text": whole, "usage": USED}])
    proposals = _openai(toy, server).propose(brief_of(toy))
    assert len(proposals.candidates) == 1
    assert [usage.tokens_out for usage in proposals.usage] == [50, 40]


@pytest.mark.parametrize(
    "around",
    ["{}", "```json\n{}\n```", "Here it is:\n\n```\n{}\n```\nGood luck!", "Sure. {} That is all."],
)
def test_json_in_a_fence_or_a_sentence_is_read(
    toy: Toy, endpoint: Serve, toy_draft: Any, around: str
) -> None:
    """Many models cannot leave it out."""
    text = around.replace("{}", answer_of(toy_draft(), indent=2))
    server = endpoint([{"text": text, "usage": USED}])
    assert len(_openai(toy, server).propose(brief_of(toy)).candidates) == 1
    assert len(server.requests) == 1


def test_fenced_code_within_json_is_unfenced(toy: Toy, endpoint: Serve, toy_draft: Any) -> None:
    """The source has no fence, whatever the answer has."""
    draft = {p: f"```python\n{text}```" for p, text in toy_draft().items()}
    server = endpoint([{"text": answer_of(draft), "usage": USED}])
    (candidate,) = _openai(toy, server).propose(brief_of(toy)).candidates
    assert all("```" not in source.content for source in candidate.solution.sources)


def test_an_answer_that_was_cut_off_is_asked_for_further(
    toy: Toy, endpoint: Serve, toy_draft: Any
) -> None:
    """The parts are one answer, and both are paid."""
    whole = answer_of(toy_draft())
    parts = [
        {"text": whole[:150], "finish": "length", "usage": USED},
        {"text": whole[150:], "usage": USED},
    ]
    server = endpoint(parts)
    proposals = _openai(toy, server).propose(brief_of(toy))
    assert len(proposals.candidates) == 1
    assert len(proposals.usage) == 2
    second = server.requests[1]["messages"]
    assert second[1] == {"role": "assistant", "content": whole[:150]}
    assert "cut off" in second[2]["content"]


def test_a_draft_that_is_not_whole_is_never_taken(
    toy: Toy, endpoint: Serve, toy_draft: Any
) -> None:
    """Half a source would be measured as if somebody had meant it."""
    whole = answer_of(toy_draft())
    two = json.loads(whole)
    two["drafts"].append({**two["drafts"][0], "name": "second"})
    text = json.dumps(two)
    cut = text[: text.rindex("copy_") + 3]
    server = endpoint([{"text": cut, "finish": "length"}, {"text": "", "finish": "length"}])
    proposals = _openai(toy, server).propose(brief_of(toy))
    assert [c.solution.name for c in proposals.candidates] == ["fast"]
    assert any("not whole" in note for note in proposals.notes)


def test_an_answer_that_cannot_be_read_is_asked_for_once_more(
    toy: Toy, endpoint: Serve, toy_draft: Any
) -> None:
    """And only once."""
    server = endpoint([{"text": "I would rather talk."}, {"text": answer_of(toy_draft())}])
    assert len(_openai(toy, server).propose(brief_of(toy)).candidates) == 1
    server = endpoint([{"text": "I would rather talk."}])
    proposals = _openai(toy, server).propose(brief_of(toy))
    assert proposals.candidates == ()
    assert len(server.requests) == 2
    assert any("broken" in note for note in proposals.notes)


def test_a_broken_endpoint_is_not_one_without_ideas(toy: Toy, endpoint: Serve) -> None:
    """The round says what was wrong, in one note, and asks it for no further direction."""
    server = endpoint([{"text": "I would rather talk.", "usage": USED}])
    config = {"agent": "openai", "agents": {"openai": {"base_url": server.url, "model": "m-1"}}}
    (result,) = toy.campaign(rounds=1, **config).execute().rounds
    assert result.decision.code == "no-answer"
    assert "no usable answer (openai: broken" in result.decision.reason
    assert "no JSON object" in result.decision.reason
    assert len(server.requests) == 2
    assert len(result.notes) == 1
    assert result.direction.id in result.notes[0]


def test_a_call_that_took_too_long_leaves_the_other_directions(toy: Toy, endpoint: Serve) -> None:
    """Where only the time for one task was over, the next direction is tried."""
    server = endpoint([{"text": "...", "sleep_s": 0.5}])
    quick = {"base_url": server.url, "model": "m-1", "timeout_s": 0.1, "attempts": 1}
    (result,) = toy.campaign(rounds=1, agent="openai", agents={"openai": quick}).execute().rounds
    assert result.decision.code == "no-answer"
    assert "timeout" in result.decision.reason
    assert len(server.requests) > 1


def test_an_endpoint_that_knows_less_is_asked_for_less(
    toy: Toy, endpoint: Serve, toy_draft: Any
) -> None:
    """Parameters that it names as unknown are left out."""
    unknown = [
        {"status": 400, "error": {"message": f"unknown parameter {name}", "code": None}}
        for name in ("response_format", "max_completion_tokens")
    ]
    server = endpoint([*unknown, {"text": answer_of(toy_draft()), "usage": USED}])
    proposals = _openai(toy, server).propose(brief_of(toy))
    assert len(proposals.candidates) == 1
    last = server.requests[-1]
    assert "response_format" not in last
    assert "max_tokens" in last
    assert sum("does not know" in note for note in proposals.notes) == 2


def test_what_is_left_limits_an_answer(toy: Toy, endpoint: Serve) -> None:
    """Nothing is sent where nothing is left; a flood is cut off."""
    server = endpoint([{"text": "x" * 100_000, "part": 1000}])
    agent = _openai(toy, server, max_output_tokens=256)
    left = brief_of(toy, left=lambda: Allowance(dollars=0.0))
    assert any("nothing is left" in note for note in agent.propose(left).notes)
    assert server.requests == []
    proposals = agent.propose(brief_of(toy))
    assert any("letters" in note for note in proposals.notes)
    assert proposals.usage[0].tokens_out < 5000
    agent.propose(brief_of(toy, left=lambda: Allowance(tokens=99)))
    assert server.requests[-1]["max_completion_tokens"] == 99


def test_a_killed_call_does_not_ask_again_for_what_it_has(
    toy: Toy, endpoint: Serve, toy_draft: Any
) -> None:
    """The first part is in the ledger; only the second is asked for."""
    whole = answer_of(toy_draft())
    brief = brief_of(toy)
    server = endpoint([{"text": whole[:150], "finish": "length", "usage": USED}, {"status": 503}])
    agent = _openai(toy, server, attempts=1)
    agent.propose(brief)
    kept = {n: brief.ledger.get(n) for n in brief.ledger.completed() if n != "drafted"}
    after = DictLedger()
    for name, value in kept.items():
        after.put(name, value)
    server = endpoint([{"text": whole[150:], "usage": USED}])
    proposals = _openai(toy, server).propose(brief._replace(ledger=after))
    assert len(proposals.candidates) == 1
    assert len(server.requests) == 1
    assert len(server.requests[0]["messages"]) == 3


def test_a_question_is_answered_in_words_or_by_a_shape(toy: Toy, endpoint: Serve) -> None:
    """Costs are the role's; an answer that was kept is not asked for again."""
    server = endpoint([{"text": '{"plan": "smaller tiles"}', "usage": USED}])
    writer = _openai(toy, server).writer
    shape = {"type": "object", "properties": {"plan": {"type": "string"}}}
    question = Question("What next?", role="planner", sub_agent="b", shape=shape)
    ledger = DictLedger()
    answer = writer.ask(question, ledger)
    assert answer.data == {"plan": "smaller tiles"}
    assert (answer.usage[0].role, answer.usage[0].sub_agent) == ("planner", "b")
    assert writer.ask(question, ledger) == answer
    assert len(server.requests) == 1
    assert "What next?" in server.requests[0]["messages"][0]["content"]


def test_doctor_says_all_that_is_missing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Model, key and base_url, also where the package is installed and has a version."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main(["--root", str(checkout), "doctor"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for missing in ("model in [agents.openai]", "OPENAI_API_KEY", "base_url"):
        assert missing in said
