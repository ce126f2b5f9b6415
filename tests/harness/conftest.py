"""Fixtures of the tests that run CUDA kernels on a CPU."""

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from emulator.runs import Runs


def _make_importable(package: Path) -> None:
    """Without a word in `sys.path`, which says what a sandbox shows."""
    spec = importlib.util.spec_from_file_location(
        package.name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[package.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


@pytest.fixture(scope="session")
def emulation(checkout: Path, builds: Path) -> "Iterator[Callable[[str | Path], Runs]]":
    """A driver, by its path or its definition; what it runs is compiled once a session."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    _make_importable(checkout / "emulator")
    from emulator.runs import Runs

    with ExitStack() as ends:

        def of(which: str | Path) -> Runs:
            driver = (
                which
                if isinstance(which, Path)
                else checkout / "kernels" / which / "probes" / "emulator" / "emulate.py"
            )
            return ends.enter_context(Runs(driver, builds / "emulator"))

        yield of
