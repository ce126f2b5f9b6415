"""The device code of cuda-topk on a CPU: every way is right, and what would break it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from emulator.runs import Runs

DEFINITION = "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64"


@pytest.fixture(scope="module")
def runs(emulation: Callable[[str], Runs]) -> Runs:
    """Runs of the solution; what is wrong in the emulation ends their process."""
    return emulation(DEFINITION)


def test_a_cluster_is_right_for_every_generator(runs: Runs) -> None:
    """Ties, neighbouring floats, equal scores, powers of two, empty rows, all in one launch."""
    done = runs.run("--rows", "3", "--pages", "34", "--generator", "all")
    assert done.returncode == 0, done.output


@pytest.mark.parametrize("rows", ["1", "10"])
def test_more_rows_than_blocks_and_fewer(runs: Runs, rows: str) -> None:
    """One row of two clusters, and so many that a block has several, one after the other."""
    options = ("--rows", rows, "--pages", "36", "--clusters", "2" if rows == "1" else "1", "4")
    done = runs.run(*options, "--generator", "typical", "ties", "ragged")
    assert done.returncode == 0, done.output


def test_products_of_single_warps_are_right(runs: Runs) -> None:
    """Where warpgroups have no products of their own."""
    warps = runs.solution._replace(defined={"EMULATED_WARPGROUPS": 0})
    done = runs.run("--pages", "34", "--generator", "typical", solution=warps)
    assert done.returncode == 0, done.output


@pytest.mark.parametrize(("way", "pages"), [("0", "20"), ("2", "35")])
def test_short_rows_alone_and_long_contexts(runs: Runs, way: str, pages: str) -> None:
    """The kernels of block tables that are narrow, or too wide for shared memory."""
    done = runs.run("--way", way, "--pages", pages, "--generator", "typical", "ragged")
    assert done.returncode == 0, done.output


@pytest.mark.parametrize(
    ("file", "code", "instead"),
    [
        ("kernels.cuh", "copies_wait();", ""),
        ("kernels.cuh", "clear_bins(selection);\n  const Part part", "const Part part"),
        ("select.cuh", "& 0x1ffcu", "& 0x7fcu"),
    ],
    ids=["wait", "clear", "fold"],
)
def test_what_is_left_out_shows(
    tmp_path: Path, runs: Runs, file: str, code: str, instead: str
) -> None:
    """Without one wait, with bins full of garbage or folded, a run fails."""
    broken = runs.edited(tmp_path, file, code, instead)
    options = ("--rows", "2", "--pages", "34", "--patience", "20000")
    assert runs.run(*options, solution=broken).returncode == 1
