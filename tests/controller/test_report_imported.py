"""Imported results in reports: the figures of the files, by the definitions that give them."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.cli import main

RESULTS = Path(__file__).parents[3] / "shared" / "data" / "results"


@pytest.mark.skipif(not RESULTS.is_dir(), reason="the shared result files are not here")
def test_imported_tables_have_the_figures_of_the_files(
    toy: Any, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Means, medians and P95, which the files take at the rounded place 0.95 (n - 1)."""
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "kernels").symlink_to(checkout / "kernels")
    root = ["--root", str(folder)]
    assert main([*root, "import", str(RESULTS)]) == 0
    assert main([*root, "report", "--csv", str(tmp_path / "csv"), "-q"]) == 0
    capsys.readouterr()
    with (tmp_path / "csv" / "imported-runs.csv").open(newline="") as stream:
        runs = {row["file"]: row for row in csv.DictReader(stream)}
    names = {
        "mean_us": ("avg_latency_ms", 1e3),
        "median_us": ("median_latency_ms", 1e3),
        "p95_place_us": ("p95_latency_ms", 1e3),
        "reference_mean_us": ("avg_reference_latency_ms", 1e3),
        "reference_median_us": ("median_reference_latency_ms", 1e3),
        "mean_speedup": ("avg_speedup_factor", 1.0),
        "median_speedup": ("median_speedup_factor", 1.0),
        "p95_place_speedup": ("p95_speedup_factor", 1.0),
    }
    files = sorted(RESULTS.glob("*.retained_run.json"))
    assert files
    for path in files:
        (stated,) = json.loads(path.read_text())["summary"].values()
        for column, (name, scale) in names.items():
            found = float(runs[path.name][column])
            assert found == pytest.approx(stated[name] * scale, rel=1e-12), (path.name, name)
    with (tmp_path / "csv" / "imported-claims.csv").open(newline="") as stream:
        claims = list(csv.DictReader(stream))
    assert {row["verdict"] for row in claims} == {"agrees"}
    by = {row["by"] for row in claims if row["figure"].startswith("p95")}
    assert by == {"nearest place", "nearest rank and nearest place"}


def test_a_claim_that_does_not_follow_is_called_so(
    toy: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stated mean that is not that of the entries differs."""
    entries = {f"0000000{n}-toy": {"status": "PASSED", "latency_ms": 1.0 + n} for n in range(3)}
    document = {
        "results": {"toy_op_n": entries},
        "summary": {"toy_op_n": {"avg_latency_ms": 1.5, "median_latency_ms": 2.0}},
    }
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(document))
    root = ["--root", str(toy.root.path)]
    assert main([*root, "import", str(path)]) == 0
    assert main([*root, "report", "--csv", str(tmp_path / "csv")]) == 0
    capsys.readouterr()
    with (tmp_path / "csv" / "imported-claims.csv").open(newline="") as stream:
        verdicts = {row["figure"]: row["verdict"] for row in csv.DictReader(stream)}
    assert verdicts == {"avg_latency_ms": "differs", "median_latency_ms": "agrees"}


@pytest.fixture
def checkout() -> Path:
    """The repository."""
    return Path(__file__).parents[2]
