"""``kopt profile``: document, table, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kopt_controller.cli import main
from kopt_harness.root import Root
from kopt_harness.schema import BuildSpec, Definition, Solution, SourceFile


@pytest.fixture
def solution(gdn_decode: Definition, tmp_path: Path, honest: str) -> Path:
    """A correct solution of gdn_decode in plain PyTorch."""
    return write(tmp_path / "made.json", gdn_decode, honest)


def write(path: Path, definition: Definition, source: str) -> Path:
    """Packs Python source."""
    spec = BuildSpec(language="python", target_hardware=("cpu",), entry_point="kernel.py::run")
    made = Solution(
        name=path.stem,
        definition=definition.name,
        author="tests",
        spec=spec,
        sources=(SourceFile(path="kernel.py", content=source),),
    )
    path.write_text(made.model_dump_json(by_alias=True))
    return path


def kopt(root: Root, *arguments: object) -> int:
    """The exit code of a command line on the scratch root."""
    return main(["--root", str(root.path), *map(str, arguments)])


def test_a_profile_is_one_document(
    scratch_root: Root, solution: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Operators of one workload, with the solution and the profiler named."""
    code = kopt(scratch_root, "profile", solution, "--target", "cpu", "--workload", 0, "--json")
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (document["target"], document["profiler"]) == ("cpu", "torch")
    (one,) = document["profiles"]
    assert one["axes"] == {"batch_size": 1}
    assert one["total_us"] == pytest.approx(sum(k["total_us"] for k in one["kernels"]))


def test_a_profile_of_nothing_is_no_success(
    scratch_root: Root,
    gdn_decode: Definition,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A solution that raises exits 1, and the note says what it raised."""
    source = "def run(*arguments):\n    raise KeyError('nowhere')\n"
    broken = write(tmp_path / "broken.json", gdn_decode, source)
    assert kopt(scratch_root, "profile", broken, "--target", "cpu", "--workload", 0) == 1
    assert "nowhere" in capsys.readouterr().err


def test_machine_code_needs_a_gpu_target_and_says_so(
    scratch_root: Root, solution: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The CPU target has none; the hint names one that has."""
    code = kopt(scratch_root, "profile", solution, "--profiler", "sass", "--target", "cpu")
    assert code == 2
    assert "--target h200" in capsys.readouterr().err


def test_an_unknown_profiler_lists_the_others(
    scratch_root: Root, solution: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is built."""
    assert kopt(scratch_root, "profile", solution, "--profiler", "crystal") == 2
    assert "sass" in capsys.readouterr().err


def test_the_code_of_a_shipped_kernel(
    scratch_root: Root, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Triton solution is compiled for a GPU that is not here and its code is read."""
    pytest.importorskip("triton")
    folder = checkout / "kernels/gdn_decode_qk4_v8_d128_k_last/solutions/triton-recurrent"
    options = ("--profiler", "sass", "--target", "h200", "--workload", 0, "--json")
    assert kopt(scratch_root, "profile", folder, *options) == 0
    (one,) = json.loads(capsys.readouterr().out)["profiles"]
    (kernel,) = one["compiled"]
    assert kernel["arch"] == "sm_90a"
    assert kernel["registers"] > 0
    assert kernel["spill_instructions"] == 0
    assert kernel["mix"]["fp32"] > 0
