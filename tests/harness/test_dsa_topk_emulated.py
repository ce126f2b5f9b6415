"""The device code of cuda-topk on a CPU: every way is right, and what would break it shows."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEFINITION = ROOT / "kernels" / "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64"
EMULATOR = DEFINITION / "probes" / "emulator" / "emulate.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _emulator() -> Any:
    spec = importlib.util.spec_from_file_location("emulate_topk", EMULATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The solution in a small shape, for the CPU."""
    emulator = _emulator()
    built: Path = emulator.build(tmp_path_factory.mktemp("emulator"), emulator.SMALL)
    return built


@pytest.fixture(scope="module")
def run(library: Path) -> Run:
    """Runs a way of serving a call; what is wrong in the emulation ends the process."""

    def emulate(*options: str, build: Path = library) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, str(EMULATOR), "--library", str(build), *options]
        return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)

    return emulate


def test_a_cluster_is_right_for_every_generator(run: Run) -> None:
    """Ties, neighbouring floats, equal scores, powers of two, empty rows, all in one launch."""
    done = run("--rows", "3", "--pages", "34", "--generator", "all")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rows", ["1", "10"])
def test_more_rows_than_blocks_and_fewer(run: Run, rows: str) -> None:
    """One row of two clusters, and so many that a block has several, one after the other."""
    options = ("--rows", rows, "--pages", "36", "--clusters", "2" if rows == "1" else "1", "4")
    done = run(*options, "--generator", "typical", "ties", "ragged")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("way", "pages"), [("0", "20"), ("2", "35")])
def test_short_rows_alone_and_long_contexts(run: Run, way: str, pages: str) -> None:
    """The kernels of block tables that are narrow, or too wide for shared memory."""
    done = run("--way", way, "--pages", pages, "--generator", "typical", "ragged")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "code", "instead"),
    [
        ("kernels.cuh", "copies_wait();", ""),
        ("kernels.cuh", "clear_bins(selection);", ""),
        ("select.cuh", "& 0x1ffcu", "& 0x7fcu"),
    ],
    ids=["wait", "clear", "fold"],
)
def test_what_is_left_out_shows(
    tmp_path: Path, run: Run, file: str, code: str, instead: str
) -> None:
    """Without one wait, with bins full of garbage or folded, a run fails."""
    emulator = _emulator()
    broken = tmp_path / "solution"
    shutil.copytree(emulator.SOLUTION, broken)
    source = broken / "solution" / "cuda" / file
    text = source.read_text()
    assert code in text
    source.write_text(text.replace(code, instead, 1))
    emulator.SOLUTION = broken
    library = emulator.build(tmp_path, emulator.SMALL)
    options = ("--rows", "2", "--pages", "34", "--generator", "typical")
    assert run(*options, build=library).returncode == 1
