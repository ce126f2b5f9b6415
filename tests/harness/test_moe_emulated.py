"""The device code of cuda-moe on a CPU: every tile is right, and what would break it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from emulator.runs import Runs

DEFINITION = "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048"


@pytest.fixture(scope="module")
def runs(emulation: Callable[[str], Runs]) -> Runs:
    """Runs of the solution; what is wrong in the emulation ends their process."""
    return emulation(DEFINITION)


@pytest.mark.parametrize("tile", ["-1", "16"])
def test_tile_is_right_for_every_generator(runs: Runs, tile: str) -> None:
    """No expert, all experts, one row and many of an expert, scales and routing of all kinds."""
    done = runs.run("--tile", tile, "--tokens", "19", "--generator", "all")
    assert done.returncode == 0, done.output


@pytest.mark.parametrize("tile", ["64", "256"])
def test_tile_for_many_rows_is_right(runs: Runs, tile: str) -> None:
    """Several tiles of an expert, the last of them cut off, routed by many blocks."""
    options = ("--tokens", "140", "--generator", "ragged-experts", "two-experts")
    done = runs.run("--tile", tile, *options)
    assert done.returncode == 0, done.output


def test_blocks_that_run_at_once_are_right(runs: Runs) -> None:
    """Units are handed out in any order, and rows come from blocks that still run."""
    done = runs.run("--tokens", "19", "--tile", "16", "--at-once", "3", "--seed", "2")
    assert done.returncode == 0, done.output


def test_one_token_is_right(runs: Runs) -> None:
    """With one expert, and with two, the depth of projections is split among blocks."""
    for generator in ("quiet-device", "two-experts"):
        done = runs.run("--tokens", "1", "--processors", "7", "--generator", generator)
        assert done.returncode == 0, done.output


@pytest.mark.slow  # compiles each of them
@pytest.mark.parametrize(
    ("file", "code", "times", "options", "shows"),
    [
        (
            "stream.cuh",
            "while (load_acquire(scratch.done + unit.tile) < S::kSlices) {\n        }",
            1,
            ("--tokens", "1", "--generator", "quiet-device"),
            "not finite where it should be",
        ),
        (
            "stream.cuh",
            "if (lane == 0) barrier_arrive(shared_address(&shared.empty[turn.at]));",
            2,  # for few rows, and for many
            (),
            "deadlock",
        ),
        (
            "stream.cuh",
            "barrier_arrive_after_copies(shared_address(&shared.full[turn.at]));",
            1,
            (),
            "deadlock",
        ),
        (
            "stream.cuh",
            "barrier_wait(shared_address(&shared.full[turn.at]), turn.phase);",
            2,
            (),
            "more arrivals than a barrier waits for",
        ),
        (
            "stream.cuh",
            "if (shared.arrivals != unit.parts - 1) return false;",
            1,
            ("--tokens", "1", "--generator", "quiet-device"),
            "where it should be",
        ),
        (
            "routing.cuh",
            "for (int i = block * kRouteFewThreads + threadIdx.x; i < scratch.zeros;\n"
            "       i += kRouteBlocks * kRouteFewThreads) {\n    scratch.head[i] = 0;\n  }",
            1,
            (),
            "",  # a unit of no expert: the process ends by a signal
        ),
    ],
    ids=["rows", "empty", "copies", "full", "parts", "zeros"],
)
def test_what_is_left_out_shows(
    tmp_path: Path,
    runs: Runs,
    file: str,
    code: str,
    times: int,
    options: tuple[str, ...],
    shows: str,
) -> None:
    """Without one arrival or wait a run fails, so that a right one means something."""
    broken = runs.edited(tmp_path, file, code, times=times)
    done = runs.run("--tokens", "7", *options, solution=broken)
    assert done.returncode != 0, done.output
    assert shows in done.output
