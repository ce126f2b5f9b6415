"""The device code of cuda-split on a CPU: every shape is right, and what would break it shows."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEFINITION = ROOT / "kernels" / "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"
EMULATOR = DEFINITION / "probes" / "emulator" / "emulate.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _emulator() -> Any:
    spec = importlib.util.spec_from_file_location("emulate_attention", EMULATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The solution with the values that its tunables have by default, for the CPU."""
    built: Path = _emulator().build(tmp_path_factory.mktemp("emulator"), {})
    return built


@pytest.fixture(scope="module")
def run(library: Path) -> Run:
    """Runs calls; what is wrong in the emulation ends the process."""

    def emulate(*options: str, build: Path = library) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, str(EMULATOR), "--library", str(build), *options]
        return subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)

    return emulate


def test_every_generator_is_right(run: Run) -> None:
    """Holes anywhere, empty rows and tiles, one token, large and equal logits; 16 blocks."""
    done = run("--tokens", "1", "--processors", "16", "--generator", "all")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("tokens", "processors"),
    [("1", "64"), ("1", "32"), ("3", "32")],
    ids=["64 blocks", "32 blocks", "two launches"],
)
def test_every_shape_is_right(run: Run, tokens: str, processors: str) -> None:
    """The shape follows from the number of multiprocessors; what does not fit is launched later."""
    options = ("--tokens", tokens, "--processors", processors)
    done = run(*options, "--generator", "empty-tiles")
    assert done.returncode == 0, done.stdout + done.stderr


def test_too_few_multiprocessors_are_refused(run: Run) -> None:
    """Blocks that wait for each other are not launched where they cannot run at once."""
    done = run("--tokens", "1", "--processors", "15")
    assert done.returncode == 1
    assert "not launched" in done.stdout


@pytest.mark.parametrize(
    ("file", "code", "shows"),
    [
        ("kernel.cuh", "if (real) barrier_wait(barriers + stage * 8, 0);", "not finite"),
        ("attend.cuh", "o_[tile][i] *= fade_[i / 2]", "outside the strict bound"),
        ("attend.cuh", "    publish_sums();\n", "deadlock"),
        (
            "merge.cuh",
            "store_global(cells + i * 32, make_uint2(kAbsent, kAbsent), real);",
            "scratch memory is not as it was",
        ),
    ],
    ids=["wait", "fade", "sums", "reset"],
)
def test_what_is_left_out_shows(tmp_path: Path, run: Run, file: str, code: str, shows: str) -> None:
    """Without one wait, correction or reset a run fails, so that a right one means something."""
    emulator = _emulator()
    broken = tmp_path / "solution"
    shutil.copytree(emulator.SOLUTION, broken)
    source = broken / "solution" / "cuda" / file
    text = source.read_text()
    assert text.count(code) == 1
    source.write_text(text.replace(code, ""))
    emulator.SOLUTION = broken
    # A rehearsal would give the rows the time to come.
    build = emulator.build(tmp_path, {"REHEARSE_ROWS": 0})
    done = run("--tokens", "1", "--processors", "16", build=build)
    assert done.returncode == 1, done.stderr
    assert shows in done.stdout + done.stderr
