"""Runs a campaign of three rounds with each agent that writes code once, on the CPU, and kills it.

The agents are the stand-ins of ``tests/agents/stand_ins``: programs named ``claude`` and ``codex``
and an endpoint on this machine, which speak the real protocols and hand in the C++ solution of
``gdn_decode`` with other settings. Everything else is real: worktrees, confinement, packing,
judge, timing, decision (on one workload, so that nothing is promoted). In each round kopt is
killed (SIGKILL) while the agent works, and resumed; between rounds a person switches the agent.
The campaign starts with a limit of dollars that the first agent exceeds, stops at it, and goes on
with a higher one, under a limit of device seconds.

    python scripts/agent_campaign.py [--json FILE]

It needs a few minutes, writes below a temporary folder alone, and says at its end what it saw.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
from kopt_harness.journal import read_journal

CHECKOUT = Path(__file__).resolve().parents[1]
STAND_INS = CHECKOUT / "tests/agents/stand_ins"
SOLUTION = CHECKOUT / "kernels/gdn_decode_qk4_v8_d128_k_last/solutions/cpp-recurrent"
FIRST_DOLLARS, DOLLARS, DEVICE_S = 0.15, 2.0, 900.0
CONFIG = """
max_candidates = 1
gate_workloads = ["0"]
sweep_workloads = ["0"]

[measure]
trials = 2
blocks_min = 2
blocks_max = 4

[agents.claude-code]
device_s = 60.0

[agents.codex]
dollars_per_mtok_in = 2.0
dollars_per_mtok_out = 8.0

[agents.openai]
base_url = "{url}"
model = "stand-in-2"
dollars_per_mtok_in = 2.0
dollars_per_mtok_out = 8.0
"""
PATIENCE_S = 1800.0
BUSY, BUSY_TRIES = 3, 3
"""Exit code where others kept the device for too long; what was measured is kept."""


def draft(setting: str, value: int) -> dict[str, str]:
    """The files of a draft: the solution with another default of one setting."""
    config = (SOLUTION / "config.toml").read_text()
    head, _, tail = config.partition(f"[tunables.{setting}]")
    values, _, rest = tail.partition("default = ")
    _, _, after = rest.partition("\n")
    changed = f"{head}[tunables.{setting}]{values}default = {value}\n{after}"
    sources = sorted((SOLUTION / "solution/cpp").iterdir())
    files = {f"solution/cpp/{path.name}": path.read_text() for path in sources}
    return {"config.toml": changed, "NOTE.md": f"{setting} {value}.\n", **files}


def steps(files: dict[str, str]) -> list[list[Any]]:
    """What a stand-in does to leave a draft."""
    return [["write", f"drafts/candidate/{path}", text] for path, text in files.items()]


def install(folder: Path, name: str, scripts: Sequence[Sequence[Any]]) -> None:
    """A stand-in on the path."""
    text = (STAND_INS / "program.py").read_text()
    text = text.replace("SCRIPTS = []", f"SCRIPTS = json.loads({json.dumps(scripts)!r})")
    path = folder / name
    path.write_text(text.replace("#!/usr/bin/env python3", f"#!{sys.executable}", 1))
    path.chmod(0o755)


def load_endpoint() -> ModuleType:
    """The stand-in for an endpoint."""
    spec = importlib.util.spec_from_file_location("kopt_endpoint", STAND_INS / "endpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Campaign:
    """The command line, and what it left."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.root = root
        self._environment = environment
        self.kills: list[str] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command in the background."""
        head = [sys.executable, "-m", "kopt_controller", "--json", "--root", str(self.root)]
        return subprocess.Popen(
            [*head, "--config", str(self.root / "campaign.toml"), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def run(self, *words: str, code: int = 0) -> dict[str, Any]:
        """A command to its end, which must be this one."""
        for _ in range(BUSY_TRIES):
            process = self.start(*words)
            out, errors = process.communicate(timeout=PATIENCE_S)
            if process.returncode != BUSY or words[0] != "resume":
                break
        if process.returncode != code:
            raise SystemExit(f"{' '.join(words)} ended with {process.returncode}: {errors}{out}")
        document: dict[str, Any] = json.loads(out)
        return document

    @property
    def folder(self) -> Path:
        """Of the one run."""
        (folder,) = (self.root / "artifacts/local/runs").iterdir()
        return folder

    def keys(self) -> list[str]:
        """Of its journal, so far."""
        runs = self.root / "artifacts/local/runs"
        if not runs.is_dir() or not any(runs.iterdir()):
            return []
        path = self.folder / "journal.jsonl"
        return [record.key for record in read_journal(path)] if path.exists() else []

    def kill_when(self, words: Sequence[str], is_there: Callable[[list[str]], bool]) -> None:
        """Starts a command and kills it once something is in the journal; nothing stays behind."""
        process = self.start(*words)
        deadline = time.monotonic() + PATIENCE_S
        while not is_there(self.keys()):
            if process.poll() == BUSY and words[0] == "resume" and time.monotonic() < deadline:
                process.communicate()
                process = self.start(*words)
            elif process.poll() is not None or time.monotonic() > deadline:
                out, errors = process.communicate()
                raise SystemExit(f"{' '.join(words)} was not reached: {errors}{out}")
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        _, alive = psutil.wait_procs(children, timeout=30)
        alive = [each for each in alive if each.is_running() and each.status() != "zombie"]
        if alive:
            raise SystemExit(f"still running after the kill: {alive}")
        self.kills.append(self.keys()[-1])


def has(number: int, word: str) -> Callable[[list[str]], bool]:
    """Whether an agent's call of a round has come so far."""

    def look(keys: list[str]) -> bool:
        return any(key.startswith(f"r{number}/agent/") and word in key for key in keys)

    return look


def prepare(top: Path, url: str) -> Campaign:
    """A root of its own, the stand-ins on the path, and keys that open nothing."""
    root, programs = top / "root", top / "bin"
    root.mkdir()
    programs.mkdir()
    (root / "kernels").symlink_to(CHECKOUT / "kernels")
    (root / "configs").symlink_to(CHECKOUT / "configs")
    (root / "campaign.toml").write_text(CONFIG.format(url=url))
    check = ["run", ["./kopt", "check", "candidate", "--workload", "0"], "check.json"]
    turns = [["turn", [9000, 0, 2000], "I have a draft"], ["turn", [100, 9000, 100], "I check it"]]
    claude = [*steps(draft("THREADS", 2)), *turns, ["sleep", 3600]]
    install(
        programs,
        "claude",
        [claude, [check, ["turn", [500, 9000, 300], "It passes"], ["end", {"dollars": 0.2}]]],
    )
    codex = [*steps(draft("ROWS", 8)), ["turn", [8000, 0, 1500], "I have a draft"], ["sleep", 3600]]
    install(programs, "codex", [codex, [["turn", [700, 8000, 200], "Done"], ["end"]]])
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "ANTHROPIC_API_KEY": "opens-nothing-1",
        "CODEX_API_KEY": "opens-nothing-2",
        "OPENAI_API_KEY": "opens-nothing-3",
    }
    return Campaign(root, environment)


def answers() -> list[dict[str, Any]]:
    """Of the endpoint: one that takes too long, and one that comes."""
    files = [{"path": p, "content": t} for p, t in draft("NT_STORES", 0).items() if p != "NOTE.md"]
    one = {"name": "candidate", "rationale": "NT_STORES 0.", "technique": "stores", "files": files}
    text = json.dumps({"drafts": [one]})
    used = {"prompt_tokens": 9000, "completion_tokens": 4000, "total_tokens": 13000}
    return [{"text": text, "part": 100, "pause_s": 3600.0}, {"text": text, "usage": used}]


def play(campaign: Campaign, requests: list[Any]) -> dict[str, Any]:
    """The whole campaign; the document of its last process."""
    limits = ["--max-dollars", str(FIRST_DOLLARS), "--max-device-s", str(DEVICE_S)]
    begin = ["round", "--definition", "gdn_decode", "--target", "cpu", "--rounds", "3"]
    campaign.kill_when([*begin, "--agent", "claude-code", *limits], has(1, "/turn/"))
    stopped = campaign.run("resume", code=130)
    print(f"stopped: {stopped['error']}", flush=True)
    campaign.run("steer", "--agent", "codex")
    more = ["resume", "--max-dollars", str(DOLLARS)]
    campaign.kill_when(more, has(2, "/session/"))
    campaign.run("steer", "--agent", "openai")
    campaign.kill_when(more, lambda keys: has(3, "/started/")(keys) and bool(requests))
    return campaign.run(*more)


def record_of(campaign: Campaign, document: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What happened, for people and for the record."""
    records = read_journal(campaign.folder / "journal.jsonl")
    sessions: dict[str, set[str]] = {}
    for each in records:
        if "/session/" in each.key:
            sessions.setdefault(each.key.split("/")[0], set()).add(each.value["session"])
    return {
        "rounds": [
            {
                "round": each["round"],
                "direction": each["direction"]["id"],
                "candidates": [(c["name"], c["verdict"]) for c in each["candidates"]],
                "ratio": (each["sweep"] or {}).get("comparison", {}).get("ratio"),
                "decision": each["decision"]["label"],
                "notes": each["notes"],
                "cost": each["cost"],
            }
            for each in document["rounds"]
        ],
        "cost": document["cost"],
        "environment": next(r.value["environment"] for r in records if r.key == "session/0"),
        "killed_after": campaign.kills,
        "sessions": {number: len(found) for number, found in sessions.items()},
        "prompts": {r.key: r.value["sha256"] for r in records if r.key.endswith("/prompt")},
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Runs it and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where the record goes")
    given = parser.parse_args()
    start = time.monotonic()
    server = load_endpoint().serve(answers())
    with tempfile.TemporaryDirectory(prefix="kopt-campaign-") as top, server as endpoint:
        campaign = prepare(Path(top), endpoint.url)
        document = play(campaign, endpoint.requests)
        record = record_of(campaign, document, time.monotonic() - start)
    for each in record["rounds"]:
        cost = each["cost"]
        (agent,) = cost["by_agent"]
        names = ", ".join(f"{name} {verdict}" for name, verdict in each["candidates"])
        print(
            f"round {each['round']}: {agent}, {each['direction']}: {names or 'nothing'}, "
            f"{each['decision']}; {cost['total']['dollars']:.4f} dollars, "
            f"{cost['device_s']:.1f} s of the device"
        )
    total = record["cost"]
    print(
        f"in all: {total['total']['dollars']:.4f} dollars of {DOLLARS}, {total['device_s']:.1f} s "
        f"of the device of {DEVICE_S}, killed after {', '.join(record['killed_after'])}; "
        f"{record['seconds']} s"
    )
    if given.json is not None:
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
