"""What agents are told: rendered from data, without anything that they must not know."""

import json
from pathlib import Path
from typing import Any

import kopt_tests_agents
import pytest
from kopt_controller.agents import Evidence, PastDraft, TaskFile
from kopt_controller.agents.writing import goal_only, open_worktree, render, task_of
from kopt_controller.cli import main
from kopt_controller.costs import Allowance
from kopt_controller.directions import load_directions
from kopt_controller.memory import Memory, RoundMemory, Trial
from kopt_controller.steering import Steer, fold
from kopt_harness.ledger import DictLedger
from kopt_harness.schema import Verdict

Toy = Any
brief_of, agent_of = kopt_tests_agents.brief_of, kopt_tests_agents.agent_of


def _task(toy: Toy, **changes: Any) -> Any:
    agent = agent_of(toy, "claude-code")
    return task_of(brief_of(toy, **changes), agent._context, Allowance(device_s=60.0))


def _memory(toy: Toy) -> Memory:
    tuned = toy.solution("tuned")
    trials = tuple(
        Trial(
            name=f"trial-{n}",
            sha256=tuned.sha256[:-1] + str(n),
            family=None,
            settings={},
            verdict=verdict,
            passed=ratio is not None and ratio < 1,
            ratio=ratio,
            ci=None if ratio is None else (ratio - 0.01, ratio + 0.01),
            technique="tiles",
        )
        for n, (verdict, ratio) in enumerate(
            [(Verdict.PASS, 0.8), (Verdict.PASS, 1.3), (Verdict.FAIL, None), (Verdict.INFRA, None)]
        )
    )
    past = RoundMemory(
        run="run-that-was",
        round=1,
        direction="tiling",
        bottleneck="memory",
        regime="n=1",
        incumbent="0",
        label="archive",
        code="speed",
        ratio=0.8,
        promoted=False,
        swept=None,
        trials=trials,
    )
    return Memory(rounds=(past,))


@pytest.mark.parametrize("direction", load_directions())
@pytest.mark.parametrize("delivery", ["files", "json"])
def test_every_direction_has_its_prompt(toy: Toy, direction: str, delivery: Any) -> None:
    """With its playbook; the same task gives the same words and the same hash."""
    task = _task(toy, direction=load_directions()[direction])
    prompt = render(task, delivery)
    assert load_directions()[direction].playbook.strip() in prompt.text
    assert render(task, delivery) == prompt
    assert "{{" not in prompt.text
    assert "None" not in prompt.text.replace("may be None", "")


def test_a_full_prompt_has_the_evidence_for_and_against(toy: Toy) -> None:
    """What the machine was to blame for is left out; people are quoted."""
    steers = [
        Steer(kind="note", value="look at the cache", by="ada"),
        Steer(kind="reference", value="paper 7"),
    ]
    text = render(_task(toy, memory=_memory(toy), steering=fold(steers)), "files").text
    assert "+ `trial-0` (tiling, tiles): took 0.800 [0.790, 0.810]" in text
    assert "- `trial-1`" in text
    assert "- `trial-2` (tiling, tiles): ended as fail" in text
    assert "trial-3" not in text
    assert "look at the cache (ada)" in text
    assert "paper 7" in text
    assert "y[:] = x + 1" in text


def test_what_helpers_cost_is_said(toy: Toy) -> None:
    """With the options that a call has, and how to see what is left."""
    text = render(_task(toy), "files").text
    assert "`./kopt check NAME --workload I --trials N`" in text
    assert "`./kopt budget` costs nothing" in text
    assert "all calls together have 60 seconds" in text
    assert "./kopt" not in render(_task(toy), "json").text


@pytest.mark.parametrize("delivery", ["files", "json"])
def test_headings_stand_apart(toy: Toy, delivery: Any) -> None:
    """A blank line before each, or it would be part of the text above."""
    steers = [Steer(kind="note", value="look at the cache", by="ada")]
    full = _task(toy, memory=_memory(toy), steering=fold(steers), instructions="plan")
    for task in (full, _task(toy), goal_only(full)):
        lines = render(task, delivery).text.split("\n")
        heads = [n for n, line in enumerate(lines) if line.startswith("## ")]
        assert heads
        assert [lines[n] for n in heads if lines[n - 1]] == []


def test_goal_only_has_objective_and_constraints_alone(toy: Toy) -> None:
    """No state, direction, memory, word of a person, tool or skill; the rules are the same."""
    steers = fold([Steer(kind="note", value="look at the cache", by="ada")])
    full = _task(toy, memory=_memory(toy), steering=steers)
    for task in (goal_only(full), _task(toy, mode="goal-only", memory=_memory(toy))):
        text = render(task, "files").text
        for word in ("trial-0", "cache", "./kopt", "skills/", "tiling", "plain", "playbook"):
            assert word not in text
        assert "adds one to a vector" in text
        assert "What is judged" in text
        assert "drafts/<name>/" in text


def test_a_source_in_a_prompt_is_as_it_is(toy: Toy) -> None:
    """Blank lines stay, and no source ends its own block."""
    code = "def run(x, y):\n    '''\n```\n'''\n\n\n\n    y.copy_(x)\n"
    task = _task(toy).model_copy(update={"incumbent": (TaskFile(path="k.py", content=code),)})
    text = render(task, "files").text
    assert f"````\n{code.rstrip()}\n````" in text


def test_other_candidates_code_needs_a_policy(toy: Toy) -> None:
    """Evidence carries no source; what a policy allows is shown, nothing else."""
    assert "files" not in Evidence.model_fields
    secret = "y.copy_(x + 1)  # of another island"
    task = _task(toy, memory=_memory(toy))
    assert secret not in render(task, "files").text
    past = PastDraft(name="other", files=(TaskFile(path="k.py", content=secret),), outcome="0.9")
    allowed = task.model_copy(update={"past": (past,)})
    assert secret in render(allowed, "files").text
    assert secret not in render(goal_only(allowed), "files").text


def test_neither_prompt_nor_worktree_has_what_is_secret(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key, no seed of judge or search, no archive, no path of the checkout, nobody's code."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-a-key-that-nobody-may-see")
    campaign = toy.campaign(promotion="ask")
    (result,) = campaign.execute().rounds
    other = next(c for c in result.candidates if c.name != "plain")
    search_seed = 918_273_645
    brief = brief_of(toy, seed=search_seed, memory=_memory(toy))
    agent = agent_of(toy, "claude-code")
    task = task_of(brief, agent._context, Allowance(device_s=60.0))
    prompt = render(task, "files")
    ledger = DictLedger()
    texts = {"prompt": prompt.text}
    with open_worktree(ledger, prompt, task, None) as tree:
        for path in tree.top.rglob("*"):
            if path.is_file() and path.name != "kopt":
                texts[str(path)] = path.read_text()
        names = {str(path.relative_to(tree.work)) for path in tree.work.rglob("*")}
        tree.remove()
    assert names == {
        "TASK.md",
        "contract.json",
        "incumbent",
        "incumbent/kernel.py",
        "kopt",
        "drafts",
    }
    forbidden = [
        "sk-ant-a-key",
        str(search_seed),
        str(toy.root.path),
        campaign.run.id,
        other.sha256,
        "run-that-was",
    ]
    for where, text in texts.items():
        for word in forbidden:
            assert word not in text, (where, word)
    task_text = json.dumps(task.model_dump(mode="json"))
    assert "sk-ant-a-key" not in task_text


def test_a_worktree_is_found_again_and_only_its_own(toy: Toy, tmp_path: Path) -> None:
    """After a kill the same folder goes on; one that somebody else made is not trusted."""
    task = _task(toy)
    prompt = render(task, "files")
    ledger = DictLedger()
    with open_worktree(ledger, prompt, task, None) as tree:
        first = tree.top
        (tree.work / "drafts/half.txt").write_text("begun")
    with open_worktree(ledger, prompt, task, None) as tree:
        assert tree.top == first
        assert (tree.work / "drafts/half.txt").exists()
        tree.remove()
    impostor = tmp_path / "impostor"
    (impostor / "work").mkdir(parents=True)
    (impostor / "home").mkdir()
    (impostor / "kopt-agent").write_text("another prompt")
    ledger = DictLedger()
    ledger.put("worktree/0", {"path": str(impostor)})
    with open_worktree(ledger, prompt, task, None) as tree:
        assert tree.top != impostor
        tree.remove()


def test_the_command_prints_what_an_agent_would_be_told(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A goal-only prompt needs no device; the hash is that of the words."""
    words = ["--json", "--root", str(checkout), "prompt", "--definition", "gdn_decode"]
    assert main([*words, "--target", "cpu", "--mode", "goal-only", "--agent", "openai"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["mode"] == "goal-only"
    assert document["direction"] is None
    assert "`gdn_decode`" in document["prompt"]
    assert "JSON object" in document["prompt"]
    assert document["task"]["incumbent"] == []
    assert main([*words, "--agent", "knobs"]) == 2
    assert main([*words, "--mode", "half"]) == 2
    capsys.readouterr()
    assert main([*words, "--target", "cpu", "--direction", "zz"]) == 2
    captured = capsys.readouterr()
    assert "no direction 'zz'" in json.loads(captured.out)["error"]
    assert captured.err == ""


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="a GPU is here")
def test_a_target_that_is_not_here_has_a_prompt_without_a_profile(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hint names the mode that needs no device."""
    words = ["--json", "--root", str(checkout), "prompt", "--definition", "gdn_decode"]
    assert main([*words, "--target", "h200"]) == 2
    assert "--mode goal-only" in json.loads(capsys.readouterr().out)["hint"]
