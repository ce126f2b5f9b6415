"""The device code of cuda-prefill on a CPU: every part is right, and what would break it shows."""

import ctypes
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEFINITION = ROOT / "kernels" / "gdn_prefill_qk4_v8_d128_k_last"
EMULATOR = DEFINITION / "probes" / "emulator" / "emulate.py"
FUSED = ("kColumns", "kOneTile", "kTwoTiles", "kFourTiles")
CHUNKED = ("kChunked", "kWide")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _emulator() -> Any:
    spec = importlib.util.spec_from_file_location("emulate", EMULATOR)
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
    """Runs a part; what is wrong in the emulation ends the process."""

    def emulate(*options: str, build: Path = library) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, str(EMULATOR), "--library", str(build), *options]
        return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)

    return emulate


@pytest.mark.parametrize("part", FUSED + CHUNKED)
def test_part_is_right_for_every_generator(run: Run, part: str) -> None:
    """Lengths that end within a chunk, empty sequences, gates and values of all sizes."""
    done = run("--part", part, "--tokens", "21", "--sequences", "3", "--generator", "all")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("part", "tokens"), [*((p, 300) for p in FUSED), *((p, 500) for p in CHUNKED)]
)
def test_part_is_right_where_stages_are_used_again(run: Run, part: str, tokens: int) -> None:
    """More chunks than a ring has stages, so that every barrier goes round."""
    done = run("--part", part, "--tokens", str(tokens), "--sequences", "1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("part", CHUNKED)
def test_blocks_take_several_tasks_of_the_chunked_parts(run: Run, part: str) -> None:
    """On fewer multiprocessors than there is work, blocks load across the ends of sequences."""
    options = ("--tokens", "330", "--sequences", "6", "--processors", "3")
    done = run("--part", part, *options, "--generator", "ragged")
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_tokens_at_all(run: Run) -> None:
    """States of empty sequences are zero, whoever serves the call."""
    for part in FUSED + CHUNKED:
        done = run("--part", part, "--tokens", "0", "--sequences", "2", "--generator", "ragged")
        assert done.returncode == 0, (part, done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("part", "tokens", "seeds"),
    [
        *((part, "40", ("250", "536")) for part in FUSED),
        *((part, "66", ("79", "504")) for part in CHUNKED),
    ],
)
def test_a_state_of_one_write_is_read_by_a_query_across_it(
    run: Run, part: str, tokens: str, seeds: tuple[str, str]
) -> None:
    """Draws in which a row of the output cancels in a state that has just been forgotten."""
    for seed in seeds:
        options = ("--tokens", tokens, "--sequences", "1", "--seed", seed)
        done = run("--part", part, *options, "--generator", "extreme-gates")
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_workload_is_dispatched_and_sizes_matter(library: Path) -> None:
    """Few tokens are served in one launch, few long sequences by the chunked part."""
    names = _emulator().parts()
    part_for = ctypes.CDLL(str(library)).part_for
    served = {}
    for line in (DEFINITION / "workloads.jsonl").read_text().splitlines():
        axes = json.loads(line)["axes"]
        shape = (axes["total_seq_len"], axes["num_seqs"])
        served[shape] = names[part_for(*shape)]
    assert set(served.values()) <= set(FUSED + CHUNKED)
    assert served[6, 1] == "kColumns"
    assert served[2107, 1] in CHUNKED
    assert len(set(served.values())) > 2


SHARP = "sharp_ = stage.decay[kChunk - kLastTokens - 1].left < kSharpDecay;"
ACROSS = ("--generator", "extreme-gates", "--seed", "536", "--tokens", "40")


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
            "barrier_wait(memory.update_there(), updates);",
            ("--part", "kWide"),
            "not finite where it should be",
        ),
        (
            "chunked/wide.cuh",
            "flag_take(p.flags + slot * kHeads + task.head());",
            ("--part", "kWide"),
            "scratch memory is not zero",
        ),
    ],
    ids=["arrival", "exchange", "wait", "sharp", "sharp-chunked", "copies", "update", "flag"],
)
def test_what_is_left_out_shows(
    tmp_path: Path, run: Run, file: str, code: str, options: tuple[str, ...], shows: str
) -> None:
    """Without one arrival, wait or correction a run fails, so that a right one means something."""
    emulator = _emulator()
    broken = tmp_path / "solution"
    shutil.copytree(emulator.SOLUTION, broken)
    source = broken / "solution" / "cuda" / file
    text = source.read_text()
    assert text.count(code) == 1
    source.write_text(text.replace(code, ""))
    emulator.SOLUTION = broken
    library = emulator.build(tmp_path, {})
    done = run("--tokens", "70", "--sequences", "1", *options, build=library)
    assert done.returncode == 1, done.stderr
    assert shows in done.stdout + done.stderr
