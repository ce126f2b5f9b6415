"""Runs cuda-topk's device code on a CPU and judges the selection by check.py, both tiers.

Usage: python emulate.py --rows 3 --pages 40 --way 1 --generator ties ragged
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
from kopt_harness.catalog import Catalog
from kopt_harness.environ import cxx
from kopt_harness.root import find_root
from kopt_harness.tunables import choose, read_tunables, render

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parents[1]
SOLUTION = DEFINITION / "solutions" / "cuda-topk"
INPUTS = ("q_index_fp8", "k_index_cache_fp8", "weights", "seq_lens", "block_table")
SOURCES = ("problem.cuh", "products.cuh", "wgmma.cuh", "schedule.cuh", "select.cuh", "kernels.cuh")
DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) uint8_t dynamic_shared\[\];")
SMALL = {"WARPGROUPS": 2}
"""Few threads, so that a run takes seconds."""


def _module(name):
    spec = spec_from_file_location(name, DEFINITION / f"{name}.py")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder, chosen):
    """Compiles the solution's kernels with this folder's stand-ins; returns the library's path."""
    for name in SOURCES:
        text = (SOLUTION / "solution" / "cuda" / name).read_text()
        text = DYNAMIC.sub(
            "#define dynamic_shared "
            "reinterpret_cast<uint8_t*>(fibers::shared_memory(cluster_rank()))",
            text,
        )
        (folder / name).write_text(text)
    tunables = choose(read_tunables(SOLUTION), chosen)
    (folder / "tunables.h").write_text(render("cuda", tunables).content)
    library = folder / "emulator.so"
    flags = ["-O1", "-std=c++20", "-fPIC", "-shared", f"-I{folder}", f"-I{HERE}"]
    command = [cxx() or "g++", *flags, str(HERE / "emulator.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", type=int, default=1, help="0 short rows, 1 one launch, 2 two")
    parser.add_argument("--tunable", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--library", type=Path, help="a build of before")
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--clusters", type=int, nargs=2, default=(1, 4), metavar=("N", "BLOCKS"))
    parser.add_argument("--unstaged", action="store_true", help="the table stays in memory")
    parser.add_argument("--generator", nargs="+", default=["typical"])
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _judge(definition, inputs, expected, actual):
    check = _module("check")
    named = ({"topk_indices": expected}, {"topk_indices": actual})
    return [check.compare(tier, definition, inputs, *named) for tier in ("contest", "strict")]


def main():
    """Draws inputs, runs the kernels, exits with 1 where a selection is wrong."""
    options = _options()
    definition = Catalog(find_root(DEFINITION.parents[1])).resolve("dsa_topk")
    cached = max(4 * options.pages, options.rows * options.pages + 3 * options.pages)
    axes = {name: axis.value for name, axis in definition.axes.items() if axis.type == "const"}
    axes |= {"batch_size": options.rows, "max_num_pages": options.pages, "num_pages": cached}
    reference, drawn = _module("reference"), _module("inputs")
    names = list(drawn.GENERATORS) if options.generator == ["all"] else options.generator
    chosen = SMALL | {name: int(value) for name, value in (x.split("=") for x in options.tunable)}
    rng = torch.Generator().manual_seed(options.seed)
    static = drawn.draw_static(axes, rng)
    right = True
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(options.library or build(Path(folder), chosen)))
        for name in names:
            inputs = static | drawn.GENERATORS[name].draw(axes, rng, static)
            expected = reference.precise(**inputs)[0]
            kept = [inputs[key].contiguous() for key in INPUTS]
            kept.append(torch.full_like(expected, -77))
            pointers = (ctypes.c_void_p * len(kept))(*[tensor.data_ptr() for tensor in kept])
            shape = (options.rows, options.pages, cached)
            library.run(pointers, *shape, options.way, *options.clusters, not options.unstaged)
            tiers = _judge(definition, inputs, expected, kept[-1])
            right &= all(tier.verdict == "pass" for tier in tiers)
            words = [tier.outputs[0].detail or tier.verdict for tier in tiers]
            sys.stdout.write(f"{name:16} {' | '.join(words)}\n")
            sys.stdout.flush()
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
