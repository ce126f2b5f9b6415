"""Runs cuda-split's device code on a CPU and compares it with the reference, strict rule.

Usage: python emulate.py --tokens 2 --pages 64 --generator holes typical
"""

import argparse
import ctypes
import math
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
from kopt_harness.tunables import choose, read_tunables, render

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parents[1]
SOLUTION = DEFINITION / "solutions" / "cuda-split"
TENSORS = ("q_nope", "q_pe", "ckv_cache", "kpe_cache", "sparse_indices")
BOUNDS = {"output": 0.008, "lse": 0.00001}  # of definition.json
AXES = {"num_qo_heads": 16, "head_dim_ckv": 512, "head_dim_kpe": 64, "page_size": 64, "topk": 2048}
LEFT_OUT = ("ptx.cuh", "dsa_attention.cu")  # a stand-in is here; binds tensors
DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) char (\w+)\[\];")


def _module(name):
    spec = spec_from_file_location(name, DEFINITION / f"{name}.py")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder, chosen):
    """Compiles the solution's sources with this folder's stand-ins; returns the library's path."""
    for source in (SOLUTION / "solution" / "cuda").glob("*.cu*"):
        if source.name not in LEFT_OUT:
            text = DYNAMIC.sub(r"char* const \1 = fibers::shared_memory();", source.read_text())
            (folder / source.name).write_text(text)
    tunables = choose(read_tunables(SOLUTION), chosen)
    (folder / "tunables.h").write_text(render("cuda", tunables).content)
    library = folder / "emulator.so"
    command = [cxx() or "g++", "-O1", "-std=c++20", "-fPIC", "-shared"]
    command += [f"-I{folder}", f"-I{HERE}", str(HERE / "emulator.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def _compare(library, name, inputs, expected, processors):
    tokens = inputs["q_nope"].shape[0]
    actual = {
        "output": torch.full((tokens, 16, 512), math.nan, dtype=torch.bfloat16),
        "lse": torch.full((tokens, 16), math.nan),
    }
    kept = [inputs[key].contiguous() for key in TENSORS] + list(actual.values())
    pointers = (ctypes.c_void_p * len(kept))(*[x.data_ptr() for x in kept])
    cached = inputs["ckv_cache"].shape[0] * AXES["page_size"]
    scale = ctypes.c_float(inputs["sm_scale"])
    if not library.run(pointers, ctypes.c_int64(tokens), ctypes.c_int64(cached), scale, processors):
        sys.stdout.write(f"{name:14} not launched\n")
        return False
    right = True
    for key, bound in BOUNDS.items():
        rule = StrictBound(rel=bound, source="definition.json")
        error = strict_output(key, expected[key], actual[key], rule).error
        right &= error.ok
        verdict = "right" if error.ok else error.detail
        sys.stdout.write(f"{name:14} {key:6} worst row {error.max_rel or 0.0:.1e}  {verdict}\n")
        sys.stdout.flush()
    return right


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tunable", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--library", type=Path, help="a build of before")
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--processors", type=int, default=132)
    parser.add_argument("--generator", nargs="+", default=["typical"])
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    """Draws inputs, runs the kernel, exits with 1 where an output is wrong."""
    options = _options()
    axes = AXES | {"num_tokens": options.tokens, "num_pages": options.pages}
    reference, module = _module("reference"), _module("inputs")
    every = module.GENERATORS
    names = list(every) if options.generator == ["all"] else options.generator
    chosen = {name: int(value) for name, value in (x.split("=") for x in options.tunable)}
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(options.library or build(Path(folder), chosen)))
        right = True
        for name in names:
            rng = torch.Generator().manual_seed(options.seed)
            static = module.draw_static(axes, rng)
            inputs = static | every[name].draw(axes, rng, static)
            expected = dict(zip(BOUNDS, reference.precise(**inputs), strict=True))
            right &= _compare(library, name, inputs, expected, options.processors)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
