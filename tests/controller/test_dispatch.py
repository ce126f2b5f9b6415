"""A candidate stands before the incumbent where it wins, and nowhere else."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.cli import main
from kopt_controller.dispatch import (
    Learned,
    Table,
    dispatcher,
    learn_rule,
    read_table,
    with_rule,
)
from kopt_harness.build import build_in_worker
from kopt_harness.environ import worker_environment
from kopt_harness.errors import InvalidInputError
from kopt_harness.proc import run
from kopt_harness.schema import (
    Axis,
    BuildSpec,
    Definition,
    KoptSection,
    Solution,
    SourceFile,
    StrictBound,
    TensorSpec,
    WorkloadComparison,
)

Toy = Any


def _row(n: int, ratio: float, width: float = 0.01, m: int = 1) -> WorkloadComparison:
    return WorkloadComparison(
        uuid=f"u{n}-{m}",
        axes={"n": n, "m": m},
        a_median_us=10.0 * n,
        b_median_us=10.0 * n * ratio,
        ratio=ratio,
        ci=(ratio - width, ratio + width),
        n=10,
    )


def test_the_range_that_wins_most_is_learned() -> None:
    """Its ends are measured values; what is surely slower is outside."""
    rows = [_row(1, 1.2), _row(2, 0.8), _row(4, 0.9), _row(8, 0.995), _row(16, 1.1)]
    learned = learn_rule(rows, ("n", "m"))
    assert learned is not None
    assert (learned.axis, learned.low, learned.high, learned.served) == ("n", 2, 8, 3)
    assert learned.gain == pytest.approx((4 + 4 + 0.4) / 310)


def test_the_axis_that_separates_is_found() -> None:
    """Along n it wins and loses at the same sizes; along m it does not."""
    rows = [_row(n, 0.7 if m == 2 else 1.3, m=m) for n in (1, 2, 4) for m in (1, 2)]
    learned = learn_rule(rows, ("n", "m"))
    assert learned is not None
    assert (learned.axis, learned.low, learned.high) == ("m", 2, 2)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [_row(1, 1.2), _row(2, 1.1)],
        [_row(1, 0.95, 0.2), _row(2, 0.95, 0.2)],
        [_row(1, 0.5), _row(2, 0.5).model_copy(update={"b_median_us": None})],
    ],
)
def test_nothing_is_learned_from_nothing(rows: list[WorkloadComparison]) -> None:
    """Slower, unsure, or not all measured."""
    assert learn_rule(rows, ("n",)) is None


_HEADER = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include "tunables.h"
inline void scale(tvm::ffi::TensorView x, double s, tvm::ffi::TensorView y) {
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] * static_cast<float>(s) + KOPT_BIAS;
}
"""
_ENTRY = '#include "../include/scale.h"\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(run, scale);\n'


def _part(bias: int, **spec: Any) -> Solution:
    """The same names in every part: an inline function, headers, the entry."""
    fields = {"language": "cpp", "entry_point": "lib/entry.cpp::run"} | spec
    sources = {
        "lib/entry.cpp": _ENTRY,
        "include/scale.h": _HEADER,
        "tunables.h": f"#define KOPT_BIAS {bias}\n",
    }
    return Solution(
        name=f"bias{bias}",
        definition="scale",
        author="kopt",
        spec=BuildSpec.model_validate(fields),
        sources=tuple(SourceFile(path=p, content=c) for p, c in sources.items()),
    )


def _scale() -> Definition:
    vector = TensorSpec(shape=("n",), dtype="float32")
    return Definition(
        name="scale",
        description="Multiply a vector by a number.",
        op_type="elementwise",
        axes={"n": Axis(type="var")},
        inputs={"x": vector, "s": TensorSpec(shape=None, dtype="float32")},
        outputs={"y": vector},
        kopt=KoptSection(alias="scale", strict={"y": StrictBound(rel=1e-6, source="one rounding")}),
    )


def _get(*solutions: Solution) -> Callable[[str], Solution]:
    return {solution.sha256: solution for solution in solutions}.__getitem__


_CALL = """
import importlib, json, sys
from pathlib import Path
from kopt_harness.build.loading import load
from kopt_harness.schema import Solution

numpy = importlib.import_module("numpy")
ffi = importlib.import_module("tvm_ffi")
job = json.loads(sys.stdin.read())
run = load(Path(job["path"]), Solution.model_validate_json(job["solution"]))
served = {}
for n in range(1, 13):
    x, y = numpy.zeros(n, dtype=numpy.float32), numpy.zeros(n, dtype=numpy.float32)
    run(ffi.from_dlpack(x), 3.0, ffi.from_dlpack(y))
    served[n] = float(y[0])
print(json.dumps(served))
"""


def test_each_size_is_served_by_its_part(tmp_path: Path) -> None:
    """Built and called: two rules, three parts of the same names, merged rather than nested."""
    one, two, three = _part(1), _part(2), _part(3)
    inner = dispatcher(with_rule(one, two, Learned("n", 2, 5, 4, 0.1)), _scale(), _get(one, two))
    table = with_rule(inner, three, Learned("n", 4, 8, 3, 0.1))
    made = dispatcher(table, _scale(), _get(one, two, three))
    assert [part.name for part in table.parts] == ["bias3", "bias2", "bias1"]
    assert not any("dispatch" in source.path for source in made.sources if "/" in source.path)
    result = build_in_worker(made, "cpu", tmp_path / "builds")
    assert result.ok, result.log
    done = run(
        [sys.executable, "-P", "-c", _CALL],
        timeout_s=120,
        env=worker_environment(tmp_path / "home"),
        stdin=json.dumps({"path": result.path, "solution": made.model_dump_json()}).encode(),
    )
    assert done.ok, done.output
    served = [json.loads(done.stdout)[str(n)] for n in range(1, 13)]
    assert served == [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0]


def test_a_covered_rule_goes_with_its_part() -> None:
    """What nothing can reach any more is not built."""
    one, two, three = _part(1), _part(2), _part(3)
    inner = dispatcher(with_rule(one, two, Learned("n", 2, 5, 4, 0.1)), _scale(), _get(one, two))
    table = with_rule(inner, three, Learned("n", 1, 8, 5, 0.1))
    assert [part.name for part in table.parts] == ["bias3", "bias1"]
    assert read_table(dispatcher(table, _scale(), _get(one, three))) == table


def test_the_same_dispatch_is_the_same_content() -> None:
    """No date and no order of chance: an archived one is found again."""
    one, two = _part(1), _part(2)
    made = [
        dispatcher(with_rule(one, two, Learned("n", 2, 5, 4, 0.1)), _scale(), _get(one, two))
        for _ in range(2)
    ]
    assert made[0].sha256 == made[1].sha256


def test_parts_that_cannot_stand_together_are_refused() -> None:
    """Another language, another binding, a dispatcher as a candidate, an axis of no input."""
    one, two = _part(1), _part(2)
    rule = Learned("n", 2, 5, 4, 0.1)
    python = _part(3).model_copy(
        update={"spec": BuildSpec(language="python", entry_point="lib/entry.cpp::run")}
    )
    torch = _part(4, binding="torch")
    for other in (python, torch):
        with pytest.raises(InvalidInputError):
            dispatcher(with_rule(one, other, rule), _scale(), _get(one, other))
    inner = dispatcher(with_rule(one, two, rule), _scale(), _get(one, two))
    with pytest.raises(InvalidInputError, match="itself"):
        with_rule(one, inner, rule)
    with pytest.raises(InvalidInputError, match="axis 'k'"):
        dispatcher(with_rule(one, two, Learned("k", 1, 1, 1, 0.1)), _scale(), _get(one, two))
    damaged = inner.model_copy(
        update={"sources": (SourceFile(path="dispatch.json", content="{}"), *inner.sources[1:])}
    )
    with pytest.raises(InvalidInputError, match="no table"):
        read_table(damaged)
    assert isinstance(read_table(inner), Table)


_PYTHON_ENTRY = """
from .values import BIAS


def run(x, s, y):
    y[:] = x * s + BIAS


def precompile(axes):
    raise ValueError(f"{BIAS} for {axes['n']}")
"""


def _python_part(bias: int, **spec: Any) -> Solution:
    """The same module names in every part, in a folder."""
    fields = {
        "language": "python",
        "entry_point": "lib/kernel.py::run",
        "destination_passing_style": True,
    }
    sources = {"lib/kernel.py": _PYTHON_ENTRY, "lib/values.py": f"BIAS = {bias}\n"}
    return Solution(
        name=f"python{bias}",
        definition="scale",
        author="kopt",
        spec=BuildSpec.model_validate(fields | spec),
        sources=tuple(SourceFile(path=p, content=c) for p, c in sources.items()),
    )


def test_parts_in_python_serve_their_sizes(tmp_path: Path) -> None:
    """Built, loaded and called like those in C++, and compiled ahead by the part that serves."""
    one, two, three = _python_part(1), _python_part(2), _python_part(3)
    get = _get(one, two, three)
    inner = dispatcher(with_rule(one, two, Learned("n", 2, 5, 4, 0.1)), _scale(), get)
    made = dispatcher(with_rule(inner, three, Learned("n", 4, 8, 3, 0.1)), _scale(), get)
    assert made.spec.language == "python"
    result = build_in_worker(made, "cpu", tmp_path / "builds")
    assert result.ok, result.log
    call = _CALL.replace("ffi.from_dlpack(x)", "x").replace("ffi.from_dlpack(y)", "y")
    call = call.replace(
        "print(json.dumps(served))",
        """
try:
    sys.modules[run.__module__].precompile({"n": 9})
except ValueError as error:
    served["ahead"] = str(error)
print(json.dumps(served))
""",
    )
    done = run(
        [sys.executable, "-P", "-c", call],
        timeout_s=120,
        env=worker_environment(tmp_path / "home"),
        stdin=json.dumps({"path": result.path, "solution": made.model_dump_json()}).encode(),
    )
    assert done.ok, done.output
    found = json.loads(done.stdout)
    served = [found[str(n)] for n in range(1, 13)]
    assert served == [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0]
    assert found["ahead"] == "1 for 9"


def test_parts_that_return_and_parts_that_write_are_refused() -> None:
    """One entry cannot do both."""
    one, two = _python_part(1), _python_part(2, destination_passing_style=False)
    with pytest.raises(InvalidInputError, match="returns its outputs"):
        dispatcher(with_rule(one, two, Learned("n", 2, 5, 4, 0.1)), _scale(), _get(one, two))


def test_a_round_says_what_is_for_some_sizes(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    """Its label, how to go on, and the dispatcher that the command then makes of both."""

    def latency_us(solution: Solution, workload: Any) -> float:
        if solution.name.startswith("plain"):
            return 100.0
        return 40.0 if workload.axes["n"] <= 2 else 110.0

    campaign = toy.campaign(toy.device._replace(latency_us=latency_us, launches=lambda _: 9))
    (result,) = campaign.execute().rounds
    assert (result.decision.label, result.decision.code) == ("promote-dispatch", "dispatch")
    assert result.incumbent == result.incumbent_before
    what = f"{campaign.run.id}/1"
    command = ["--root", str(toy.root.path), "--json", "promote-dispatch", what, "--dry-run"]
    assert main(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rule"]["axis"], document["rule"]["low"], document["rule"]["high"]) == (
        "n",
        1,
        2,
    )
    assert document["table"]["otherwise"]["name"] == "plain"
    assert main(["--root", str(toy.root.path), "promote-dispatch", f"{campaign.run.id}/9"]) == 2
    capsys.readouterr()
    assert main(["--root", str(toy.root.path), "promote-dispatch", campaign.run.id]) == 2
    assert "RUN/ROUND" in capsys.readouterr().err
