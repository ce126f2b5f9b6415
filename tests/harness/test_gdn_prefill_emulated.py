"""The device code of cuda-prefill on a CPU: every part is right, and what would break it shows."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from emulator.runs import Runs

DEFINITION = "gdn_prefill_qk4_v8_d128_k_last"
FUSED = ("kColumns", "kOneTile", "kTwoTiles", "kFourTiles")
CHUNKED = ("kChunked", "kWide")


@pytest.fixture(scope="module")
def runs(emulation: Callable[[str], Runs]) -> Runs:
    """Runs of the solution; what is wrong in the emulation ends their process."""
    return emulation(DEFINITION)


@pytest.mark.parametrize("part", FUSED + CHUNKED)
def test_part_is_right_for_every_generator(runs: Runs, part: str) -> None:
    """Lengths that end within a chunk, empty sequences, gates and values of all sizes."""
    done = runs.run("--part", part, "--tokens", "21", "--sequences", "3", "--generator", "all")
    assert done.returncode == 0, done.output


@pytest.mark.parametrize(
    ("part", "tokens"), [*((p, 300) for p in FUSED), *((p, 500) for p in CHUNKED)]
)
def test_part_is_right_where_stages_are_used_again(runs: Runs, part: str, tokens: int) -> None:
    """More chunks than a ring has stages, so that every barrier goes round."""
    done = runs.run("--part", part, "--tokens", str(tokens), "--sequences", "1")
    assert done.returncode == 0, done.output


@pytest.mark.parametrize("at_once", ["1", "3"])
@pytest.mark.parametrize("part", CHUNKED)
def test_blocks_take_several_tasks_of_the_chunked_parts(
    runs: Runs, part: str, at_once: str
) -> None:
    """On fewer multiprocessors than there is work, blocks load across the ends of sequences."""
    options = ("--tokens", "330", "--sequences", "6", "--processors", "3", "--at-once", at_once)
    done = runs.run("--part", part, *options, "--generator", "ragged")
    assert done.returncode == 0, done.output


def test_no_tokens_at_all(runs: Runs) -> None:
    """States of empty sequences are zero, whoever serves the call."""
    for part in FUSED + CHUNKED:
        done = runs.run(
            "--part", part, "--tokens", "0", "--sequences", "2", "--generator", "ragged"
        )
        assert done.returncode == 0, (part, done.output)


@pytest.mark.parametrize(
    ("part", "tokens", "seeds"),
    [
        *((part, "40", ("250", "536")) for part in FUSED),
        *((part, "66", ("79", "504")) for part in CHUNKED),
    ],
)
def test_a_state_of_one_write_is_read_by_a_query_across_it(
    runs: Runs, part: str, tokens: str, seeds: tuple[str, str]
) -> None:
    """Draws in which a row of the output cancels in a state that has just been forgotten."""
    for seed in seeds:
        options = ("--tokens", tokens, "--sequences", "1", "--seed", seed)
        done = runs.run("--part", part, *options, "--generator", "extreme-gates")
        assert done.returncode == 0, done.output


def test_every_workload_is_dispatched_and_sizes_matter(checkout: Path, runs: Runs) -> None:
    """Few tokens are served in one launch, few long sequences by the chunked part."""
    names = runs.driver.parts()
    part_for = ctypes.CDLL(str(runs.library())).part_for
    served = {}
    for line in (checkout / "kernels" / DEFINITION / "workloads.jsonl").read_text().splitlines():
        axes = json.loads(line)["axes"]
        shape = (axes["total_seq_len"], axes["num_seqs"])
        served[shape] = names[part_for(*shape)]
    assert set(served.values()) <= set(FUSED + CHUNKED)
    assert served[6, 1] == "kColumns"
    assert served[2107, 1] in CHUNKED
    assert len(set(served.values())) > 2


SHARP = "sharp_ = stage.decay[kChunk - kLastTokens - 1].left < kSharpDecay;"
ACROSS = ("--generator", "extreme-gates", "--seed", "536", "--tokens", "40")


@pytest.mark.slow  # compiles each of them
@pytest.mark.parametrize(
    ("file", "code", "options", "shows"),
    [
        (
            "fused/value_side.cuh",
            "announce(shared_.handed[tile_][number].state);",
            ("--part", "kOneTile"),
            "deadlock",
        ),
        (
            "fused/value_side.cuh",
            "if constexpr (kParts > 1) add_up(sum, chunk);",
            ("--part", "kColumns"),
            "outside the strict bound",
        ),
        (
            "fused/key_side.cuh",
            "await(shared_.barriers[index].loaded, chunk / ShapeT::kStages);",
            ("--part", "kOneTile"),
            "not finite where it should be",
        ),
        ("fused/value_side.cuh", SHARP, ("--part", "kColumns", *ACROSS), "outside the strict"),
        (
            "chunked/chain.cuh",
            "if (sharp) output.read(rest, step, stage + S::kQ, lane);",
            ("--part", "kChunked", *ACROSS[:2], "--seed", "79", "--tokens", "66"),
            "outside the strict",
        ),
        (
            "chunked/schedule.cuh",
            "barrier_arrive_after_copies(memory.full(stage));",
            ("--part", "kChunked"),
            "copies that nobody waits for",
        ),
        (
            "chunked/wide.cuh",
            "if (!last) warp_arrive(memory.empty(turn.stage), lane);",
            ("--part", "kWide", "--tokens", "200"),
            "deadlock",
        ),
        (
            "chunked/wide.cuh",
            "sharp = sharp_after(record);",
            ("--part", "kWide", *ACROSS[:2], "--seed", "79", "--tokens", "66"),
            "outside the strict",
        ),
        (
            "chunked/wide.cuh",
            "flag_take(p.flags + slot * kHeads + task.head());",
            ("--part", "kWide"),
            "scratch memory is not zero",
        ),
    ],
    ids=[
        "arrival",
        "exchange",
        "wait",
        "sharp",
        "sharp-chunked",
        "copies",
        "release",
        "sharp-wide",
        "flag",
    ],
)
def test_what_is_left_out_shows(
    tmp_path: Path, runs: Runs, file: str, code: str, options: tuple[str, ...], shows: str
) -> None:
    """Without one arrival, wait or correction a run fails, so that a right one means something."""
    broken = runs.edited(tmp_path, file, code)
    done = runs.run("--tokens", "70", "--sequences", "1", *options, solution=broken)
    assert done.returncode == 1, done.output
    assert shows in done.output
