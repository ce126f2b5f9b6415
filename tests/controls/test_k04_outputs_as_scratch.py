"""Outputs that are written in several passes, and inputs that an operator works on in place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import evaluate
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.root import Root
from kopt_harness.setting import Setting

ROOT = Path(__file__).parents[2]
DEFINITION = "gdn_decode_qk4_v8_d128_k_last"


def test_outputs_may_be_used_as_scratch(passes) -> None:
    """They are the solution's own until it returns."""
    passes("k04-outputs-as-scratch", 0, 10)


@pytest.mark.parametrize("mutable", [True, False])
def test_inputs_may_be_written_to_where_the_definition_says_so(
    tmp_path: Path, honest: str, mutable: bool
) -> None:
    """An operator in place passes, timed and with moved tensors; without the word it is wrong."""
    folder = tmp_path / "kernels" / DEFINITION
    folder.mkdir(parents=True)
    for entry in (ROOT / "kernels" / DEFINITION).iterdir():
        if entry.name not in ("definition.json", "peers"):
            (folder / entry.name).symlink_to(entry)
    definition = json.loads((ROOT / "kernels" / DEFINITION / "definition.json").read_text())
    definition["kopt"]["mutable_inputs"] = ["state"] if mutable else []
    (folder / "definition.json").write_text(json.dumps(definition))
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    catalog = Catalog(Root(tmp_path))
    in_place = "new_state.copy_(fresh)\n    if state is not None: state.copy_(fresh)"
    source = honest.replace("new_state.copy_(fresh)", in_place)
    assert source != honest
    plain = catalog.solution(catalog.resolve("gdn_decode"), "torch-vectorized").solution
    file = plain.sources[0].model_copy(update={"content": source})
    solution = plain.model_copy(update={"sources": (file,)})
    setting = Setting.here(catalog, "cpu", MeasureOptions(trials=2, pool=2, bench_calls=4))
    workloads = catalog.workloads(catalog.resolve("gdn_decode"))[:1]
    found = evaluate(setting, solution, workloads, DictLedger(), timed=True)
    if mutable:
        assert found.verdict == "pass", found.reasons
        assert not found.flags
    else:
        assert [reason.code for reason in found.reasons] == ["input-modified"]
