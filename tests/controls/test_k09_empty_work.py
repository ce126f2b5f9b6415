"""K09: almost no work takes almost no time, and is believed."""

from __future__ import annotations

import json
from pathlib import Path

from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import evaluate
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.root import Root
from kopt_harness.schema import BuildSpec, Solution, SourceFile
from kopt_harness.setting import Setting

DEFINITION = {
    "name": "gather_rows_n",
    "description": "copies the first element of each of n rows",
    "op_type": "toy",
    "axes": {"n": {"type": "var"}},
    "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
    "kopt": {
        "alias": "gather_rows",
        "strict": {"y": {"rel": 1e-6, "source": "a copy"}},
        "regime_axes": ["n"],
    },
}
REFERENCE = """
def precise(x):
    return (x.clone(),)
"""
INPUTS = """
from typing import Any, NamedTuple

import torch


class Generator(NamedTuple):
    name: str
    kind: str
    draw: Any


def draw(axes, rng):
    return {"x": 1 + torch.rand(axes["n"], generator=rng)}


GENERATORS = {"typical": Generator("typical", "contest", draw)}
"""
COST = """
def compulsory_bytes(axes):
    return 8 * axes["n"]


def flops(axes):
    return 0
"""
KERNEL = """
from kopt_harness.simulated import launch

def run(x, y):
    launch(lambda: y.copy_(x), name="copy", ns=1)
"""


def make_root(folder: Path) -> Root:
    """A root with the one definition, and a workload of a single element."""
    place = folder / "kernels" / DEFINITION["name"]
    place.mkdir(parents=True)
    (place / "definition.json").write_text(json.dumps(DEFINITION))
    (place / "workloads.jsonl").write_text(json.dumps({"uuid": "one", "axes": {"n": 1}}) + "\n")
    for name, text in (("reference", REFERENCE), ("inputs", INPUTS), ("cost", COST)):
        (place / f"{name}.py").write_text(text)
    return Root(folder)


def test_a_nanosecond_is_believed_where_there_is_nothing_to_do(tmp_path) -> None:
    """Eight bytes: neither the floor nor a clock contradicts a nanosecond."""
    catalog = Catalog(make_root(tmp_path))
    definition = catalog.resolve("gather_rows")
    spec = BuildSpec(
        language="python", target_hardware=("simulated",), entry_point="kernel.py::run"
    )
    solution = Solution(
        name="copy",
        definition=definition.name,
        author="tests",
        spec=spec,
        sources=(SourceFile(path="kernel.py", content=KERNEL),),
    )
    setting = Setting.here(catalog, "simulated", MeasureOptions(trials=1, pool=2, bench_calls=4))
    workloads = catalog.workloads(definition)
    evaluation = evaluate(setting, solution, workloads, DictLedger(), timed=True)
    assert evaluation.verdict == "pass", evaluation.reasons
    assert {flag.code for flag in evaluation.flags} <= {"simulated-device", "lint-harness"}
    (row,) = evaluation.workloads
    assert row.timing is not None
    assert row.timing["samples_ns"] == [1, 1, 1, 1]
