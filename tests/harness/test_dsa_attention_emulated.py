"""The device code of cuda-split on a CPU: every shape is right, and what would break it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from emulator.runs import Runs

DEFINITION = "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"


@pytest.fixture(scope="module")
def runs(emulation: Callable[[str], Runs]) -> Runs:
    """Runs of the solution; what is wrong in the emulation ends their process."""
    return emulation(DEFINITION)


def test_every_generator_is_right(runs: Runs) -> None:
    """Holes anywhere, empty rows and tiles, one token, large and equal logits; 16 blocks."""
    done = runs.run("--tokens", "1", "--processors", "16", "--generator", "all")
    assert done.returncode == 0, done.output


@pytest.mark.parametrize(
    ("tokens", "processors"),
    [("1", "64"), ("1", "32"), ("3", "32")],
    ids=["64 blocks", "32 blocks", "two launches"],
)
def test_every_shape_is_right(runs: Runs, tokens: str, processors: str) -> None:
    """The shape follows from the number of multiprocessors; what does not fit is launched later."""
    options = ("--tokens", tokens, "--processors", processors)
    done = runs.run(*options, "--generator", "empty-tiles")
    assert done.returncode == 0, done.output


def test_too_few_multiprocessors_are_refused(runs: Runs) -> None:
    """Blocks that wait for each other are not launched where they cannot run at once."""
    done = runs.run("--tokens", "1", "--processors", "15")
    assert done.returncode == 1
    assert "not launched" in done.output


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
def test_what_is_left_out_shows(
    tmp_path: Path, runs: Runs, file: str, code: str, shows: str
) -> None:
    """Without one wait, correction or reset a run fails, so that a right one means something."""
    # A rehearsal would give the rows the time to come.
    broken = runs.edited(tmp_path, file, code)._replace(tunables={"REHEARSE_ROWS": 0})
    done = runs.run("--tokens", "1", "--processors", "16", solution=broken)
    assert done.returncode == 1, done.output
    assert shows in done.output
