"""Calibration finds what cannot tell right from wrong, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from kopt_harness.calibrate import Calibration, GeneratorCalibration, WorkloadCalibration
from kopt_harness.check.null_kernels import Given, declared, differs, null_kernels
from kopt_harness.schema import Definition, Verdict
from kopt_harness.worker.calibrating import FULL_COMPARE_BYTES, calibrate
from kopt_harness.worker.pool import Pool, load_module

KERNELS = Path(__file__).parents[2] / "kernels"
TOPK = "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64"
DEFINITION: dict[str, Any] = {
    "name": "toy_scale",
    "description": "scales rows and sums them up",
    "op_type": "toy",
    "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 16}},
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "float32"},
        "w": {"shape": ["width"], "dtype": "float32"},
        "unused": {"shape": ["width"], "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["rows", "width"], "dtype": "bfloat16"},
        "total": {"shape": ["rows"], "dtype": "float32"},
    },
    "kopt": {
        "alias": "toy",
        "strict": {
            "y": {"rel": 4e-3, "source": "one rounding to bfloat16"},
            "total": {"rel": 1e-5, "source": "sums in float32"},
        },
    },
}
REFERENCE = """
import torch

def precise(x, w, unused):
    y = 3.0 * x.double() * w.double()
    return y.float(), y.sum(1).float()
"""
INPUTS = """
from collections import namedtuple

import torch

Generator = namedtuple("Generator", "name kind draw")


def _typical(axes, rng):
    return {
        "x": torch.randn(axes["rows"], axes["width"], generator=rng),
        "w": torch.randn(axes["width"], generator=rng),
        "unused": torch.randn(axes["width"], generator=rng),
    }


def _sparse(axes, rng):
    values = _typical(axes, rng)
    values["x"][1:] = 0.0
    return values


GENERATORS = {
    "typical": Generator("typical", "contest", _typical),
    "sparse": Generator("sparse", "stress", _sparse),
}


def vary(values, expected, axes, rng):
    values["x"].neg_()
    expected["y"].neg_()
    expected["total"].neg_()
"""

PER_OUTPUT = (
    "before-variation",
    "constant",
    "first-rows-then-poison",
    "first-rows-then-zeros",
    "last-call",
    "missing",
    "one-element-wrong",
    "scaled",
    "stale",
    "tiny-rows-as-zeros",
    "zeros",
)
"""Null kernels that each output has."""

Calibrate = Callable[..., GeneratorCalibration]


@pytest.fixture
def calibrated(tmp_path: Path) -> Calibrate:
    """Calibrates the toy, with parts of it replaced."""

    def run(
        *,
        reference: str = REFERENCE,
        inputs: str = INPUTS,
        rel: dict[str, float] | None = None,
        generator: str = "typical",
        rows: int = 5,
    ) -> GeneratorCalibration:
        data = json.loads(json.dumps(DEFINITION))
        for output, bound in (rel or {}).items():
            data["kopt"]["strict"][output]["rel"] = bound
        (tmp_path / "reference.py").write_text(reference)
        (tmp_path / "inputs.py").write_text(inputs)
        definition = Definition.model_validate(data)
        pool = Pool(tmp_path, definition, "cpu", 7)
        pool.bind("one", {"rows": rows})
        kept = pool.draw("typical")
        found = calibrate(definition, pool, None, generator, lambda: None)
        assert len(pool.sets) == kept + 1, "what calibration draws is gone afterwards"
        return GeneratorCalibration.model_validate(found)

    return run


def codes(found: GeneratorCalibration) -> set[str]:
    """Of the problems."""
    return {problem.code for problem in found.problems}


def test_a_sound_definition_recognises_every_null_kernel(calibrated: Calibrate) -> None:
    """Nothing passes the strict tier, and no kind of null kernel is left out."""
    found = calibrated()
    assert found.problems == ()
    assert found.accepted("strict") == ()
    assert found.varied == "yes"
    recognised = {null.name for null in found.nulls if null.strict == "fail"}
    assert recognised == {
        *(f"{kernel}:{output}" for output in ("y", "total") for kernel in PER_OUTPUT),
        "input-x:y",
        "permuted:rows",
        "rounded-float8_e4m3fn:y",
        "rounded-float8_e4m3fn:total",
        "rounded-bfloat16:total",
    }


def test_large_outputs_of_stress_sets_are_compared_by_rows_first(calibrated: Calibrate) -> None:
    """More than 4 MiB: the answers are those of small ones, but for rows that sampling misses."""
    rows = FULL_COMPARE_BYTES // (16 * 2) + 1
    found = calibrated(generator="sparse", rows=rows)
    recognised = {null.name for null in found.nulls if null.strict == "fail"}
    small = calibrated(generator="sparse")
    assert recognised == {null.name for null in small.nulls if null.strict == "fail"}
    assert {"zeros:y", "one-element-wrong:y"} <= recognised


def test_inputs_are_known_that_change_no_answer(calibrated: Calibrate) -> None:
    """The toy reads two of its three inputs."""
    assert calibrated().influence == {"x": "yes", "w": "yes", "unused": "no"}


def test_a_constant_reference_is_found(calibrated: Calibrate) -> None:
    """Two sets of real use with one and the same answer: a no-op would pass."""
    reference = """
import torch

def precise(x, w, unused):
    return torch.ones_like(x), torch.full((x.shape[0],), 16.0)
"""
    still = INPUTS.partition("def vary")[0]
    found = calibrated(reference=reference, inputs=still)
    assert "constant-reference" in codes(found)
    assert set(found.influence.values()) == {"no"}
    assert found.varied == "no"


def test_a_nearly_constant_reference_is_found_by_the_answers_to_other_inputs(
    calibrated: Calibrate,
) -> None:
    """Answers that differ by less than the bound are as good as constant."""
    reference = """
import torch

def precise(x, w, unused):
    y = 1.0 + 3e-6 * x * w
    return y, y.sum(1)
"""
    still = INPUTS.partition("def vary")[0]
    found = calibrated(reference=reference, inputs=still)
    assert "null-kernel-passes" in codes(found)
    accepted = set(found.accepted("strict"))
    assert {"stale:total", "last-call:total", "constant:total"} <= accepted
    assert "constant-reference" in codes(found), "the other output is constant when rounded"


def test_a_bound_as_wide_as_the_answer_is_found(calibrated: Calibrate) -> None:
    """Where a row may be off by twice itself, zeros pass."""
    found = calibrated(rel={"y": 2.0})
    assert "null-kernel-passes" in codes(found)
    details = " ".join(problem.detail for problem in found.problems)
    assert "zeros:y" in details
    assert "scaled:y" in details
    assert "zeros:total" not in details


def test_a_bound_that_the_rounded_reference_misses_is_found(calibrated: Calibrate) -> None:
    """No honest solution could pass."""
    assert "reference-refused" in codes(calibrated(rel={"y": 1e-6}))


def test_a_variation_that_is_wrong_is_found(calibrated: Calibrate) -> None:
    """The reference is asked again where it is fast."""
    wrong = INPUTS.replace('    expected["y"].neg_()\n', "")
    assert "wrong-variation" in codes(calibrated(inputs=wrong))


def test_a_reference_that_is_not_a_number_is_found(calibrated: Calibrate) -> None:
    """The comparison is invalid, whatever a null kernel writes."""
    found = calibrated(reference=REFERENCE.replace("3.0 *", "float('nan') *"))
    assert "reference-refused" in codes(found)
    assert "null-kernel-passes" not in codes(found)


def test_a_null_kernel_that_is_right_by_chance_shows_nothing(calibrated: Calibrate) -> None:
    """Zeros in the last rows are right where those rows are zero; so is swapping equal rows."""
    found = calibrated(generator="sparse")
    strict = {null.name: null.strict for null in found.nulls}
    assert strict["first-rows-then-zeros:y"] == "not-applicable"
    assert strict["first-rows-then-poison:y"] == "fail"
    assert strict["zeros:y"] == "fail"
    assert found.problems == ()
    assert {null.contest for null in found.nulls} == {"n/a", "not-applicable"}
    alone = calibrated(rows=1)
    assert {n.name: n.strict for n in alone.nulls}["permuted:rows"] == "not-applicable"


def test_a_lower_precision_is_reported_and_makes_nothing_invalid(calibrated: Calibrate) -> None:
    """A bound that admits bfloat16 operands admits results rounded to it."""
    found = calibrated(rel={"total": 4e-3})
    assert "rounded-bfloat16:total" in found.accepted("strict")
    assert found.problems == ()
    result = conclude(found)
    assert result.verdict is Verdict.PASS
    assert result.precision() == {"rounded-bfloat16:total": ["typical"]}


def conclude(*found: GeneratorCalibration) -> Calibration:
    """A document of one workload."""
    reasons = tuple(problem for each in found for problem in each.problems)
    workload = WorkloadCalibration(
        uuid="one",
        axes={"rows": 5},
        verdict=Verdict.INVALID if reasons else Verdict.PASS,
        reasons=reasons,
        generators=found,
    )
    return Calibration(
        definition="toy_scale", target="cpu", verdict=workload.verdict, workloads=(workload,)
    )


def test_the_document_sums_up_what_each_tier_accepts(calibrated: Calibrate) -> None:
    """And names the inputs without influence."""
    document = conclude(calibrated(), calibrated(rows=9)).document()
    assert document["without_influence"] == ["unused"]
    assert document["precision"] == {}
    assert all(v == ["typical"] for v in document["contest_accepts"].values())


def test_one_wrong_element_is_wrong_by_little(calibrated: Calibrate) -> None:
    """By two and a half times what a single element may be off, and alone."""
    del calibrated
    definition = Definition.model_validate(DEFINITION)
    rng = torch.Generator().manual_seed(5)
    exact = {"y": torch.randn(7, 16, generator=rng), "total": torch.randn(7, generator=rng)}
    right = declared(definition, exact)
    given = Given(definition, {}, exact, right, {}, rng)
    for kernel in null_kernels(given):
        if kernel.name == "one-element-wrong:y":
            changed = (kernel.outputs["y"] != right["y"]).nonzero()
            assert changed.shape[0] == 1
            row, column = changed[0].tolist()
            rms = float(exact["y"][row].square().mean().sqrt())
            off = float(kernel.outputs["y"][row, column]) - float(exact["y"][row, column])
            assert 4 * 4e-3 * rms < abs(off) < 40 * 4e-3 * (rms + float(exact["y"].abs().max()))


@pytest.fixture(scope="module")
def topk() -> tuple[Definition, Pool, ModuleType]:
    """The token selection with a small cache."""
    folder = KERNELS / TOPK
    definition = Definition.model_validate_json((folder / "definition.json").read_text())
    pool = Pool(folder, definition, "cpu", 3)
    pool.bind("small", {"batch_size": 3, "max_num_pages": 40, "num_pages": 240})
    module = load_module(folder, "check")
    assert module is not None
    return definition, pool, module


@pytest.mark.parametrize("generator", ["typical", "ties", "all-equal", "ragged"])
def test_selections_have_null_kernels_of_their_own(
    topk: tuple[Definition, Pool, ModuleType], generator: str
) -> None:
    """Tokens that need no scores, and one token wrong in an otherwise right row."""
    definition, pool, module = topk
    found = GeneratorCalibration.model_validate(
        calibrate(definition, pool, module, generator, lambda: None)
    )
    assert found.problems == ()
    strict = {null.name: null.strict for null in found.nulls}
    own = {
        "nothing-selected",
        "first-ids",
        "one-token-twice",
        "one-token-missing",
        "one-token-of-no-page",
    }
    assert {strict[name] for name in own} == {"fail"}
    one_below = "not-applicable" if generator == "all-equal" else "fail"
    if generator != "ragged":
        assert strict["one-token-below-the-cut"] == one_below
        assert strict["first-tokens"] == one_below


def test_other_tokens_of_equal_scores_are_the_same_answer(
    topk: tuple[Definition, Pool, ModuleType],
) -> None:
    """The strict tier lets a solution break ties in any way, so doing that shows nothing."""
    definition, pool, module = topk
    number = pool.draw("all-equal")
    inputs, right = pool.sets[number].values, pool.expected(number)
    row = int((inputs["seq_lens"] > 2048).nonzero()[0])
    other = right["topk_indices"].clone()
    last = int(inputs["seq_lens"][row]) - 1
    other[row, 0] = int(inputs["block_table"][row, last // 64]) * 64 + last % 64
    assert not torch.equal(other, right["topk_indices"])
    assert module.same_answer(inputs, right, {"topk_indices": other})
    given = Given(definition, inputs, right, right, {}, torch.Generator())
    assert not differs(given, {"topk_indices": other}, module)
    other[row, 0] = other[row, 1]
    assert differs(given, {"topk_indices": other}, module)


def test_loading_calibration_needs_no_torch() -> None:
    """The orchestrator's side stays without it, null kernels import it when they are made."""
    code = (
        "import sys, kopt_harness.calibrate, kopt_harness.check.null_kernels; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
