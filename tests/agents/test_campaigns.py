"""Whole campaigns with agents: killed in the middle of a call, they go on in the same session."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.metering import read_costs
from kopt_harness.archive import Run
from kopt_harness.journal import read_journal

Toy = Any

_CHILD = """
import json, sys
from pathlib import Path
from kopt_controller.campaign import open_campaign, start_campaign
from kopt_controller.config import RunConfig
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_harness.root import Root

root = Root(Path(sys.argv[1]))
config = RunConfig.model_validate(json.loads(sys.argv[2]))
times = {"plain": 50.0, "tuned": 10.0, "fast": 20.0}
device = SimulatedDevice(
    latency_us=lambda solution, workload: times[solution.name] + workload.axes["n"],
    launches=lambda solution: 9 if solution.name == "plain" else 1,
    noise=0.003,
)
make = lambda target, _: SimulatedHarness(target.name, device)
if sys.argv[3] == "start":
    campaign = start_campaign(root, "toy", config, make, lambda _: None)
else:
    campaign = open_campaign(root, None, make, lambda _: None)
print(campaign.run.id, flush=True)
print(json.dumps(campaign.execute().document()))
"""


def _spawn(toy: Toy, config: dict[str, Any], mode: str) -> subprocess.Popen[str]:
    words = [str(toy.root.path), json.dumps({"target": "cpu", "search_seed": 1, **config}), mode]
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for(path: Path, word: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and word in path.read_text():
            return
        time.sleep(0.01)
    raise AssertionError(f"no {word!r} in {path}")


def _killed_and_resumed(
    toy: Toy,
    config: dict[str, Any],
    word: str,
    between: Callable[[], object],
    ready: Callable[[], object] = lambda: True,
) -> tuple[Run, dict[str, Any]]:
    """Killed when a word is in the journal and something else has happened; resumed to its end."""
    with _spawn(toy, config, "start") as child:
        assert child.stdout is not None
        run = Run(toy.root.local / "runs" / child.stdout.readline().strip())
        _wait_for(run.journal_path, word)
        deadline = time.monotonic() + 60
        while not ready() and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    between()
    with _spawn(toy, config, "resume") as child:
        output, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    return run, json.loads(output.splitlines()[1])


def _left_running(run: Run) -> list[str]:
    """Processes that still work in a worktree of the run."""
    tops = [r.value["path"] for r in read_journal(run.journal_path) if "/worktree/" in r.key]
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if any(top in (entry / "environ").read_text(errors="replace") for top in tops):
                found.append(entry.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("name", "program"), [("claude-code", "claude"), ("codex", "codex")])
def test_a_killed_call_goes_on_in_its_session(
    toy: Toy, install: Any, toy_draft: Any, leaves: Any, own_tmp: Path, name: str, program: str
) -> None:
    """The program dies with kopt; the second start resumes the session in the same worktree."""
    first = [*leaves(toy_draft()), ["turn", [10, 0, 5]], ["turn", [1, 0, 1]], ["sleep", 120]]
    second = [["turn", [3, 0, 2]], ["end"]]
    install(program, [first, second])
    word = "/turn/0/0" if name == "claude-code" else "/session/0"
    path: list[Run] = []

    def between() -> None:
        (folder,) = (toy.root.local / "runs").iterdir()
        path.append(Run(folder))
        deadline = time.monotonic() + 20
        while _left_running(path[0]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _left_running(path[0]) == []

    def has_left_its_turns() -> bool:
        """Codex says a session before its turns: it has used them when it has noted them."""
        notes = own_tmp.glob("kopt-agent-*/home/sessions.json")
        return name != "codex" or any("[11, 0, 6]" in note.read_text() for note in notes)

    config = {"agent": name, "promotion": "ask"}
    run, document = _killed_and_resumed(toy, config, word, between, has_left_its_turns)
    (round_,) = document["rounds"]
    assert [c["name"] for c in round_["candidates"]] == ["fast"]
    records = {record.key: record.value for record in read_journal(run.journal_path)}
    sessions = {v["session"] for k, v in records.items() if "/session/" in k}
    assert len(sessions) == 1
    assert sum("/worktree/" in key for key in records) == 1
    total = read_costs(run.folder).total
    assert total is not None
    assert total.total.tokens_in == (13 if name == "claude-code" else 14)
    top = next(v["path"] for k, v in records.items() if "/worktree/" in k)
    assert not Path(top).exists()


def test_a_killed_answer_of_an_endpoint_is_asked_for_again(
    toy: Toy, endpoint: Any, toy_draft: Any
) -> None:
    """What was not complete is lost; the prompt is the same one."""
    files = [{"path": path, "content": text} for path, text in toy_draft().items()]
    text = json.dumps(
        {"drafts": [{"name": "fast", "rationale": "r", "technique": "", "files": files}]}
    )
    slow = {"text": text, "part": 20, "pause_s": 2.0}
    server = endpoint([slow, {"text": text}])
    settings = {"base_url": server.url, "model": "m"}
    config = {"agent": "openai", "agents": {"openai": settings}, "promotion": "ask"}
    _, document = _killed_and_resumed(
        toy, config, "/started/0", lambda: None, lambda: server.requests
    )
    assert [c["name"] for c in document["rounds"][0]["candidates"]] == ["fast"]
    assert len(server.requests) == 2
    assert server.requests[0]["messages"] == server.requests[1]["messages"]


def test_each_agent_once_in_one_campaign(
    toy: Toy, install: Any, endpoint: Any, toy_draft: Any, leaves: Any
) -> None:
    """People switch agents between rounds; each is seated with its own table and paid apart."""
    from kopt_controller.campaign import open_campaign
    from kopt_controller.simulated import SimulatedHarness
    from kopt_controller.steering import STEER_FILE, Steer, append_steers

    install("claude", [[*leaves(toy_draft("y.copy_(x + 1)"), "one"), ["end", {"dollars": 0.1}]]])
    install("codex", [[*leaves(toy_draft("y.copy_(1 + x)"), "two"), ["turn", [5, 0, 5]], ["end"]]])
    files = [{"path": p, "content": t} for p, t in toy_draft("y.copy_(x); y += 1").items()]
    answer = {"drafts": [{"name": "three", "rationale": "r", "technique": "", "files": files}]}
    server = endpoint([{"text": json.dumps(answer)}])
    times = {"plain": 50.0, "one": 40.0, "two": 30.0, "three": 20.0}
    device = toy.device._replace(latency_us=lambda s, w: times[s.name] + w.axes["n"])
    prices = {"dollars_per_mtok_in": 1.0, "dollars_per_mtok_out": 2.0}
    campaign = toy.campaign(
        device,
        agent="claude-code",
        rounds=3,
        promotion="auto",
        agents={
            "openai": {"base_url": server.url, "model": "m", **prices},
            "codex": prices,
        },
    )
    seen = []

    def notify(text: str) -> None:
        seen.append(text)
        for number, agent in ((1, "codex"), (2, "openai")):
            if text.startswith(f"round {number}: promote"):
                steers = [Steer(kind="agent", value=agent)]
                append_steers(campaign.run.folder / STEER_FILE, steers)

    result = open_campaign(
        toy.root, campaign.run.id, lambda *_: SimulatedHarness("cpu", device), notify
    ).execute()
    assert [r.incumbent.name for r in result.rounds] == ["one", "two", "three"], seen
    total = read_costs(campaign.run.folder).total
    assert total is not None
    assert set(total.by_agent) == {"claude-code", "codex", "openai"}
    assert total.total.unpriced == 0
