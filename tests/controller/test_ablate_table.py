"""The ablation on a recorded table: what is found is what the table says, the same every time."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from kopt_harness.pack import read_tunables

SCRIPTS = Path(__file__).parents[2] / "scripts"
Toy = Any


@pytest.fixture
def document(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Of a table in which TILE 16 is best for the large half, and TILE 2 for the small one."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    folder = toy.root.kernels / "toy_op_n" / "solutions" / "tuned"
    settings = runpy.run_path(str(SCRIPTS / "settings_table.py"))["settings_of"]
    lines = []
    for each in settings(read_tunables(folder), ["UNROLL=1"]):
        us = {f"0000000{i}-toy": 10.0 + abs(each["TILE"] - (2 if i < 2 else 16)) for i in range(4)}
        lines.append(json.dumps({"settings": each, "us": us}))
    table = tmp_path / "table.jsonl"
    table.write_text("\n".join(lines) + "\n")
    script = runpy.run_path(str(SCRIPTS / "ablate_table.py"))
    given = script["problem"](toy.root.path, "toy", "tuned", table, "cpu")._replace(noise=0.002)
    monkeypatch.delitem(sys.modules, "controller_value", raising=False)
    found: dict[str, Any] = script["ablate"](given, 2, 2, 2)
    return found


def test_an_ablation_on_a_table_reaches_what_the_table_has(document: dict[str, Any]) -> None:
    """One setting cannot be better than the best of the table; a dispatcher of two can."""
    assert document["complete"]
    rows = {(row["arm"], row["scope"]): row for row in document["arms"]}
    start = (10 + 1) * 2 + (10 + 15) * 2
    best = min(2 * (10 + abs(t - 2)) + 2 * (10 + abs(t - 16)) for t in (1, 2, 4, 8, 16)) / start

    def reached(arm: str) -> float:
        return min(float(each["ratio"]) for each in rows[arm, "whole"]["results"])

    for arm in ("goal-only", "+memory", "+directions"):
        assert best * 0.98 < reached(arm) <= 1.02
    assert reached("full") == pytest.approx(4 * 10 / start, rel=0.02)
    assert not rows["+skills", "whole"]["applies"]
