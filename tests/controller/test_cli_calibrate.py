"""``kopt calibrate``: exit codes, documents, and going on after a stop."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_controller.cli import main

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


def _large(axes, rng):
    return {"x": 1e6 * _typical(axes, rng)["x"]}


GENERATORS = {
    "typical": Generator("typical", "contest", _typical),
    "large": Generator("large", "stress", _large),
}
"""
COST = """
def compulsory_bytes(axes):
    return 128 * axes["rows"]


def flops(axes):
    return 16 * axes["rows"]
"""


class Ran(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as the one JSON document that it must be."""
        found: dict[str, Any] = json.loads(self.out)
        return found


class Place(NamedTuple):
    """A root with the toy, and a way to call ``kopt`` in it."""

    root: Path
    run: Callable[..., Ran]

    def write(self, rel: float = 1e-5) -> None:
        """The definition, with a bound."""
        data = json.loads(json.dumps(DEFINITION))
        data["kopt"]["strict"]["y"]["rel"] = rel
        (self.root / "kernels" / "toy_scale" / "definition.json").write_text(json.dumps(data))

    def units(self, folder: Path) -> list[str]:
        """Keys of what a journal holds."""
        lines = (folder / "journal.jsonl").read_text().splitlines()
        return [json.loads(line)["key"] for line in lines]


@pytest.fixture
def place(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Place:
    """Two workloads."""
    folder = tmp_path / "kernels" / "toy_scale"
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "inputs.py").write_text(INPUTS)
    (folder / "cost.py").write_text(COST)
    rows = [{"uuid": f"toy-{n}", "axes": {"rows": n}} for n in (3, 8)]
    (folder / "workloads.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")

    def run(*words: str) -> Ran:
        code = main(["--root", str(tmp_path), *words])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    made = Place(tmp_path, run)
    made.write()
    return made


def test_valid_workloads_exit_0_with_what_was_recognised(place: Place) -> None:
    """For a program, and for a person."""
    words = ("calibrate", "toy", "--workload", "all", "--target", "cpu")
    ran = place.run(*words, "--json")
    assert ran.code == 0
    document = ran.document
    assert document["schema"] == 1
    assert document["definition"] == "toy_scale"
    assert document["verdict"] == "pass"
    assert [w["uuid"] for w in document["workloads"]] == ["toy-3", "toy-8"]
    for workload in document["workloads"]:
        assert [g["generator"] for g in workload["generators"]] == ["typical", "large"]
        nulls = {n["name"]: n["strict"] for n in workload["generators"][0]["nulls"]}
        assert nulls["zeros:y"] == nulls["input-x:y"] == nulls["scaled:y"] == "fail"
    assert document["without_influence"] == []
    assert document["environment"]["cores"] >= 1
    shown = place.run(*words, "--generator", "typical")
    assert shown.code == 0
    assert "toy-3" in shown.out
    assert "valid" in shown.out
    assert "journal:" in shown.err


def test_a_workload_that_accepts_a_null_kernel_exits_3(place: Place) -> None:
    """The null kernel and the generator are named."""
    place.write(rel=2.0)
    ran = place.run("calibrate", "toy", "--workload", "0", "--target", "cpu", "--json")
    assert ran.code == 3
    (workload,) = ran.document["workloads"]
    assert workload["verdict"] == "invalid"
    details = [r["detail"] for r in workload["reasons"] if r["code"] == "null-kernel-passes"]
    assert any("typical" in detail and "zeros:y" in detail for detail in details)
    shown = place.run("calibrate", "toy", "--workload", "0", "--target", "cpu")
    assert shown.code == 3
    assert "null-kernel-passes" in shown.out


def test_a_calibration_goes_on_where_it_was_stopped(place: Place, tmp_path: Path) -> None:
    """What is complete is not run again, unless the definition has changed."""
    folder = tmp_path / "kept"
    words = ("calibrate", "toy", "--target", "cpu", "--out-dir", str(folder))
    assert place.run(*words, "--workload", "0", "--generator", "typical").code == 0
    first = place.units(folder)
    assert len(first) == 1
    refused = place.run(*words, "--workload", "all")
    assert refused.code == 2
    assert "--resume" in refused.err
    assert place.run(*words, "--workload", "all", "--resume").code == 0
    assert place.units(folder)[:1] == first
    assert len(place.units(folder)) == 4
    place.write(rel=2e-5)
    assert place.run(*words, "--workload", "0", "--generator", "typical", "--resume").code == 0
    assert len(place.units(folder)) == 5


def test_what_does_not_exist_is_refused_with_what_does(place: Place) -> None:
    """A generator, and a journal."""
    ran = place.run("calibrate", "toy", "--target", "cpu", "--generator", "missing")
    assert ran.code == 2
    assert "'missing'" in ran.err
    assert "typical, large" in ran.err
    ran = place.run("calibrate", "toy", "--target", "cpu", "--out-dir", "nowhere", "--resume")
    assert ran.code == 2
    assert "no journal" in ran.err
