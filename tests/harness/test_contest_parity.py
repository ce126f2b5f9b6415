"""The contest tier gives the verdicts of FlashInfer-Bench: against recorded cases.

tests/harness/data/contest_*.json hold small outputs and what the package's evaluators said of
them, with its version and commit; scripts/record_contest_cases.py writes them. One deviation
is deliberate: where the reference is not finite, kopt says ``invalid``.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from kopt_harness.check import contest_output
from kopt_harness.schema import ContestTolerance, Definition, TierResult

REPOSITORY = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
TOPK = "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64"
ATTENTION = "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"
Case = dict[str, Any]


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


record = _module(REPOSITORY / "scripts" / "record_contest_cases.py")


def _recorded(kind: str) -> list[Case]:
    document = json.loads((DATA / f"contest_{kind}.json").read_text())
    cases: list[Case] = document["cases"]
    return cases


def _named(kind: str) -> Any:
    cases = _recorded(kind)
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])


def _tolerance(case: Case, ratio: float = 1.0) -> ContestTolerance:
    given = case.get("required_matched_ratio")
    return ContestTolerance(
        atol=case["atol"],
        rtol=case["rtol"],
        required_matched_ratio=ratio if given is None else given,
    )


def _compare(name: str, case: Case, inputs: Any, expected: Any, actual: Any) -> TierResult:
    """The contest tier of a definition of the project, under the case's tolerance."""
    folder = REPOSITORY / "kernels" / name
    definition = Definition.model_validate_json((folder / "definition.json").read_text())
    kopt = definition.kopt.model_copy(update={"contest": _tolerance(case)})
    changed = definition.model_copy(update={"kopt": kopt})
    result = _module(folder / "check.py").compare("contest", changed, inputs, expected, actual)
    assert isinstance(result, TierResult)
    return result


@pytest.mark.parametrize("kind", sorted(record.RECORDERS))
def test_every_recording_names_its_source(kind: str) -> None:
    """Version, full commit and day of the package are in each file."""
    source = json.loads((DATA / f"contest_{kind}.json").read_text())["source"]
    assert source["package"] == "flashinfer-bench"
    assert len(source["commit"]) == 40
    assert source["version"]
    assert source["commit_date"]


@pytest.mark.parametrize("table", _recorded("elements"), ids=str)
def test_single_elements_at_the_border(table: Case) -> None:
    """On both sides of each tolerance, to the last bit, an element is judged as officially."""
    tolerance = _tolerance(table)
    for expected, actual, accepted in table["elements"]:
        pair = [record.expand([[value, 1]], table["dtype"]) for value in (expected, actual)]
        finding = contest_output("output", *pair, tolerance)
        assert finding.error.ok == accepted, (expected, actual)


@_named("outputs")
@pytest.mark.parametrize(("evaluator", "ratio"), [("default", 1.0), ("lowbit", 0.95)])
def test_whole_outputs(case: Case, evaluator: str, ratio: float) -> None:
    """Shares of wrong elements and special values; without a ratio each evaluator has its own."""
    sides = [record.expand(case[s], case["dtype"], case["shape"]) for s in ("expected", "actual")]
    finding = contest_output("output", *sides, _tolerance(case, ratio))
    if not bool(sides[0].isfinite().all()):
        assert finding.invalid
        return
    assert finding.error.ok == (case["status"][evaluator] == "PASSED")


@_named("attention")
def test_attention(case: Case) -> None:
    """``lse`` may be left out in this tier, but not be wrong; no output may be infinite."""
    expected = dict(zip(("output", "lse"), record.attention(case, "expected"), strict=True))
    given = record.attention(case, "actual")
    if len(given) not in (1, 2):
        assert case["status"] == "INCORRECT_SHAPE"  # kopt refuses the form before it compares
        return
    actual = dict(zip(("output", "lse"), given, strict=False))
    result = _compare(ATTENTION, case, {}, expected, actual)
    finite = all(bool(tensor.isfinite().all()) for tensor in expected.values())
    if finite or case["status"] != "PASSED":
        assert (result.verdict == "pass") == (case["status"] == "PASSED")
    else:
        assert result.verdict == "invalid"


@_named("topk")
def test_selections(case: Case) -> None:
    """Validity of tokens, ranks of scores and the share that may be wrong."""
    inputs = record.topk_inputs(case)
    sides = [
        {"topk_indices": torch.tensor(case[side], dtype=torch.int32)}
        for side in ("expected", "actual")
    ]
    result = _compare(TOPK, case, inputs, *sides)
    assert (result.verdict == "pass") == (case["status"] == "PASSED")


@pytest.mark.parametrize("kind", sorted(record.RECORDERS))
def test_an_installed_package_still_says_the_same(kind: str) -> None:
    """Where FlashInfer-Bench is installed, it repeats what was recorded of it."""
    pytest.importorskip("flashinfer_bench.bench.evaluators.dsa_topk_indexer")
    recorded = json.loads(json.dumps(record.RECORDERS[kind](record.Official())))
    assert recorded == _recorded(kind)


@pytest.mark.parametrize("name", [ATTENTION, TOPK, "gdn_decode", "gdn_prefill", "moe_fp8"])
def test_the_tolerances_are_those_of_the_contests_commands(name: str) -> None:
    """EVALUATION.md of the starter kit (076bd23, 2026-03-25) loosens the expert layer alone."""
    (folder,) = (REPOSITORY / "kernels").glob(f"{name}*")
    definition = Definition.model_validate_json((folder / "definition.json").read_text())
    loose = ContestTolerance(atol=1.0, rtol=0.3, required_matched_ratio=0.9)
    expected = loose if name == "moe_fp8" else ContestTolerance(atol=1e-2, rtol=1e-2)
    assert definition.kopt.contest == expected
