"""Runs cuda-chunked's device code on a CPU and compares it with the reference, strict rule.

Usage: python warps.py --shape 'Shape<16, 1, 3, false, 1, 2>' --tokens 150 --sequences 4 --generator ragged
"""

import argparse
import ctypes
import importlib.util
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from kopt_harness.check.strict import strict_output
from kopt_harness.schema import StrictBound

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parents[1]
SOURCES = DEFINITION / "solutions" / "cuda-chunked" / "solution" / "cuda"
HEADERS = ("problem.cuh", "shapes.cuh", "schedule.cuh", "chain.cuh", "wide.cuh", "tiles.cuh", "fused.cuh", "prepare.cuh")
TENSORS = ("q", "k", "v", "state", "A_log", "a", "dt_bias", "b", "cu_seqlens")
BOUNDS = {"output": 0.016, "new_state": 0.02}
HEADS, HEAD_SIZE = 8, 128


def _module(name):
    spec = importlib.util.spec_from_file_location(name, DEFINITION / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(shape, prepare_blocks, folder):
    """Compiles the headers beside the stand-ins of this folder; returns the library."""
    for name in HEADERS:
        text = (SOURCES / name).read_text()
        text = text.replace(
            "extern __shared__ __align__(128) char shared[];", "char* shared = warps::shared;"
        )
        (folder / name).write_text(text)
    for name in ("cuda_runtime.h", "cuda_bf16.h", "ptx.cuh", "wgmma.cuh", "warps.cpp"):
        (folder / name).write_text((HERE / name).read_text())
    (folder / "tunables.h").write_text(
        f"#define KOPT_PREPARE_BLOCKS {prepare_blocks}\n#define KOPT_TEAMS 5\n"
    )
    library = folder / "warps.so"
    command = ["g++", "-O2", "-w", "-std=c++20", "-shared", "-fPIC", "-I.", f"-DSHAPE={shape}"]
    subprocess.run([*command, "warps.cpp", "-o", str(library)], cwd=folder, check=True)
    return ctypes.CDLL(str(library))


def _compare(library, name, inputs, expected, processors):
    tokens, sequences = inputs["q"].shape[0], inputs["cu_seqlens"].numel() - 1
    actual = {
        "output": torch.full((tokens, HEADS, HEAD_SIZE), math.nan, dtype=torch.bfloat16),
        "new_state": torch.full((sequences, HEADS, HEAD_SIZE, HEAD_SIZE), math.nan),
    }
    kept = [inputs[key] if inputs[key] is None else inputs[key].contiguous() for key in TENSORS]
    pointers = [None if x is None else x.data_ptr() for x in (*kept, *actual.values())]
    scale = inputs["scale"] or 1.0 / math.sqrt(HEAD_SIZE)
    numbers = (ctypes.c_float(scale), tokens, sequences, processors)
    library.run(*map(ctypes.c_void_p, pointers), *numbers)
    right = True
    for key, bound in BOUNDS.items():
        rule = StrictBound(rel=bound, source="definition.json")
        error = strict_output(key, expected[key], actual[key], rule).error
        right &= error.ok
        verdict = "right" if error.ok else error.detail
        sys.stdout.write(f"{name:14} {key:9} worst row {error.max_rel or 0.0:.1e}  {verdict}\n")
        sys.stdout.flush()
    return right


def main():
    """Draws inputs, runs both kernels, exits with 1 where an output is wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--shape", default="Shape<32, 1, 3, false, 1>")
    parser.add_argument("--prepare-blocks", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=134)
    parser.add_argument("--sequences", type=int, default=3)
    parser.add_argument("--processors", type=int, default=132)
    parser.add_argument("--generator", nargs="+", default=["typical"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    axes = {"num_q_heads": 4, "num_k_heads": 4, "num_v_heads": HEADS, "head_size": HEAD_SIZE}
    axes |= {"total_seq_len": options.tokens, "num_seqs": options.sequences}
    reference, generators = _module("reference"), _module("inputs").GENERATORS
    names = list(generators) if options.generator == ["all"] else options.generator
    with tempfile.TemporaryDirectory() as folder:
        library = _build(options.shape, options.prepare_blocks, Path(folder))
        right = True
        for name in names:
            inputs = generators[name].draw(axes, torch.Generator().manual_seed(options.seed))
            expected = dict(zip(BOUNDS, reference.precise(**inputs), strict=True))
            right &= _compare(library, name, inputs, expected, options.processors)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
