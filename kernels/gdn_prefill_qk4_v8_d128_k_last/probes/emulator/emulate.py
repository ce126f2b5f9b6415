"""Runs cuda-prefill's device code on a CPU and compares it with the reference, strict rule.

Usage: python emulate.py --tokens 150 --sequences 4 --part kChunked --generator ragged typical
"""

import argparse
import ctypes
import math
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch
from kopt_harness.check.strict import strict_output
from kopt_harness.environ import cxx
from kopt_harness.schema import StrictBound
from kopt_harness.tunables import choose, read_tunables, render

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parents[1]
SOLUTION = DEFINITION / "solutions" / "cuda-prefill"
TENSORS = ("q", "k", "v", "state", "A_log", "a", "dt_bias", "b", "cu_seqlens")
BOUNDS = {"output": 0.016, "new_state": 0.02}  # of definition.json
HEADS, HEAD_SIZE = 8, 128
LEFT_OUT = ("ptx.cuh", "wgmma.cuh", "maps.cuh", "gdn_prefill.cu")  # stand-ins; binds tensors
DYNAMIC = re.compile(r"extern __shared__ __align__\(\d+\) (\w+) (\w+)\[\];")


def _module(name):
    spec = spec_from_file_location(name, DEFINITION / f"{name}.py")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parts():
    """Names of the parts that the solution dispatches to, as it numbers them."""
    text = (SOLUTION / "solution" / "cuda" / "dispatch.cuh").read_text()
    return re.findall(
        r"^  (k\w+),", text.split("enum class Part {")[1].split("};")[0], re.MULTILINE
    )


def _run(*command):
    subprocess.run([str(word) for word in command], check=True)


def build(folder, chosen):
    """Compiles the solution's sources with this folder's stand-ins; returns the library's path."""
    sources = SOLUTION / "solution" / "cuda"
    for source in sources.rglob("*.cu*"):
        name = source.relative_to(sources)
        if str(name) not in LEFT_OUT:
            target = folder / name.with_suffix(".cpp" if name.suffix == ".cu" else name.suffix)
            target.parent.mkdir(exist_ok=True)
            text = DYNAMIC.sub(
                r"\1* const \2 = static_cast<\1*>(fibers::dynamic_shared_memory());",
                source.read_text(),
            )
            target.write_text(text)
    tunables = choose(read_tunables(SOLUTION), chosen)
    (folder / "tunables.h").write_text(render("cuda", tunables).content)
    flags = ["-O1", "-std=c++20", "-fPIC", f"-I{folder}", f"-I{HERE}"]
    units = [*folder.glob("*.cpp"), HERE / "emulator.cpp"]
    objects = [folder / f"{unit.stem}.o" for unit in units]
    compiler = cxx() or "g++"
    with ThreadPoolExecutor() as pool:
        list(
            pool.map(
                lambda unit, target: _run(compiler, *flags, "-c", unit, "-o", target),
                units,
                objects,
            )
        )
    library = folder / "emulator.so"
    _run(compiler, "-shared", *objects, "-o", library)
    return library


def _compare(library, name, inputs, expected, options):
    tokens, sequences = inputs["q"].shape[0], inputs["cu_seqlens"].numel() - 1
    actual = {
        "output": torch.full((tokens, HEADS, HEAD_SIZE), math.nan, dtype=torch.bfloat16),
        "new_state": torch.full((sequences, HEADS, HEAD_SIZE, HEAD_SIZE), math.nan),
    }
    kept = [inputs[key] if inputs[key] is None else inputs[key].contiguous() for key in TENSORS]
    kept += actual.values()
    pointers = (ctypes.c_void_p * len(kept))(*[None if x is None else x.data_ptr() for x in kept])
    scale = ctypes.c_float(inputs["scale"] or 1.0 / math.sqrt(HEAD_SIZE))
    part = -1 if options.part is None else parts().index(options.part)
    served = library.run(pointers, tokens, sequences, scale, part, options.processors)
    if served < 0:
        sys.stdout.write(f"{name:14} not launched\n")
        return False
    right = True
    for key, bound in BOUNDS.items():
        rule = StrictBound(rel=bound, source="definition.json")
        error = strict_output(key, expected[key], actual[key], rule).error
        right &= error.ok
        verdict = "right" if error.ok else error.detail
        worst = f"{parts()[served]:10} {key:9} worst row {error.max_rel or 0.0:.1e}"
        sys.stdout.write(f"{name:14} {worst}  {verdict}\n")
        sys.stdout.flush()
    return right


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=parts(), help="else the one that serves such calls")
    parser.add_argument("--tunable", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--library", type=Path, help="a build of before")
    parser.add_argument("--tokens", type=int, default=35)
    parser.add_argument("--sequences", type=int, default=2)
    parser.add_argument("--processors", type=int, default=132)
    parser.add_argument("--generator", nargs="+", default=["typical"])
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    """Draws inputs, runs the kernels, exits with 1 where an output is wrong."""
    options = _options()
    axes = {"num_q_heads": 4, "num_k_heads": 4, "num_v_heads": HEADS, "head_size": HEAD_SIZE}
    axes |= {"total_seq_len": options.tokens, "num_seqs": options.sequences}
    reference, generators = _module("reference"), _module("inputs").GENERATORS
    names = list(generators) if options.generator == ["all"] else options.generator
    chosen = {name: int(value) for name, value in (x.split("=") for x in options.tunable)}
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(options.library or build(Path(folder), chosen)))
        right = True
        for name in names:
            inputs = generators[name].draw(axes, torch.Generator().manual_seed(options.seed))
            expected = dict(zip(BOUNDS, reference.precise(**inputs), strict=True))
            right &= _compare(library, name, inputs, expected, options)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
