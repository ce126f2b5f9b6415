"""The comparison with FlashInfer-Bench: its page follows from its recorded results."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
RECORDED = REPOSITORY / "docs" / "against-flashinfer-bench.json"


def _render(document: dict[str, Any]) -> str:
    module = runpy.run_path(str(REPOSITORY / "scripts" / "flashinfer_bench_page.py"))
    page: str = module["render"](document)
    return page


def _recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(RECORDED.read_text())
    return document


def test_the_page_is_made_of_the_recorded_results() -> None:
    """Nobody has written into it by hand."""
    assert RECORDED.with_suffix(".md").read_text() == _render(_recorded())


def test_what_was_not_run_is_not_said() -> None:
    """Without a run on a GPU, and without one of kopt, the cells say so."""
    document = _recorded()
    row = document["attacks"][0]
    status = {"status": "PASSED", "version": "1", "commit": None}
    row |= {"id": "x01-made", "official": {"cpu": status}, "kopt": None}
    line = next(ln for ln in _render(document).splitlines() if ln.startswith("| `x01-made`"))
    assert [cell.strip() for cell in line.split("|")][3:6] == ["PASSED", "not run", "not run"]


def test_a_latency_is_shown_where_there_is_one() -> None:
    """With two decimals and its unit, beside the status."""
    document = _recorded()
    row = document["attacks"][0]
    timed = {"status": "PASSED", "latency_us": 4.567}
    row |= {"id": "x01-made", "official": {"gpu": timed}}
    line = next(ln for ln in _render(document).splitlines() if ln.startswith("| `x01-made`"))
    assert "PASSED, 4.57 µs" in line
    assert "| not run |" in line


def test_every_row_of_wrong_outputs_shows_the_gap() -> None:
    """FlashInfer-Bench accepted each of them, and the strict tier none."""
    outputs = _recorded()["outputs"]
    assert outputs
    for row in outputs:
        assert row["status"] == "PASSED", row["id"]
        assert row["strict"] != "pass", row["id"]
        assert row["contest"] == ("invalid" if row["id"] == "nan-reference" else "pass"), row["id"]
