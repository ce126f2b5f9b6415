"""Damaged and hostile input, with fixed seeds: ``scripts/fuzz.py`` runs the same for longer."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]
EXAMPLES = {
    "archive": 60,
    "builder-answer": 80,
    "config-toml": 15,
    "definition": 30,
    "journal": 40,
    "lint": 40,
    "protocol": 80,
    "run-configuration": 40,
    "solution-json": 15,
    "workloads": 10,
}
"""Inputs of each target: seconds, all together."""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """What the script defines."""
    return runpy.run_path(str(CHECKOUT / "scripts" / "fuzz.py"))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_reader_ends_in_an_error_that_is_its_own(script: dict[str, Any], name: str) -> None:
    """Exit code 2, a verdict, or a value; in time, and never another exception."""
    assert script["fuzz"](name, EXAMPLES[name], fixed=True) > 0


def test_no_target_is_left_out(script: dict[str, Any]) -> None:
    """One is run with a real judge, in a file of its own."""
    assert set(script["TARGETS"]) == {*EXAMPLES, "candidate"}
