from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kopt_harness.check import check_outputs, compare_all, null_kernel_reason
from kopt_harness.schema import Definition, TierResult

AXES = {"n": 5}


@pytest.fixture
def definition() -> Definition:
    """Two outputs of different dtype."""
    tensor = {"shape": ["n", "width"], "dtype": "float32"}
    bound = {"rel": 4e-3, "source": "this test"}
    return Definition.model_validate(
        {
            "name": "sample",
            "description": "A sample.",
            "op_type": "test",
            "axes": {"n": {"type": "var"}, "width": {"type": "const", "value": 8}},
            "inputs": {"x": tensor},
            "outputs": {"output": tensor | {"dtype": "bfloat16"}, "state": tensor},
            "kopt": {"alias": "sample", "strict": {"output": bound, "state": bound}},
        }
    )


@pytest.fixture
def expected() -> dict[str, torch.Tensor]:
    """Unrounded outputs of the reference."""
    rng = torch.Generator().manual_seed(1)
    return {name: torch.randn(5, 8, generator=rng) for name in ("output", "state")}


@pytest.fixture
def actual(expected: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same, as a right solution would write them."""
    return {"output": expected["output"].to(torch.bfloat16), "state": expected["state"].clone()}


def test_right_outputs_pass_both_tiers(
    definition: Definition, expected: dict[str, torch.Tensor], actual: dict[str, torch.Tensor]
) -> None:
    """The contest tier rounds the reference first, so rounding alone is no error there."""
    tiers = compare_all(definition, {}, expected, actual)
    assert {name: tier.verdict for name, tier in tiers.items()} == {
        "contest": "pass",
        "strict": "pass",
    }
    assert tiers["contest"].outputs[0].max_abs == 0.0
    assert (tiers["strict"].outputs[0].max_abs or 0.0) > 0.0
    assert all(tier.reason is None for tier in tiers.values())


def test_the_tiers_disagree_where_the_contest_is_blind(
    definition: Definition, expected: dict[str, torch.Tensor], actual: dict[str, torch.Tensor]
) -> None:
    """Zeros for values of size 1e-3 pass the contest's absolute tolerance, not the strict tier."""
    expected["state"] *= 1e-3
    actual["state"] = torch.zeros(5, 8)
    tiers = compare_all(definition, {}, expected, actual)
    assert tiers["contest"].verdict == "pass"
    assert tiers["strict"].verdict == "fail"
    assert tiers["strict"].outputs[0].ok
    assert tiers["strict"].reason is not None
    assert "'state'" in tiers["strict"].reason.detail


def test_the_contest_tier_is_not_applied_to_stress_inputs(
    definition: Definition, expected: dict[str, torch.Tensor], actual: dict[str, torch.Tensor]
) -> None:
    """Infinities that the contest refuses are judged by the strict tier alone."""
    expected["state"][2] = actual["state"][2] = float("-inf")
    tiers = compare_all(definition, {}, expected, actual, kind="stress")
    assert tiers["contest"].verdict == "n/a"
    assert tiers["contest"].reason is not None
    assert tiers["strict"].verdict == "pass"
    assert compare_all(definition, {}, expected, actual)["contest"].verdict == "invalid"


def test_an_invalid_reference_goes_before_a_wrong_answer(
    definition: Definition, expected: dict[str, torch.Tensor], actual: dict[str, torch.Tensor]
) -> None:
    """With a wrong first output and a NaN in the second reference, the result is invalid."""
    actual["output"] = actual["output"] + 1
    expected["state"][4, 7] = float("nan")
    for tier in compare_all(definition, {}, expected, actual).values():
        assert tier.verdict == "invalid"
        assert tier.reason is not None
        assert "'state'" in tier.reason.detail


def test_results_are_valid_json(
    definition: Definition, expected: dict[str, torch.Tensor], actual: dict[str, torch.Tensor]
) -> None:
    """NaN and infinity are written as strings, since JSON has neither."""
    actual["state"][0, 1] = float("inf")
    actual["output"][0, 0] = float("nan")
    for tier in compare_all(definition, {}, expected, actual).values():
        text = json.dumps(tier.model_dump(mode="json"), allow_nan=False)
        assert '"inf"' in text
        assert '"nan"' in text


def test_a_definitions_own_rule_replaces_both_tiers(
    definition: Definition, expected: dict[str, torch.Tensor], actual: dict[str, torch.Tensor]
) -> None:
    """A comparator is asked for each tier and gets inputs and the unrounded reference."""
    asked = []

    def compare(
        tier: Any,
        definition: Definition,
        inputs: Mapping[str, Any],
        expected: Mapping[str, Any],
        actual: Mapping[str, Any],
    ) -> TierResult:
        asked.append((tier, inputs["x"], expected["output"].dtype))
        return TierResult(tier=tier, verdict="pass")

    comparator = SimpleNamespace(compare=compare)
    tiers = compare_all(definition, {"x": 3}, expected, actual, comparator)
    assert asked == [("contest", 3, torch.float32), ("strict", 3, torch.float32)]
    assert all(tier.verdict == "pass" for tier in tiers.values())


def test_inputs_that_zeros_satisfy_are_recognised(
    definition: Definition, expected: dict[str, torch.Tensor]
) -> None:
    """A reference of zeros cannot tell a kernel from none; one with a single value can."""
    assert null_kernel_reason(definition, {}, expected) is None
    zeros = {name: torch.zeros(5, 8) for name in expected}
    reason = null_kernel_reason(definition, {}, zeros)
    assert reason is not None
    assert reason.code == "null-kernel-passes"
    zeros["state"][0, 0] = 1.0
    assert null_kernel_reason(definition, {}, zeros) is None


def test_outputs_in_the_declared_form_are_accepted(
    definition: Definition, actual: dict[str, torch.Tensor]
) -> None:
    """Names, shapes, dtypes, layout and device as declared give no reason."""
    assert check_outputs(definition, AXES, actual, device="cpu") is None


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (None, "missing-output"),
        ([1.0], "not-a-tensor"),
        (torch.zeros(1), "wrong-shape"),
        (torch.zeros(8, 5), "wrong-shape"),
        (torch.zeros(5, 8, 1), "wrong-shape"),
        (torch.zeros(5, 8, dtype=torch.float64), "wrong-dtype"),
        (torch.zeros(5, 1).expand(5, 8), "wrong-layout"),
        (torch.zeros(8, 5).t(), "wrong-layout"),
        (torch.zeros(5, 8, device="meta"), "wrong-device"),
    ],
)
def test_outputs_of_another_form_are_refused(
    definition: Definition, actual: dict[str, torch.Tensor], output: Any, code: str
) -> None:
    """Nothing is promoted, broadcast, transposed or left out, and the output is named."""
    reason = check_outputs(definition, AXES, actual | {"state": output}, device="cpu")
    assert reason is not None
    assert reason.code == code
    assert "'state'" in reason.detail


def test_an_output_that_is_not_declared_is_refused(
    definition: Definition, actual: dict[str, torch.Tensor]
) -> None:
    """More outputs than declared are an error, not a bonus."""
    reason = check_outputs(definition, AXES, actual | {"lse": torch.zeros(5)})
    assert reason is not None
    assert reason.code == "unknown-output"


def test_importing_the_package_does_not_load_torch() -> None:
    """Orchestrating code may import the comparators' types without the GPU stack."""
    code = "import sys, kopt_harness.check; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
