"""Runs cuda-moe's device code on a CPU, with narrower matrices, and compares by the strict rule.

Usage: python emulate.py --tokens 33 --tile 16 --generator typical ragged-experts
"""

import ctypes
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

import emulator

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parents[1]
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
BOUNDS = {"output": 0.06}  # of definition.json
HIDDEN, INNER = 512, 512  # in place of 7168 and 2048
NARROWER = {
    "constexpr int kHidden = 7168;": f"constexpr int kHidden = {HIDDEN};",
    "constexpr int kInner = 2048;": f"constexpr int kInner = {INNER};",
    "constexpr int kCombineThreads = 224;": "constexpr int kCombineThreads = 64;",
}
SOLUTION = emulator.Solution(DEFINITION / "solutions" / "cuda-moe", HERE, replaced=NARROWER)
reference = emulator.load_beside(DEFINITION, "reference")
drawing = emulator.load_beside(DEFINITION, "inputs")


def _is_right(library, name, inputs, options):
    tokens = inputs["routing_logits"].shape[0]
    actual = torch.full((tokens, HIDDEN), float("nan"), dtype=torch.bfloat16)
    kept = [inputs[key].contiguous() for key in TENSORS] + [actual]
    tile = library.run(
        emulator.addresses(kept),
        tokens,
        int(inputs["local_expert_offset"]),
        ctypes.c_float(inputs["routed_scaling_factor"]),
        options.tile,
        options.processors,
    )
    if tile < 0:
        sys.stdout.write(f"{name:14} not launched\n")
        return False
    expected = dict(zip(BOUNDS, reference.precise(**inputs), strict=True))
    return emulator.within(f"{name:14} tile {tile:3}", expected, {"output": actual}, BOUNDS)


def main(words=None):
    """Draws inputs and runs the kernels; returns 1 where an output is wrong."""
    parser = emulator.command_line(__doc__)
    parser.add_argument("--tokens", type=int, default=7)
    parser.add_argument("--tile", type=int, default=0, help="else the one that serves such calls")
    parser.add_argument("--processors", type=int, default=3)
    options = parser.parse_args(words)
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
    rng = torch.Generator().manual_seed(options.seed)
    static = drawing.draw_static(axes, rng)
    solution = SOLUTION._replace(tunables=emulator.chosen_tunables(options))
    library = emulator.load_library(solution, options)
    right = True
    for name in emulator.draw_names(options, drawing.GENERATORS):
        inputs = drawing.GENERATORS[name].draw(axes, rng) | static
        right &= _is_right(library, name, inputs, options)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
