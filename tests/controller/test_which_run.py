"""Which run is meant where none is named, what it is refused, and what is said of it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kopt_controller.cli import main
from kopt_controller.dashboard import hub as hubs
from kopt_harness.archive import Archive
from kopt_harness.journal import Journal

Toy = Any
Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def kopt(toy: Toy, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in the toy root; returns the exit code and the JSON document."""

    def run(*arguments: str) -> tuple[int, Any]:
        code = main(["--root", str(toy.root.path), "--json", *arguments])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_a_dead_run_hides_no_running_one(toy: Toy, kopt: Run) -> None:
    """Status, steer and the dashboard take the newest that runs, else the newest."""
    running, dead = toy.campaign(), toy.campaign()
    hub = hubs.Hub(Archive(toy.root.local), None, None)
    assert kopt("status")[1]["run"] == dead.run.id
    with Journal(running.run.journal_path):
        assert kopt("status")[1]["run"] == running.run.id
        assert kopt("steer", "--note", "try tiles")[1]["run"] == running.run.id
        watched = hub.watched()
    assert watched is not None
    assert watched is hub.watched(running.run.id)


def test_explain_takes_the_newest_run_that_closed_a_round(toy: Toy, kopt: Run) -> None:
    """It names the run; one that has closed none explains nothing."""
    closed = toy.campaign()
    closed.execute()
    toy.campaign()
    code, document = kopt("explain")
    assert (code, document["run"]) == (0, closed.run.id)
    assert len(document["rounds"]) == 1


def test_a_limit_of_nothing_is_refused_by_resume(toy: Toy, kopt: Run) -> None:
    """Before the journal is opened: the run stays as it was."""
    campaign = toy.campaign()
    code, document = kopt("resume", campaign.run.id, "--max-wall-s", "0")
    assert code == 2
    assert "--max-wall-s" in document["error"]
    assert not campaign.run.journal_path.exists()


def test_an_agent_that_is_not_here_is_no_steer(
    toy: Toy, kopt: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """As a round would refuse it, and nothing is said to the run."""
    campaign = toy.campaign()
    monkeypatch.setenv("PATH", str(tmp_path))
    code, document = kopt("steer", campaign.run.id, "--agent", "codex")
    assert code == 2
    assert "'codex' cannot be asked" in document["error"]
    assert "kopt doctor" in document["hint"]
    assert kopt("steer", campaign.run.id)[1]["steers"] == []


def test_status_shows_what_waits_to_be_heard(
    toy: Toy, kopt: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until a round takes it, which is then recorded there."""
    campaign = toy.campaign()
    kopt("steer", "--note", "try tiles")
    (steer,) = kopt("status")[1]["pending_steers"]
    assert (steer["kind"], steer["value"]) == ("note", "try tiles")
    assert main(["--root", str(toy.root.path), "status"]) == 0
    assert "Waits for the next round: note try tiles" in capsys.readouterr().out
    campaign.execute()
    assert kopt("status")[1]["pending_steers"] == []


def test_status_notes_a_tail_that_is_no_record(
    toy: Toy, kopt: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the words of history, on stderr and in the document."""
    campaign = toy.campaign()
    campaign.execute()
    with campaign.run.journal_path.open("ab") as journal:
        journal.write(b'{"cut o')
    (problem,) = kopt("status")[1]["problems"]
    assert "no whole record" in problem
    assert kopt("history")[1]["problems"] == [problem]
    assert main(["--root", str(toy.root.path), "status"]) == 0
    assert "no whole record" in " ".join(capsys.readouterr().err.split())
