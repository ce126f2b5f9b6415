"""What the contest's rule accepts and the strict tier refuses, side by side.

The outputs are those of scripts/wrong_outputs.py: the references of the real definitions with
one thing wrong.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "wrong_outputs.py"
MOE_BYTES = 4 << 30
"""Weights of the expert layer, and room to compute."""


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("wrong_outputs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


wrong_outputs = _script()
ALL = [pytest.param(wrong, id=wrong.id) for wrong in wrong_outputs.WRONG_OUTPUTS]
FINITE = [parameter for parameter in ALL if parameter.id != "nan-reference"]


@cache
def _experts() -> Any:
    """The expert layer's call, which both of its faults share: its weights are large."""
    if psutil.virtual_memory().available < MOE_BYTES:
        pytest.skip("needs 4 GiB of free memory")
    first = next(w for w in wrong_outputs.WRONG_OUTPUTS if w.definition == wrong_outputs.MOE)
    made = wrong_outputs.call(first)
    return made._replace(inputs={})


def _call(wrong: Any) -> Any:
    return _experts() if wrong.definition == wrong_outputs.MOE else wrong_outputs.call(wrong)


@pytest.mark.parametrize("wrong", FINITE)
def test_the_contest_accepts_it_and_strict_does_not(wrong: Any) -> None:
    """The two tiers disagree, and strict says where."""
    made = _call(wrong)
    tiers = wrong_outputs.judge(made, wrong.spoil(made))
    assert (tiers.contest, tiers.strict) == ("pass", "fail")
    assert tiers.strict_reason.detail


@pytest.mark.parametrize("wrong", FINITE)
def test_without_the_fault_both_tiers_accept(wrong: Any) -> None:
    """It is the fault that is refused: the rounded reference passes on the same inputs."""
    made = _call(wrong)
    tiers = wrong_outputs.judge(made, made.declared())
    assert (tiers.contest, tiers.strict) == ("pass", "pass")


def test_a_nan_of_the_reference_excuses_nothing() -> None:
    """The official rule takes it for a wildcard; here neither tier decides."""
    wrong = next(w for w in wrong_outputs.WRONG_OUTPUTS if w.id == "nan-reference")
    made = wrong_outputs.call(wrong)
    tiers = wrong_outputs.judge(made, wrong.spoil(made))
    assert (tiers.contest, tiers.strict) == ("invalid", "invalid")
    assert tiers.contest_reason.code == tiers.strict_reason.code == "reference-not-finite"
