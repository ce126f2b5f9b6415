"""Drafts that are no candidates: said why, told to whoever is asked next, and not paid for ever."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import kopt_tests_agents
import pytest
from kopt_controller.choosing import MOST_VAIN
from kopt_controller.metering import read_costs
from kopt_controller.simulated import SimulatedDevice
from kopt_harness.journal import read_journal
from kopt_harness.ledger import DictLedger

Toy = Any
Install = Callable[[str, Any], Path]
Serve = Callable[[Sequence[dict[str, Any]]], Any]
brief_of, agent_of = kopt_tests_agents.brief_of, kopt_tests_agents.agent_of
SLOW = "y.copy_(x + 1 + 0)"


def _answer(drafts: dict[str, dict[str, str]]) -> dict[str, Any]:
    written = [
        {
            "name": name,
            "rationale": "r",
            "technique": "",
            "files": [{"path": path, "content": text} for path, text in files.items()],
        }
        for name, files in drafts.items()
    ]
    return {"text": json.dumps({"drafts": written})}


def test_a_draft_that_equals_another_is_not_said_to_be_measured(
    toy: Toy, endpoint: Serve, toy_draft: Any
) -> None:
    """Which one it equals is said; so is the incumbent."""
    plain = toy.solution("plain")
    same = dict(toy_draft())
    own = {
        "config.toml": same["config.toml"],
        **{f"solution/python/{each.path}": each.content for each in plain.sources},
    }
    server = endpoint([_answer({"one": same, "two": same, "three": own})])
    proposals = agent_of(toy, "openai", base_url=server.url, model="m").propose(brief_of(toy))
    assert [each.solution.name for each in proposals.candidates] == ["one"]
    assert "the draft 'two' is the same as the draft 'one'" in proposals.notes
    assert "the draft 'three' is the same as what must be beaten" in proposals.notes
    assert set(proposals.turned_down) < set(proposals.notes)
    assert len(proposals.turned_down) == 2


def _campaign(toy: Toy, server: Any, **changes: Any) -> Any:
    device = SimulatedDevice(latency_us=lambda s, _: 10.0 if s.name == "plain" else 20.0)
    settings = {"base_url": server.url, "model": "m"}
    options = {"agent": "openai", "agents": {"openai": settings}, "promotion": "ask", **changes}
    return toy.campaign(device, **options)


@pytest.mark.parametrize("is_renamed", [False, True])
def test_calls_that_leave_what_is_known_come_to_an_end(
    toy: Toy, endpoint: Serve, toy_draft: Any, is_renamed: bool
) -> None:
    """A round asks a few times, telling why, and not once more for each direction there is."""
    first = _answer({"fifo": toy_draft(SLOW)})
    bodies = [f"{SLOW}  # {n}" if is_renamed else SLOW for n in range(12)]
    server = endpoint([first, *(_answer({"fifo": toy_draft(body)}) for body in bodies)])
    (slow,) = _campaign(toy, server).execute().rounds
    assert slow.decision.label == "reject"
    campaign = _campaign(toy, server)
    (second,) = campaign.execute().rounds
    assert second.candidates == ()
    assert len(server.requests) == 1 + MOST_VAIN
    assert f"{MOST_VAIN} calls left nothing new: no more are made" in second.notes
    first_prompt, *later = [request["messages"][0]["content"] for request in server.requests[1:]]
    assert "was not taken" not in first_prompt
    why = "is the same but for names" if is_renamed else "is what was measured or refused before"
    assert all("Instructions for this call" in prompt for prompt in later)
    assert all(why in prompt for prompt in later)
    costs = read_costs(campaign.run.folder)
    assert costs.rounds[1].total.calls == MOST_VAIN
    records = [record.key for record in read_journal(campaign.run.journal_path)]
    assert sum("/proposals/" in key for key in records) == MOST_VAIN


def test_somebody_who_learns_is_asked_again(toy: Toy, endpoint: Serve, toy_draft: Any) -> None:
    """One call in vain does not end a round."""
    slow = _answer({"fifo": toy_draft(SLOW)})
    server = endpoint([slow, slow, _answer({"new": toy_draft("y.copy_(1 + x)")})])
    _campaign(toy, server).execute()
    (second,) = _campaign(toy, server).execute().rounds
    assert [each.name for each in second.candidates] == ["new"]
    assert len(server.requests) == 3


def test_folders_that_are_no_drafts_end_a_round_too(toy: Toy, install: Install) -> None:
    """What a program leaves and nobody can take is told to it and not paid for without end."""
    install("claude", [[["write", "drafts/bad/solution/python/k.py", "1"], ["end"]]])
    campaign = toy.campaign(agent="claude-code", promotion="ask")
    (round_,) = campaign.execute().rounds
    assert round_.candidates == ()
    records = {record.key: record.value for record in read_journal(campaign.run.journal_path)}
    prompts = [value["text"] for key, value in records.items() if key.endswith("/prompt")]
    assert len(prompts) == MOST_VAIN
    assert all("'bad' is not taken: it has no config.toml" in text for text in prompts[1:])


def test_who_is_not_paid_is_asked_for_every_direction(toy: Toy, toy_draft: Any) -> None:
    """What a person has handed in costs nothing to look at: none of it hides behind the others."""
    inbox = toy.root.path / "inbox"

    def drop(name: str, body: str) -> None:
        for path, text in toy_draft(body, name).items():
            (inbox / name / path).parent.mkdir(parents=True, exist_ok=True)
            (inbox / name / path).write_text(text)

    device = SimulatedDevice(latency_us=lambda s, _: 10.0 if s.name == "plain" else 20.0)
    options = {"agent": "inbox", "inbox": str(inbox), "max_candidates": 1}
    drop("a", SLOW)
    toy.campaign(device, **options).execute()
    for n in range(MOST_VAIN + 2):
        drop(f"b{n}", f"{SLOW}  # {n}")
    drop("c", "y.copy_(1 + x)")
    (second,) = toy.campaign(device, **options).execute().rounds
    assert len(second.refused) == MOST_VAIN + 2
    assert [each.name for each in second.candidates] == ["c"]


def test_a_refused_draft_is_told_without_its_secret(
    toy: Toy, endpoint: Serve, toy_draft: Any
) -> None:
    """The reason names the variable."""
    leak = toy_draft("y.copy_(x + 1)  # sk-openai-a-key-that-nobody-may-see")
    server = endpoint([_answer({"fifo": leak})])
    agent = agent_of(toy, "openai", base_url=server.url, model="m")
    proposals = agent.propose(brief_of(toy, ledger=DictLedger()))
    assert proposals.candidates == ()
    assert any("contains the value of OPENAI_API_KEY" in each for each in proposals.turned_down)
