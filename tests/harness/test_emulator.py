"""What hardware forbids ends a run of the emulator, and what it allows comes out right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kopt_harness.errors import InvalidInputError

if TYPE_CHECKING:
    from emulator.runs import Runs

DRIVER = Path(__file__).parent / "data" / "emulator" / "emulate.py"


@pytest.fixture(scope="module")
def runs(emulation: Callable[[Path], Runs]) -> Runs:
    """Kernels that each do one thing."""
    return emulation(DRIVER)


@pytest.mark.parametrize(
    ("kernel", "shows"),
    [
        ("misaligned", "misaligned access to shared memory"),
        ("beyond", "access beyond shared memory"),
        ("no_address", "not an address in the block's shared memory"),
        ("outside", "read outside of every tensor"),
        ("misaligned_copy", "misaligned copy"),
        ("unawaited_copy", "copies that nobody waits for"),
        ("unawaited_bulk_copy", "copies into a block that has ended"),
        ("unexpected_bytes", "more bytes than expected"),
        ("unawaited_product", "products that nobody waits for"),
        ("no_barrier", "no barrier there"),
        ("missing_arrival", "deadlock"),
        ("many_arrivals", "more arrivals than a barrier waits for"),
        ("other_counts", "threads differ on how many meet"),
        ("parted_lanes", "lanes of a warp do different things at once"),
        ("left_out_lanes", "a mask that leaves lanes out"),
        ("large_variable", "more shared memory than a block may have"),
    ],
)
def test_what_hardware_forbids_ends_the_run(runs: Runs, kernel: str, shows: str) -> None:
    """The message says which rule it was."""
    done = runs.run(kernel)
    assert done.returncode == 1, done.output
    assert shows in done.output


def test_a_run_without_an_end_is_ended(runs: Runs) -> None:
    """Threads that meet for ever make progress, so that it is no deadlock."""
    done = runs.run("endless", "--patience", "1000")
    assert done.returncode == 1, done.output
    assert "no end in sight" in done.output


def test_memory_of_a_neighbour_that_has_ended_is_gone(runs: Runs) -> None:
    """A block of a cluster must not end while others store into it."""
    done = runs.run("ended_neighbour", "--cluster", "2")
    assert done.returncode == 1, done.output
    assert "shared memory of a block that has ended" in done.output


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_clusters_copies_and_exchanges_are_right(runs: Runs, seed: str) -> None:
    """In any order of warps and copies; what was never written is no number."""
    done = runs.run("right", "--cluster", "2", "--seed", seed)
    assert done.returncode == 0, done.output


def test_blocks_wait_for_each_other_only_where_they_run_at_once(runs: Runs) -> None:
    """One after the other, a block waits for the next for ever."""
    together = runs.run("waits_for_the_next_block", "--at-once", "2")
    assert together.returncode == 0, together.output
    alone = runs.run("waits_for_the_next_block")
    assert alone.returncode == 1, alone.output
    assert "deadlock" in alone.output


@pytest.mark.parametrize(
    ("asked", "wanted", "status"),
    [("0", "49152", 0), ("0", "49153", 1), ("65536", "65536", 0), ("65536", "65537", 1)],
)
def test_much_shared_memory_is_to_be_asked_for(
    runs: Runs, asked: str, wanted: str, status: int
) -> None:
    """Beyond 48 KB a launch fails unless the kernel was allowed as much."""
    done = runs.run("right", "--cluster", "2", "--bytes", wanted, "--asked", asked)
    assert done.output.endswith(f"status {status}\n")


def test_no_kernel_is_allowed_more_than_a_block_may_have(runs: Runs) -> None:
    """227 KB on an H200 or a B200."""
    done = runs.run("right", "--asked", str((227 << 10) + 1))
    assert done.output.endswith("status 1\n")


def test_only_what_has_changed_is_compiled_again(runs: Runs, tmp_path: Path) -> None:
    """An edit compiles the files that include it, and no more."""
    alone = type(runs)(DRIVER, tmp_path / "kept")
    before = alone.library()
    objects = before.parent / "objects"
    known = set(objects.iterdir())
    assert alone.library() == before
    edited = alone.edited(tmp_path, "kernels.cuh", "kBytes = 1024", "kBytes = 1040")
    assert alone.library(edited) != before
    assert len(known) > 1
    assert len(set(objects.iterdir()) - known) == 1


def test_a_text_that_is_to_be_replaced_must_be_there(runs: Runs) -> None:
    """A driver that narrows a solution does not go on without having done so."""
    gone = runs.solution._replace(replaced={"kBytes = 7;": "kBytes = 8;"})
    with pytest.raises(InvalidInputError, match="kBytes = 7"):
        runs.library(gone)
