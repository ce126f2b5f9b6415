"""Fixtures of the tests that run CUDA kernels on a CPU."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from emulator.runs import Runs


@pytest.fixture(scope="session")
def emulation(checkout: Path, builds: Path) -> Iterator[Callable[[str], Runs]]:
    """The driver of a definition's CUDA solution, which is compiled once a session."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    with ExitStack() as ends:

        def of(definition: str) -> Runs:
            driver = checkout / "kernels" / definition / "probes" / "emulator" / "emulate.py"
            return ends.enter_context(Runs(driver, builds / "emulator"))

        yield of
