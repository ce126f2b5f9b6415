"""Tiny solutions, a build cache for the whole run, and a process to call solutions in."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kopt_harness.environ import worker_environment
from kopt_harness.proc import run
from kopt_harness.schema import (
    Axis,
    BuildResult,
    BuildSpec,
    Definition,
    KoptSection,
    Solution,
    SourceFile,
    StrictBound,
    TensorSpec,
)

_CALL = """
import importlib, json, sys
from pathlib import Path
from kopt_harness.build.loading import load
from kopt_harness.schema import Solution

job = json.loads(sys.stdin.read())
run = load(Path(job["path"]), Solution.model_validate_json(job["solution"]))
tensors = importlib.import_module(job["library"])
x = tensors.arange(7, dtype=tensors.float32)
y = tensors.zeros(7, dtype=tensors.float32)
if job["library"] == "numpy":
    import tvm_ffi
    run(tvm_ffi.from_dlpack(x), 3.0, tvm_ffi.from_dlpack(y))
else:
    run(x, 3.0, y)
print(json.dumps(y.tolist()))
"""

MakeSolution = Callable[..., Solution]
CallSolution = Callable[..., list[float]]


@pytest.fixture
def make_solution() -> MakeSolution:
    """Packs sources into a solution of the ``scale`` operator, y = s * x."""

    def make(
        language: str, sources: Mapping[str, str], *, entry: str = "", **spec: Any
    ) -> Solution:
        entry_point = entry or f"{next(iter(sources))}::run"
        return Solution(
            name=f"scale-{language}",
            definition="scale",
            author="kopt",
            spec=BuildSpec(language=language, entry_point=entry_point, **spec),
            sources=tuple(SourceFile(path=p, content=c) for p, c in sources.items()),
        )

    return make


@pytest.fixture
def scale() -> Definition:
    """The operator y = s * x over N elements."""
    vector = TensorSpec(shape=("N",), dtype="float32")
    return Definition(
        name="scale",
        description="Multiply a vector by a number.",
        op_type="elementwise",
        axes={"N": Axis(type="var")},
        inputs={"x": vector, "s": TensorSpec(shape=None, dtype="float32")},
        outputs={"y": vector},
        kopt=KoptSection(alias="scale", strict={"y": StrictBound(rel=1e-6, source="one rounding")}),
    )


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One build cache for all tests that do not look into it."""
    return tmp_path_factory.mktemp("builds")


@pytest.fixture
def call(tmp_path: Path) -> CallSolution:
    """Loads a build in a process of its own and runs it on 0, 1, ..., 6 with s = 3."""

    def call_built(result: BuildResult, solution: Solution, library: str) -> list[float]:
        job = {
            "path": result.path,
            "solution": solution.model_dump_json(),
            "library": library,
        }
        done = run(
            [sys.executable, "-P", "-c", _CALL],
            timeout_s=120,
            env=worker_environment(tmp_path / "home"),
            stdin=json.dumps(job).encode(),
        )
        assert done.ok, done.output
        values: list[float] = json.loads(done.stdout)
        return values

    return call_built
