"""Runs cuda-moe's device code on a CPU, with narrower matrices, and compares by the strict rule.

Usage: python emulate.py --tokens 33 --tile 16 --generator typical ragged-experts
"""

import argparse
import ctypes
import re
import subprocess
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch
from kopt_harness.check.strict import strict_output
from kopt_harness.environ import cxx
from kopt_harness.schema import StrictBound

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parents[1]
SOLUTION = DEFINITION / "solutions" / "cuda-moe"
TENSORS = (
    "routing_logits",
    "routing_bias",
    "hidden_states",
    "hidden_states_scale",
    "gemm1_weights",
    "gemm1_weights_scale",
    "gemm2_weights",
    "gemm2_weights_scale",
)
BOUND = 0.06  # of definition.json
HIDDEN, INNER = 512, 512  # in place of 7168 and 2048
NARROWER = {
    "constexpr int kHidden = 7168;": f"constexpr int kHidden = {HIDDEN};",
    "constexpr int kInner = 2048;": f"constexpr int kInner = {INNER};",
    "constexpr int kCombineThreads = 224;": "constexpr int kCombineThreads = 64;",
    "constexpr int kRouteBlocks = 8;": "constexpr int kRouteBlocks = 1;",  # no clusters here
}
STAND_INS = ("ptx.cuh", "wgmma.cuh", "tensor_map.cuh")
DYNAMIC = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];")


def _module(name):
    spec = spec_from_file_location(f"moe_{name}", DEFINITION / f"{name}.py")
    module = sys.modules[f"moe_{name}"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder):
    """Compiles the solution's headers with this folder's stand-ins; returns the library's path."""
    narrowed = set()
    for source in (SOLUTION / "solution" / "cuda").glob("*.cuh"):
        if source.name in STAND_INS:
            continue
        text = source.read_text()
        for wide, narrow in NARROWER.items():
            if wide in text:
                narrowed.add(wide)
                text = text.replace(wide, narrow)
        text = DYNAMIC.sub(
            r"\1* const \2 = static_cast<\1*>(fibers::dynamic_shared_memory());", text
        )
        (folder / source.name).write_text(text)
    assert narrowed == set(NARROWER), "a width was not found in the sources"
    (folder / "tunables.h").write_text("#pragma once\n")
    library = folder / "emulator.so"
    flags = ["-O2", "-std=c++20", "-fPIC", "-shared", f"-I{folder}", f"-I{HERE}"]
    command = [cxx() or "g++", *flags, str(HERE / "emulator.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def _compare(library, name, inputs, expected, options):
    tokens = inputs["routing_logits"].shape[0]
    actual = torch.full((tokens, HIDDEN), float("nan"), dtype=torch.bfloat16)
    kept = [inputs[key].contiguous() for key in TENSORS] + [actual]
    pointers = (ctypes.c_void_p * len(kept))(*[x.data_ptr() for x in kept])
    tile = library.run(
        pointers,
        tokens,
        int(inputs["local_expert_offset"]),
        ctypes.c_float(inputs["routed_scaling_factor"]),
        options.tile,
        options.processors,
    )
    if tile < 0:
        sys.stdout.write(f"{name:14} not launched\n")
        return False
    error = strict_output(
        "output", expected, actual, StrictBound(rel=BOUND, source="definition.json")
    ).error
    verdict = "right" if error.ok else error.detail
    sys.stdout.write(f"{name:14} tile {tile:3} worst row {error.max_rel or 0.0:.1e}  {verdict}\n")
    sys.stdout.flush()
    return error.ok


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, help="a build of before")
    parser.add_argument("--keep", type=Path, help="leave the build there")
    parser.add_argument("--tokens", type=int, default=7)
    parser.add_argument("--tile", type=int, default=0, help="else the one that serves such calls")
    parser.add_argument("--processors", type=int, default=3)
    parser.add_argument("--generator", nargs="+", default=["typical"])
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    """Draws inputs, runs the kernels, exits with 1 where an output is wrong."""
    options = _options()
    axes = {
        "seq_len": options.tokens,
        "num_experts": 256,
        "num_local_experts": 32,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "gemm1_out_size": 2 * INNER,
        "num_hidden_blocks": HIDDEN // 128,
        "num_intermediate_blocks": INNER // 128,
        "num_gemm1_out_blocks": 2 * INNER // 128,
    }
    reference, inputs_of = _module("reference"), _module("inputs")
    names = list(inputs_of.GENERATORS) if options.generator == ["all"] else options.generator
    rng = torch.Generator().manual_seed(options.seed)
    static = inputs_of.draw_static(axes, rng)
    with tempfile.TemporaryDirectory() as folder:
        built = options.library or build(options.keep or Path(folder))
        library = ctypes.CDLL(str(built))
        right = True
        for name in names:
            drawn = inputs_of.GENERATORS[name].draw(axes, rng) | static
            (expected,) = reference.precise(**drawn)
            right &= _compare(library, name, drawn, expected, options)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
