"""The real flashinfer-bench beside kopt, where there is a GPU and an interpreter that has it."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest
from kopt_harness.errors import InfraError
from kopt_harness.official import side_by_side
from kopt_harness.official_bench import Bench, about_bench, require_runnable
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Verdict
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target

TARGET = best_target()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(TARGET.kind != "cuda", reason="no GPU target is in this machine"),
    pytest.mark.skipif(
        importlib.util.find_spec("safetensors") is None, reason="safetensors is not installed"
    ),
]


@pytest.fixture(scope="module")
def setting(catalog) -> Setting:
    """The target with its own timer."""
    return Setting.here(catalog, TARGET.name, MeasureOptions())


@pytest.fixture(scope="module")
def bench(setting: Setting) -> Bench:
    """That of ``$KOPT_FIB_PYTHON``, or this interpreter's."""
    python = os.environ.get("KOPT_FIB_PYTHON", sys.executable)
    try:
        found = about_bench(python, setting.worker_variables)
        require_runnable(found)
    except InfraError as error:
        pytest.skip(error.message)
    return found


def test_a_right_solution_passes_both(setting, bench, catalog, gdn_decode) -> None:
    """PASSED and pass on the same inputs, each with a latency and a timer."""
    by_batch = {w.axes["batch_size"]: w for w in catalog.workloads(gdn_decode)}
    workloads = [by_batch[1], by_batch[64]]
    solution = catalog.solution(gdn_decode, "triton-recurrent").solution
    both = side_by_side(setting, solution, workloads, bench, trials=1)
    assert both.passed, [row.log for row in both.official]
    assert both.kopt.verdict == Verdict.PASS, both.kopt.reasons
    for row in both.document()["workloads"]:
        assert row["official"]["latency_us"] > 0
        assert row["official"]["timer"] in ("cupti", "cuda-events")
        assert row["kopt"]["timer"] == "cupti"
        official_us, kopt_us = row["official"]["latency_us"], row["kopt"]["median_us"]
        # Events also see the host prepare the launch, where the device waits for it.
        slack_us = 1.0 if row["official"]["timer"] == "cupti" else 150.0
        assert kopt_us - max(0.1 * kopt_us, 1.0) <= official_us
        assert official_us <= kopt_us + max(0.1 * kopt_us, slack_us)


def test_a_wrong_solution_fails_both(setting, bench, catalog, gdn_decode, make_solution) -> None:
    """Outputs of zeros: INCORRECT_NUMERICAL and fail."""
    body = "\n    output.zero_()\n    new_state.zero_()\n"
    names = ", ".join([*gdn_decode.inputs, *gdn_decode.outputs])
    solution = make_solution(f"def run({names}):{body}", name="zeros")
    spec = solution.spec.model_copy(update={"target_hardware": ("cuda",)})
    solution = solution.model_copy(update={"spec": spec})
    both = side_by_side(setting, solution, catalog.workloads(gdn_decode)[:1], bench, trials=1)
    assert both.official[0].status == "INCORRECT_NUMERICAL"
    assert both.kopt.verdict == Verdict.FAIL
