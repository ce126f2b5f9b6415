"""The commands of the loop, on runs of a simulated device; torch is never imported."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kopt_controller.cli import main
from kopt_controller.report import Table, round_blocks
from kopt_harness.journal import Journal

Toy = Any
Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def kopt(toy: Toy, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in the toy root; returns the exit code and the JSON document."""

    def run(*arguments: str, as_json: bool = True) -> tuple[int, Any]:
        flags = ["--json"] if as_json else []
        code = main(["--root", str(toy.root.path), *flags, *arguments])
        output = capsys.readouterr().out
        return code, json.loads(output) if as_json else output

    return run


def test_status_of_nothing_is_no_error(kopt: Run) -> None:
    """A newcomer may look before there is anything."""
    assert kopt("status") == (0, {"schema": 1, "run": None})
    code, text = kopt("status", as_json=False)
    assert code == 0
    assert "kopt round" in text
    assert kopt("history")[1]["runs"] == []


def test_status_tells_running_from_interrupted_and_finished(toy: Toy, kopt: Run) -> None:
    """By the lock and the journal, not by what somebody wrote down."""
    campaign = toy.campaign(promotion="ask")
    assert kopt("status")[1]["state"] == "interrupted"
    with Journal(campaign.run.journal_path):
        assert kopt("status")[1]["state"] == "running"
    campaign.execute()
    code, document = kopt("status", campaign.run.id)
    assert (code, document["state"]) == (0, "finished")
    assert document["promotable"] == f"{campaign.run.id}/1"
    assert kopt("status", "--watch")[0] == 0
    assert "kopt promote" in kopt("status", as_json=False)[1]


def test_history_filters_by_definition_and_target(toy: Toy, kopt: Run) -> None:
    """One row for each closed round, damaged runs named beside them."""
    first = toy.campaign(rounds=2)
    first.execute()
    second = toy.campaign()
    second.execute()
    document = kopt("history", "--definition", "toy")[1]
    assert [len(run["rounds"]) for run in document["runs"]] == [2, 1]
    assert kopt("history", "--target", "b200")[1]["runs"] == []
    text = kopt("history", as_json=False)[1]
    assert text.count("promote") >= 1
    first.run.journal_path.write_bytes(b"x\n" + first.run.journal_path.read_bytes())
    document = kopt("history")[1]
    assert [run["run"] for run in document["runs"]] == [second.run.id]
    assert first.run.id in document["problems"][0]


def test_resume_of_a_finished_run_shows_it_again(toy: Toy, kopt: Run) -> None:
    """Decided again from the journal alone: no device, no measurement."""
    campaign = toy.campaign(rounds=2)
    expected = campaign.execute().document()
    before = campaign.run.journal_path.read_bytes()
    code, document = kopt("resume", campaign.run.id)
    assert code == 0
    document.pop("schema")
    cost = document.pop("cost")
    spent = [each.pop("cost")["device_s"] for each in document["rounds"]]
    assert document == json.loads(json.dumps(expected))
    assert cost["device_s"] == pytest.approx(sum(spent))
    assert cost["total"]["calls"] == 0
    assert campaign.run.journal_path.read_bytes() == before
    code, text = kopt("resume", campaign.run.id, as_json=False)
    assert code == 0
    assert "Decision: PROMOTE" in text


def test_exit_code_turns_no_promotion_into_one(toy: Toy, kopt: Run) -> None:
    """Zero means completed; only with --exit-code does the decision count."""
    promoted, archived = toy.campaign(), toy.campaign(measure={"seed": 1})
    promoted.execute()
    archived.execute()
    assert kopt("resume", promoted.run.id, "--exit-code")[0] == 0
    assert kopt("resume", archived.run.id)[0] == 0
    assert kopt("resume", archived.run.id, "--exit-code")[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("round", "--definition", "nothing"),
        ("round", "--definition", "toy", "--target", "b300"),
        ("round", "--definition", "toy", "--target", "b200"),
        ("round", "--definition", "toy", "--agent", "oracle"),
        ("round", "--definition", "toy", "--promotion", "maybe"),
        ("round", "--definition", "toy", "--rounds", "0"),
        ("round", "--definition", "toy", "--workload", "99"),
        ("round", "--definition", "toy", "--target", "cpu", "--max-dollars", "0"),
        ("round", "--definition", "toy", "--target", "cpu", "--max-tokens", "0"),
        ("round", "--definition", "toy", "--target", "cpu", "--max-device-s", "0"),
        ("round", "--definition", "toy", "--target", "cpu", "--max-wall-s", "0"),
        ("round", "--definition", "toy", "--config", "nowhere"),
        ("round",),
        ("resume",),
        ("resume", "nothing"),
        ("status", "nothing"),
        ("promote",),
        ("promote", "x/1"),
        ("history", "--definition", "nothing"),
    ],
)
def test_bad_input_is_one_sentence_and_a_hint(
    toy: Toy, kopt: Run, arguments: tuple[str, ...]
) -> None:
    """Exit 2, the error document, and no run left behind."""
    code, document = kopt(*arguments)
    assert code == 2
    assert document["error"]
    assert document["hint"]
    assert not (toy.root.local / "runs").exists()


def test_every_cell_of_the_report_comes_from_the_document(toy: Toy) -> None:
    """Works on a document read from JSON, whatever the decision was."""
    device = toy.device._replace(flags={"tuned": "library-call"})
    for campaign in (toy.campaign(), toy.campaign(device), toy.campaign(rounds=12)):
        for each in json.loads(json.dumps(campaign.execute().document()))["rounds"]:
            blocks = round_blocks(each)
            lines = [block for block in blocks if isinstance(block, str)]
            tables = [block for block in blocks if isinstance(block, Table)]
            assert any(each["decision"]["label"].upper() in line for line in lines)
            assert any(each["incumbent"]["name"] in line for line in lines)
            for table in tables:
                assert all(len(row) == len(table.columns) for row in table.rows)
                assert set(table.numeric) <= set(table.columns)
