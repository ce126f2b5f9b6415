"""The script that compares the loop with other searches, on a table that is a formula."""

import gzip
import json
import math
import runpy
import statistics
from pathlib import Path
from typing import Any

import pytest
from kopt_harness.pack import read_tunables

SCRIPTS = Path(__file__).parents[2] / "scripts"
SCRIPT = SCRIPTS / "controller_value.py"
BEST = {"TILE": 8, "UNROLL": 4}


def _settings(folder: Path, *chosen: str) -> list[dict[str, Any]]:
    """All settings of a folder, as the recording script lists them."""
    script = runpy.run_path(str(SCRIPTS / "settings_table.py"))
    return list(script["settings_of"](read_tunables(folder), chosen))


@pytest.fixture
def given(toy: Any, tmp_path: Path) -> tuple[dict[str, Any], Any]:
    """The script, and the table of ``tuned``: best at TILE 8 and UNROLL 4, one setting broken."""
    script = runpy.run_path(str(SCRIPT))
    folder = toy.root.kernels / "toy_op_n" / "solutions" / "tuned"
    lines = []
    for settings in _settings(folder):
        away = sum(abs(settings[name] - best) for name, best in BEST.items())
        us = {f"0000000{i}-toy": 10.0 + 2 * away + i for i in range(4)}
        broken = settings == {"TILE": 16, "UNROLL": 8}
        lines.append(json.dumps({"settings": settings, "us": None if broken else us}))
    table = tmp_path / "table.jsonl"
    table.write_text("\n".join(lines) + "\n")
    return script, script["problem"](toy.root.path, "toy", "tuned", table, "cpu")


def test_every_method_finds_the_best(given: tuple[dict[str, Any], Any]) -> None:
    """Within the size of the table; the same seed gives the same count."""
    script, problem = given
    assert len(problem.points) == 20
    for method in (script["by_random"], script["by_kopt"]):
        counts = [method(problem, seed) for seed in range(2)]
        assert all(1 <= count <= 20 for count in counts)
        assert method(problem, 1) == counts[1]


def test_parts_can_be_switched_off(given: tuple[dict[str, Any], Any]) -> None:
    """Without memory or a direction it still finds the best, and measures nothing twice."""
    script, problem = given
    for without in ("memory", "directions"):
        walked = script["walk"](problem, 0, without=without)
        names = [json.dumps(point.settings) for point in walked.settings]
        assert len(names) == len(set(names))
        assert walked.found_at <= len(names)
        assert walked.settings[walked.found_at - 1].mean_us <= problem.goal_us


def test_every_seed_may_start_elsewhere(given: tuple[dict[str, Any], Any]) -> None:
    """In the middle half of the table, and the loop does start there; else at the defaults."""
    script, problem = given
    drawn = problem._replace(anywhere=True)
    starts = [script["start_of"](drawn, seed) for seed in range(8)]
    assert len({json.dumps(each) for each in starts}) > 2
    middle = sorted(problem.points, key=lambda point: point.mean_us)[5:15]
    assert all(each in [point.settings for point in middle] for each in starts)
    assert script["walk"](drawn, 3).settings[0].settings == starts[3]
    assert script["start_of"](problem, 3) is None
    assert script["walk"](problem, 3).settings[0].settings == {"TILE": 1, "UNROLL": 1}


def test_a_dispatcher_wins_what_two_settings_share(given: tuple[dict[str, Any], Any]) -> None:
    """Where one setting is best everywhere there is nothing to win."""
    script, problem = given
    assert script["dispatch_gain"](problem, problem.points) == pytest.approx(0)
    first = problem.points[0]
    halves = {uuid: 1.0 if i < 2 else 100.0 for i, uuid in enumerate(first.us)}
    other = {uuid: 3.0 if i < 2 else 10.0 for i, uuid in enumerate(first.us)}
    points = [p._replace(us=halves, mean_us=50.5) for p in problem.points]
    points[5:] = [p._replace(us=other, mean_us=6.5) for p in points[5:]]
    mixed = problem._replace(points=tuple(points))
    assert script["dispatch_gain"](mixed, mixed.points) == pytest.approx(1 - 5.5 / 6.5)
    assert script["dispatch_gain"](mixed, mixed.points[:5]) == pytest.approx(0)


def test_a_table_may_be_compressed_and_bounds_its_defaults(
    given: tuple[dict[str, Any], Any], tmp_path: Path
) -> None:
    """A knob that never had its default there gets another one, within the table."""
    script, problem = given
    rows = [{"settings": p.settings, "us": p.us} for p in problem.points if p.settings["TILE"] > 2]
    table = tmp_path / "some.jsonl.gz"
    table.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    some = script["problem"](problem.root, "toy", "tuned", table, "cpu")
    walked = script["walk"](some, 0)
    assert walked.settings[0].settings == {"TILE": 8, "UNROLL": 1}


def test_a_broken_setting_is_never_good(given: tuple[dict[str, Any], Any]) -> None:
    """It counts as far slower than the slowest that works."""
    _, problem = given
    slowest = sorted(point.mean_us for point in problem.points)
    assert slowest[-1] > 5 * slowest[-2]
    assert problem.goal_us < slowest[1]


def test_the_comparison_names_what_is_not_there(given: tuple[dict[str, Any], Any]) -> None:
    """Another tuner that is not installed is null, not zero."""
    script, problem = given
    document = script["compare"](problem, 2)
    assert (document["points"], document["good"], document["seeds"]) == (20, 1, 2)
    tpe = document["methods"]["optuna TPE"]
    assert tpe is None or len(tpe["evaluations"]) == 2
    assert {"kopt", "random"} <= set(document["methods"])


def test_a_table_of_some_knobs_bounds_the_loop(toy: Any, tmp_path: Path) -> None:
    """The others stay at their defaults, for the loop as for the others."""
    script = runpy.run_path(str(SCRIPT))
    folder = toy.root.kernels / "toy_op_n" / "solutions" / "tuned"
    rows = [
        {"settings": s, "us": {f"0000000{i}-toy": 20.0 - s["TILE"] for i in range(4)}}
        for s in _settings(folder, "UNROLL=1")
    ]
    assert [row["settings"]["UNROLL"] for row in rows] == [1] * 5
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    problem = script["problem"](toy.root.path, "toy", "tuned", table, "cpu")
    assert 1 < script["by_kopt"](problem, 0) <= 5


def test_what_the_machine_did_is_taken_out_of_a_table() -> None:
    """Slow stretches of every pass, of one group alone, leave the order of settings as it is."""
    script = runpy.run_path(str(SCRIPTS / "settings_table.py"))
    count, passes = 60, 5
    true_us = [100.0 + i for i in range(count)]
    groups = [i % 2 for i in range(count)]
    rows: list[dict[str, list[float]]] = [{"w": []} for _ in range(count)]
    for number in range(passes):
        for at, i in enumerate(script["order_of"](rows, number)):
            is_slow = groups[i] == 1 and (at // 15 + number) % 2 == 0
            rows[i]["w"].append(true_us[i] * (1.6 if is_slow else 1.0))
    found = [us["w"] for us in script["settled"](rows, groups)]
    raw = [statistics.median(row["w"]) for row in rows]
    errors, raw_errors = (
        sorted(abs(math.log(us / true)) for us, true in zip(each, true_us, strict=True))
        for each in (_scaled(found, true_us), _scaled(raw, true_us))
    )
    assert errors[count // 2] < 0.05
    assert errors[count // 2] < raw_errors[-count // 4] / 3
    assert script["settled"]([None, *rows[1:]], groups)[0] is None


def _scaled(found: list[float], true_us: list[float]) -> list[float]:
    """A table is of ratios: its level is free."""
    level = statistics.median(math.log(us / true) for us, true in zip(found, true_us, strict=True))
    return [us / math.exp(level) for us in found]
