"""The device code of cuda-moe on a CPU: every tile is right, and what would break it shows."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEFINITION = ROOT / "kernels" / "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048"
EMULATOR = DEFINITION / "probes" / "emulator" / "emulate.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _emulator() -> Any:
    spec = importlib.util.spec_from_file_location("emulate_moe", EMULATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The solution for the CPU."""
    built: Path = _emulator().build(tmp_path_factory.mktemp("emulator"))
    return built


@pytest.fixture(scope="module")
def run(library: Path) -> Run:
    """Runs all launches of a call; what is wrong in the emulation ends the process."""

    def emulate(*options: str, build: Path = library) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, str(EMULATOR), "--library", str(build), *options]
        return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)

    return emulate


@pytest.mark.parametrize("tile", ["-1", "16"])
def test_tile_is_right_for_every_generator(run: Run, tile: str) -> None:
    """No expert, all experts, one row and many of an expert, scales and routing of all kinds."""
    done = run("--tile", tile, "--tokens", "19", "--generator", "all")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("tile", ["64", "256"])
def test_tile_for_many_rows_is_right(run: Run, tile: str) -> None:
    """Several tiles of an expert, the last of them cut off, routed by many blocks."""
    options = ("--tokens", "140", "--generator", "ragged-experts", "two-experts")
    done = run("--tile", tile, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_token_is_right(run: Run) -> None:
    """With one expert, and with two, the depth of projections is split among blocks."""
    for generator in ("quiet-device", "two-experts"):
        done = run("--tokens", "1", "--processors", "7", "--generator", generator)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "code", "options", "shows"),
    [
        (
            "stream.cuh",
            "while (load_acquire(scratch.done + unit.tile) < S::kSlices) {\n        }",
            ("--tokens", "1", "--generator", "quiet-device"),
            "not finite where it should be",
        ),
        (
            "stream.cuh",
            "if (lane == 0) barrier_arrive(shared_address(&shared.empty[turn.at]));",
            (),
            "deadlock",
        ),
        (
            "stream.cuh",
            "barrier_arrive_after_copies(shared_address(&shared.full[turn.at]));",
            (),
            "deadlock",
        ),
        (
            "stream.cuh",
            "barrier_wait(shared_address(&shared.full[turn.at]), turn.phase);",
            (),
            "where it should be",
        ),
        (
            "stream.cuh",
            "if (shared.arrivals != unit.parts - 1) return false;",
            ("--tokens", "1", "--generator", "quiet-device"),
            "where it should be",
        ),
        (
            "routing.cuh",
            "for (int i = block * kRouteFewThreads + threadIdx.x; i < scratch.zeros;\n"
            "       i += kRouteBlocks * kRouteFewThreads) {\n    scratch.head[i] = 0;\n  }",
            (),
            "",  # a unit of no expert: the process ends by a signal
        ),
    ],
    ids=["rows", "empty", "copies", "full", "parts", "zeros"],
)
def test_what_is_left_out_shows(
    tmp_path: Path, run: Run, file: str, code: str, options: tuple[str, ...], shows: str
) -> None:
    """Without one arrival or wait a run fails, so that a right one means something."""
    emulator = _emulator()
    broken = tmp_path / "solution"
    shutil.copytree(emulator.SOLUTION, broken)
    source = broken / "solution" / "cuda" / file
    text = source.read_text()
    assert code in text  # once, or once for few rows and once for many
    source.write_text(text.replace(code, ""))
    emulator.SOLUTION = broken
    done = run("--tokens", "7", *options, build=emulator.build(tmp_path))
    assert done.returncode != 0, done.stdout
    assert shows in done.stdout + done.stderr
