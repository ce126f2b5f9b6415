"""Runs cuda-split's device code on a CPU and compares it with the reference, strict rule.

Usage: python emulate.py --tokens 2 --pages 64 --generator holes typical
"""

import ctypes
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

import emulator

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parents[1]
SOLUTION = emulator.Solution(DEFINITION / "solutions" / "cuda-split", HERE)
TENSORS = ("q_nope", "q_pe", "ckv_cache", "kpe_cache", "sparse_indices")
BOUNDS = {"output": 0.008, "lse": 0.00001}  # of definition.json
AXES = {"num_qo_heads": 16, "head_dim_ckv": 512, "head_dim_kpe": 64, "page_size": 64, "topk": 2048}
reference = emulator.load_beside(DEFINITION, "reference")
drawing = emulator.load_beside(DEFINITION, "inputs")


def _is_right(library, name, inputs, processors):
    tokens = inputs["q_nope"].shape[0]
    actual = {
        "output": torch.full((tokens, 16, 512), math.nan, dtype=torch.bfloat16),
        "lse": torch.full((tokens, 16), math.nan),
    }
    kept = [inputs[key].contiguous() for key in TENSORS]
    pointers = emulator.addresses([*kept, *actual.values()])
    cached = inputs["ckv_cache"].shape[0] * AXES["page_size"]
    scale = ctypes.c_float(inputs["sm_scale"])
    if not library.run(pointers, ctypes.c_int64(tokens), ctypes.c_int64(cached), scale, processors):
        sys.stdout.write(f"{name:14} not launched\n")
        return False
    expected = dict(zip(BOUNDS, reference.precise(**inputs), strict=True))
    return emulator.within(f"{name:14}", expected, actual, BOUNDS)


def main(words=None):
    """Draws inputs and runs the kernel; returns 1 where an output is wrong."""
    parser = emulator.command_line(__doc__)
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--processors", type=int, default=132, help="blocks that run at once")
    options = parser.parse_args(words)
    axes = AXES | {"num_tokens": options.tokens, "num_pages": options.pages}
    solution = SOLUTION._replace(tunables=emulator.chosen_tunables(options))
    library = emulator.load_library(solution, options, at_once=options.processors)
    right = True
    for name in emulator.draw_names(options, drawing.GENERATORS):
        rng = torch.Generator().manual_seed(options.seed)
        static = drawing.draw_static(axes, rng)
        inputs = static | drawing.GENERATORS[name].draw(axes, rng, static)
        right &= _is_right(library, name, inputs, options.processors)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
