"""Every agent that writes code keeps the contract of all agents, against its stand-in."""

import json
from pathlib import Path
from typing import Any

import kopt_tests_agents
import pytest
from kopt_controller.agent_settings import AgentSettings
from kopt_controller.agents import Agent, Writer, agent_names, get_agent
from kopt_controller.cli import main
from kopt_controller.directions import load_directions
from kopt_harness.errors import InvalidInputError, UnavailableError

Toy = Any
brief_of, agent_of = kopt_tests_agents.brief_of, kopt_tests_agents.agent_of
WRITERS = [name for name in agent_names() if get_agent(name).writer is not None]
PROGRAMS = {"claude-code": "claude", "codex": "codex"}


@pytest.fixture
def stand_ins(install: Any, endpoint: Any, toy_draft: Any, leaves: Any) -> Any:
    """Each leaves the same four drafts, one of them the incumbent and one for another operator."""
    bodies = {"a": "y.copy_(x + 1)", "b": "y.copy_(1 + x)", "c": "y[:] = x + 1"}
    drafts = {name: toy_draft(body, name) for name, body in bodies.items()}
    drafts["d"] = {k: t.replace("toy_op_n", "gdn") for k, t in toy_draft("pass").items()}
    steps = [step for name, draft in drafts.items() for step in leaves(draft, name)]
    install("claude", [[*steps, ["end"]]])
    install("codex", [[*steps, ["end"]]])
    answer = [
        {
            "name": name,
            "rationale": "r",
            "technique": "t",
            "files": [{"path": path, "content": text} for path, text in draft.items()],
        }
        for name, draft in drafts.items()
    ]
    return endpoint([{"text": json.dumps({"drafts": answer})}])


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("limit", [1, 3])
def test_a_writing_agent_keeps_the_contract(
    toy: Toy, stand_ins: Any, name: str, limit: int
) -> None:
    """Bounded, of the right definition, nothing twice, never the incumbent, kept by its ledger."""
    factory = get_agent(name)
    assert factory.promotion == "ask"
    agent = agent_of(toy, name, base_url=stand_ins.url, model="m")
    assert isinstance(agent, Agent)
    assert isinstance(agent.writer, Writer)
    assert agent.name == name
    for direction in list(load_directions())[:3]:
        brief = brief_of(toy, direction=load_directions()[direction], limit=limit)
        proposals = agent.propose(brief)
        shas = [proposal.solution.sha256 for proposal in proposals.candidates]
        assert 0 < len(shas) <= limit
        assert len(shas) == len(set(shas))
        assert brief.incumbent.sha256 not in shas
        assert all(p.solution.definition == "toy_op_n" for p in proposals.candidates)
        assert all(p.rationale for p in proposals.candidates)
        assert all(usage.agent == name for usage in proposals.usage)
        assert agent.propose(brief).candidates == proposals.candidates


@pytest.mark.parametrize("name", WRITERS)
def test_an_agent_that_cannot_be_asked_starts_no_campaign(
    toy: Toy, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said before a run is made, with what is missing."""
    for variable in ("ANTHROPIC_API_KEY", "CODEX_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    settings = {"program": "no-such-program"}
    with pytest.raises(UnavailableError) as caught:
        toy.campaign(agent=name, agents={name: settings})
    assert caught.value.hint
    assert not (toy.root.local / "runs").exists()


@pytest.mark.parametrize("name", WRITERS)
def test_the_doctor_names_program_and_key(
    stand_ins: Any, checkout: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variable that has the key, never the key."""
    status = get_agent(name).status
    assert status is not None
    found = status(AgentSettings(model="m"))
    assert found["ok"], found
    assert found["key"].endswith("KEY")
    assert "that-nobody-may-see" not in json.dumps(found)
    if name in PROGRAMS:
        assert found["program"].endswith(PROGRAMS[name])
        assert found["version"] == "2.1.0"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_doctor_asks_a_program_apart(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the folder of whoever asks, without keys, and without this user's home."""
    seen = tmp_path / "seen"
    program = tmp_path / "bin" / PROGRAMS[name]
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n(pwd; env) > "{seen}"\necho 3.2.1\n: > left-behind\n')
    program.chmod(0o755)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", "../bin", prepend=":")
    for variable in ("ANTHROPIC_API_KEY", "CODEX_API_KEY", "KOPT_ANYTHING"):
        monkeypatch.setenv(variable, "a-value-that-nobody-may-see")
    status = get_agent(name).status
    assert status is not None
    assert status(AgentSettings())["version"] == "3.2.1"
    assert list(here.iterdir()) == []
    place, *environment = seen.read_text().splitlines()
    assert f"HOME={place}" in environment
    assert "a-value-that-nobody-may-see" not in "".join(environment)
    assert not Path(place).exists()


def test_the_doctor_lists_every_agent(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that are missing with how to get them."""
    assert main(["--json", "--root", str(checkout), "doctor"]) == 0
    tools = json.loads(capsys.readouterr().out)["tools"]
    agents = {tool["name"]: tool for tool in tools if tool["kind"] == "agent"}
    assert set(agents) == set(agent_names())
    assert all(tool["ok"] or tool["hint"] for tool in agents.values())


@pytest.mark.parametrize("name", WRITERS)
def test_a_limit_that_could_not_hold_is_refused(toy: Toy, stand_ins: Any, name: str) -> None:
    """Where nobody says what a call costs, dollars need prices; tokens are always counted."""
    settings = {"base_url": stand_ins.url, "model": "m"}
    prices = {"dollars_per_mtok_in": 1.0, "dollars_per_mtok_out": 4.0}
    limits = {"max_dollars": 3.0}
    if not get_agent(name).says_cost:
        with pytest.raises(InvalidInputError, match="3 dollars cannot hold"):
            toy.campaign(agent=name, agents={name: settings}, limits=limits)
    toy.campaign(agent=name, agents={name: {**settings, **prices}}, limits=limits)
    toy.campaign(agent=name, agents={name: settings}, limits={"max_tokens": 1000})
