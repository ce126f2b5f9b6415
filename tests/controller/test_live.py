"""A run read piece by piece says what it says as a whole, and what the report says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.history import view_run
from kopt_controller.live import Board, Follower, live_blocks
from kopt_controller.live.evaluations import Evaluated, EvaluationTable
from kopt_controller.live.pairs import MOST_POINTS, Pair
from kopt_controller.simulated import SimulatedDevice
from kopt_controller.steering import STEER_FILE, Steer, append_steers
from kopt_controller.views.trajectory import candidate_points, place_rounds
from kopt_harness.archive import Run
from kopt_harness.schema import Verdict

from .conftest import Toy, make_toy


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two rounds, the first of which promotes; tests work on copies of it."""
    campaign = make_toy(tmp_path_factory.mktemp("finished")).campaign(rounds=2)
    campaign.execute()
    return campaign.run


@pytest.fixture
def run(finished: Run, tmp_path: Path) -> Run:
    """A copy that a test may change."""
    shutil.copytree(finished.folder, tmp_path / "copy" / finished.id)
    return Run(tmp_path / "copy" / finished.id)


def followed(run: Run) -> Follower:
    """All of a run at once."""
    follower = Follower(run)
    follower.advance()
    return follower


def test_a_board_tells_what_changed_and_nothing_else() -> None:
    """An equal document is no change, and the order of names is that of their beginning."""
    board = Board()
    board.put("a", {"n": 1})
    board.put("b", {"n": 1})
    seen = board.revision
    board.put("a", {"n": 1})
    assert board.since(seen) == {}
    board.update("a", n=2)
    assert board.since(seen) == {"a": {"n": 2}}
    assert list(board.since(0)) == ["b", "a"]
    assert list(board.whole()) == ["a", "b"]


def test_piece_by_piece_says_the_same_as_at_once(run: Run, tmp_path: Path) -> None:
    """Whatever a reader has met, the end is one."""
    lines = run.journal_path.read_bytes().splitlines(keepends=True)
    copied = Run(tmp_path / run.id)
    copied.folder.mkdir()
    shutil.copy(run.manifest_path, copied.manifest_path)
    pieces = Follower(copied)
    with copied.journal_path.open("ab") as journal:
        for line in lines:
            for part in (line[:20], line[20:]):  # a reader may come in the middle of a line
                journal.write(part)
                journal.flush()
                pieces.advance()
    whole = followed(run)
    named = {name: value for name, value in whole.board.whole().items() if "pair" not in name}
    assert {n: v for n, v in pieces.board.whole().items() if "pair" not in n} == named
    for name, pair in pieces.board.whole().items():
        if name.startswith("pair/"):
            assert pair["final"] == whole.board.get(name)["final"]
            assert pair["blocks"] == whole.board.get(name)["blocks"]
    assert whole.table.page(descending=False, offset=0, limit=999) == pieces.table.page(
        descending=False, offset=0, limit=999
    )


def test_it_says_what_the_report_says(run: Run) -> None:
    """Verdict, ratio and level of each candidate, by the queries of the report."""
    reported = candidate_points(place_rounds([view_run(run)]))
    board = followed(run).board
    assert len(reported) == sum(1 for _ in board.named("candidate/"))
    for point in reported:
        live = board.get(f"candidate/{point.round}/{point.sha256[:12]}")
        found = (live["name"], live["verdict"], live["passed"], live["promoted"], live["flags"])
        assert found == (
            point.name,
            str(point.verdict),
            point.passed,
            point.promoted,
            list(point.flags),
        )
        assert live["ratio"] == pytest.approx(point.ratio)
        assert live["relative"] == pytest.approx(point.level)


def test_nothing_new_is_no_change(run: Run) -> None:
    """A look costs a page nothing where nothing happened."""
    follower = followed(run)
    revision = follower.board.revision
    assert not follower.advance()
    assert follower.board.since(revision) == {}


def test_a_steer_appears_before_any_round_takes_it(toy: Toy) -> None:
    """The file is read beside the journal."""
    campaign = toy.campaign(rounds=1)
    follower = Follower(campaign.run)
    follower.advance()
    assert follower.state == "interrupted"
    append_steers(campaign.run.folder / STEER_FILE, [Steer(kind="note", value="look at the tail")])
    assert follower.advance()
    assert [each["value"] for each in follower.board.named("steer/")] == ["look at the tail"]


def test_intervals_shrink_as_blocks_come_in(run: Run) -> None:
    """The last interim interval has the blocks of the final one, and is no wider than the first."""
    pairs = [pair for pair in followed(run).board.named("pair/") if pair["history"]]
    assert pairs
    for pair in pairs:
        blocks = [point[0] for point in pair["history"]]
        assert blocks == sorted(set(blocks))
        assert blocks[-1] == pair["blocks"]
        first, last = pair["history"][0], pair["history"][-1]
        assert last[3] / last[2] < first[3] / first[2]
        assert last[1] == pytest.approx(pair["final"]["ratio"], rel=0.02)


def test_a_history_stays_short() -> None:
    """However many looks there were, first and last stay."""
    pair = Pair(0.99, rounds=False)
    for number in range(3 * MOST_POINTS):
        pair.add("w", [100 + number % 3, 101], [90, 91 + number % 2])
        pair.look()
    assert len(pair.history) <= MOST_POINTS
    assert pair.history[0].blocks == 2
    assert pair.history[-1].blocks == 3 * MOST_POINTS
    few = pair.document(most=8)["history"]
    assert len(few) < 20
    assert (few[0][0], few[-1][0]) == (2, 3 * MOST_POINTS)


def test_a_wrong_candidate_is_shown_with_its_reason(toy: Toy) -> None:
    """It has a verdict and no time."""
    name = "tuned"
    device = SimulatedDevice(latency_us=toy.device.latency_us, verdicts={name: Verdict.FAIL})
    campaign = toy.campaign(device, rounds=1)
    campaign.execute()
    board = followed(campaign.run).board
    wrong = [each for each in board.named("candidate/") if each["verdict"] == "fail"]
    assert [each["name"] for each in wrong] == [name]
    assert wrong[0]["ratio"] is None
    assert wrong[0]["reason"]
    assert board.get("run")["verdicts"]["fail"] > 0


def test_another_journal_begins_anew(run: Run) -> None:
    """A page that knows the old one is told to forget it."""
    follower = followed(run)
    lines = run.journal_path.read_text().splitlines(keepends=True)
    run.journal_path.write_text("".join(lines[:3]))
    follower.advance()
    assert follower.generation == 1
    assert follower.board.get("run")["records"] == 3


def test_a_damaged_journal_is_a_problem_that_is_named(run: Run) -> None:
    """What was whole before it is shown."""
    lines = run.journal_path.read_text().splitlines(keepends=True)
    lines[len(lines) // 2] = '{"schema":1\n'
    run.journal_path.write_text("".join(lines))
    board = followed(run).board
    assert "is damaged" in board.get("run")["problem"]
    assert board.get("run")["records"] == len(lines) // 2


def test_a_record_of_another_form_is_a_problem_that_is_named(run: Run) -> None:
    """It is told where, and nothing fails."""
    text = run.journal_path.read_text()
    assert '"value":{"candidates":[' in text
    run.journal_path.write_text(text.replace('{"candidates":[', '{"candidates":1,"others":[', 1))
    follower = followed(run)
    assert "has a form that is not known" in follower.board.get("run")["problem"]


def test_a_run_that_is_removed_is_gone(run: Run) -> None:
    """And what was seen of it stays."""
    follower = followed(run)
    shutil.rmtree(run.folder)
    assert follower.advance()
    assert follower.state == "gone"
    assert any(follower.board.named("candidate/"))


def evaluated(number: int, **fields: Any) -> Evaluated:
    """A row."""
    row: dict[str, Any] = {
        "number": 0,
        "time": f"2026-11-30T00:00:{number:02d}",
        "round": 1,
        "stage": "gate",
        "candidate": f"c{number}",
        "sha256": f"{number:012x}",
        "uuid": "w",
        "axes": f"n={number}",
        "verdict": "pass",
        "phase": "check",
        "trials": 3,
        "median_us": None if number % 2 else float(number),
    }
    return Evaluated(**(row | fields))


def test_the_table_is_sorted_searched_and_cut() -> None:
    """Rows without a value come last whichever way."""
    table = EvaluationTable()
    for number in range(10):
        table.add(evaluated(number, verdict="fail" if number == 4 else "pass"))
    up = table.page(sort="median_us", descending=False, offset=0, limit=6)
    assert [row.median_us for row in up.rows] == [0.0, 2.0, 4.0, 6.0, 8.0, None]
    down = table.page(sort="median_us", descending=True, offset=4, limit=2)
    assert [row.median_us for row in down.rows] == [0.0, None]
    found = table.page(search="GATE n=4 fail", descending=False, offset=0, limit=9)
    assert ([row.candidate for row in found.rows], found.found, found.total) == (["c4"], 1, 10)
    json.dumps(found.document())


def test_a_workload_that_is_checked_again_stays_one_row() -> None:
    """Its verdict counts once."""
    table = EvaluationTable()
    table.add(evaluated(1))
    table.add(evaluated(1, verdict="fail"))
    assert len(table) == 1
    assert +table.verdicts == {"fail": 1}
    table.timed(1, "gate", f"{1:012x}", "w", 4.5)
    assert table.page(descending=False, offset=0, limit=1).rows[0].median_us == 4.5


def test_only_what_is_faster_beyond_its_interval_can_be_the_best(run: Run) -> None:
    """A low ratio with a wide interval is no best."""
    board = followed(run).board
    assert any(each["faster"] for each in board.named("candidate/"))
    lines = [block for block in live_blocks(board) if isinstance(block, str)]
    best = min(
        (each for each in board.named("candidate/") if each["faster"]),
        key=lambda each: float(each["relative"]),
    )
    assert lines[-1].startswith(f"Best so far: {best['name']} of round {best['round']}")
    for name, each in board.whole().items():
        if name.startswith("candidate/"):
            board.put(name, each | {"faster": False})
    assert "none is faster" in str(live_blocks(board)[-1])


def test_an_interval_that_says_nothing_is_not_shown() -> None:
    """Two blocks that disagree have one of many decades."""
    pair = Pair(0.99, rounds=False)
    pair.add("w", [100, 100], [20, 20])
    pair.add("w", [100, 100], [60, 60])
    assert not pair.look()
    assert pair.history == []
    for number in range(12):
        pair.add("w", [100, 100], [50 + number % 3, 50])
    assert pair.look()
