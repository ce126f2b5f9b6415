"""``kopt calibrate --timing``: a solution against itself, on a toy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_controller.cli import main
from kopt_harness.noise import NoiseFloor

DEFINITION: dict[str, Any] = {
    "name": "toy_scale",
    "description": "scales rows",
    "op_type": "toy",
    "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 16}},
    "inputs": {"x": {"shape": ["rows", "width"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["rows", "width"], "dtype": "float32"}},
    "kopt": {"alias": "toy", "strict": {"y": {"rel": 1e-5, "source": "one rounding"}}},
}
REFERENCE = """
def precise(x):
    return ((3.0 * x.double()).float(),)
"""
INPUTS = """
from collections import namedtuple

import torch

Generator = namedtuple("Generator", "name kind draw")


def _typical(axes, rng):
    return {"x": torch.randn(axes["rows"], axes["width"], generator=rng, device=rng.device)}


GENERATORS = {"typical": Generator("typical", "contest", _typical)}
"""
COST = """
def compulsory_bytes(axes):
    return 128 * axes["rows"]


def flops(axes):
    return 16 * axes["rows"]
"""
SOLUTION = """
[solution]
name = "plain"
definition = "toy_scale"
author = "tests"

[build]
language = "python"
entry_point = "kernel.py::run"
target_hardware = ["cpu"]
"""
SOURCE = """
import time


def run(x, y):
    y.copy_(3.0 * x)
    end = time.perf_counter() + {seconds}
    while time.perf_counter() < end:
        pass
"""
CONFIG = """
[measure]
pool = 1
blocks_min = 2
blocks_max = 6
"""


class Ran(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root with the toy and a solution that takes 3 ms."""
    folder = tmp_path / "kernels" / "toy_scale"
    code = folder / "solutions" / "plain" / "solution" / "python"
    code.mkdir(parents=True)
    (folder / "definition.json").write_text(json.dumps(DEFINITION))
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "inputs.py").write_text(INPUTS)
    (folder / "cost.py").write_text(COST)
    (folder / "retained.toml").write_text('[cpu]\nsolution = "plain"\n')
    rows = [{"uuid": f"toy-{n}", "axes": {"rows": n}} for n in (3,)]
    (folder / "workloads.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "solutions" / "plain" / "config.toml").write_text(SOLUTION)
    (code / "kernel.py").write_text(SOURCE.format(seconds=0.003))
    (tmp_path / "few.toml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def run(place: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Calls ``kopt`` in it."""

    def call(*words: str) -> Ran:
        code = main(["--root", str(place), "--config", str(place / "few.toml"), *words])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.mark.alone
def test_a_calibration_stores_the_margin_of_later_comparisons(place: Path, run: Run) -> None:
    """Counts, bounds, floor; and a comparison says that its margin is the floor."""
    kept = place / "kept"
    words = ("calibrate", "toy", "--timing", "--workload", "0", "--target", "cpu")
    few = ("--comparisons", "5", "--resamples", "40", "--out-dir", str(kept))
    slow = ("--slowdown", "900", "--slow-comparisons", "1")
    ran = run("--json", *words, *few, *slow)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert (document["definition"], document["target"]) == ("toy_scale", "cpu")
    live = document["live"]
    assert live["comparisons"] == 5
    assert sum(live[name] for name in ("faster", "slower", "same", "ambiguous")) == 5
    if live["faster"] == 0:
        assert live["faster_upper_95"] == pytest.approx(1 - 0.05**0.2)
    assert document["resampled"]["comparisons"] == 40
    assert document["floor"]["regimes"]
    (slowed,) = document["slowdowns"]
    assert (slowed["extra_work"], slowed["decisions"]["comparisons"]) == (9.0, 1)
    assert slowed["power"] == slowed["decisions"]["slower"]
    assert 4 < slowed["median_ratio"] < 25

    (stored,) = (place / "artifacts" / "local" / "noise").rglob("*.json")
    floor = NoiseFloor.model_validate_json(stored.read_bytes())
    assert floor.model_dump(mode="json") == document["floor"]
    assert document["margin"] == max(0.002, floor.floor)

    units = (kept / "journal.jsonl").read_text()
    again = run(*words, *few, *slow, "--resume")
    assert again.code == 0, again.err
    assert (kept / "journal.jsonl").read_text() == units, "nothing is measured twice"
    assert "noise floor" in again.out
    assert "900.0% more work" in again.out

    plain = str(place / "kernels" / "toy_scale" / "solutions" / "plain")
    compared = run("--json", "compare", plain, plain, "--workload", "0")
    comparison = json.loads(compared.out)
    assert comparison["margin"] == document["margin"]
    assert comparison["margin_source"] == "noise-floor"


def test_a_solution_that_is_wrong_is_not_calibrated(place: Path, run: Run) -> None:
    """Its times say nothing."""
    code = place / "kernels" / "toy_scale" / "solutions" / "plain" / "solution" / "python"
    (code / "kernel.py").write_text("def run(x, y):\n    y.copy_(2.0 * x)\n")
    ran = run("calibrate", "toy", "--timing", "--target", "cpu", "--comparisons", "1")
    assert ran.code == 2
    assert "cannot be compared with itself" in ran.err
    assert not (place / "artifacts" / "local" / "noise").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--comparisons", "3"), "--comparisons"),
        (("--slowdown", "5"), "--slowdown"),
        (("--solution", "x"), "--solution"),
        (("--timing", "--slowdown", "-5"), "-5.0"),
        (("--timing", "--generator", "typical"), "--generator"),
    ],
)
def test_options_that_have_no_meaning_are_refused(
    run: Run, words: tuple[str, ...], named: str
) -> None:
    """Before anything is measured."""
    ran = run("calibrate", "toy", "--target", "cpu", *words)
    assert ran.code == 2
    assert named in ran.err
