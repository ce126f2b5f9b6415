"""Twins and slowed twins of a solution."""

from __future__ import annotations

import time

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.errors import UnavailableError
from kopt_harness.lint import lint
from kopt_harness.schema import Definition, Solution
from kopt_harness.variants import slowed, twin

pytestmark = pytest.mark.alone

SOURCE = """
import time

def run(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return seconds
"""


def called(solution: Solution, seconds: float) -> float:
    """Wall time of a call."""
    space: dict[str, object] = {}
    exec(compile(solution.sources[0].content, "kernel.py", "exec"), space)
    begin = time.perf_counter()
    assert space["run"](seconds) == seconds  # type: ignore[operator]
    return time.perf_counter() - begin


def test_a_twin_has_the_same_code_and_another_hash(make_solution) -> None:
    """So that it is built and loaded for itself."""
    original = make_solution(SOURCE, name="it")
    other = twin(original)
    assert other.sha256 != original.sha256
    assert other.name == "it-twin"
    assert other.sources[0].content.strip() == original.sources[0].content.strip()
    assert other.spec == original.spec


def test_a_slowed_python_solution_takes_so_much_longer(make_solution) -> None:
    """Half as long again, at the least: a busy machine can only add to it."""
    slow = slowed(make_solution(SOURCE, name="it"), 0.5)
    assert slow.name == "it-slowed-50"
    assert min(called(slow, 0.02) for _ in range(5)) == pytest.approx(0.03, rel=0.1)


def test_shipped_cpu_solutions_can_be_slowed(catalog: Catalog, gdn_decode: Definition) -> None:
    """C++ by its exported function, with nothing for the lint to see; GPU kernels cannot be."""
    cpp = slowed(catalog.solution(gdn_decode, "cpp-recurrent").solution, 0.05)
    entry = next(each for each in cpp.sources if each.path == cpp.spec.entry_file)
    assert entry.content.count("TVM_FFI_DLL_EXPORT_TYPED_FUNC") == 1
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, KoptSlowed<run>::call)" in entry.content
    assert lint(cpp).reject is None
    for name in ("cuda-recurrent", "triton-recurrent"):
        with pytest.raises(UnavailableError, match="cannot be slowed"):
            slowed(catalog.solution(gdn_decode, name).solution, 0.05)
