"""Runs cuda-prefill's device code on a CPU and compares it with the reference, strict rule.

Usage: python emulate.py --tokens 150 --sequences 4 --part kChunked --generator ragged typical
"""

import ctypes
import math
import re
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

import emulator

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parents[1]
SOLUTION = emulator.Solution(DEFINITION / "solutions" / "cuda-prefill", HERE)
TENSORS = ("q", "k", "v", "state", "A_log", "a", "dt_bias", "b", "cu_seqlens")
BOUNDS = {"output": 0.016, "new_state": 0.02}  # of definition.json
HEADS, HEAD_SIZE = 8, 128
reference = emulator.load_beside(DEFINITION, "reference")
generators = emulator.load_beside(DEFINITION, "inputs").GENERATORS


def parts():
    """Names of the parts that the solution dispatches to, as it numbers them."""
    text = (SOLUTION.folder / "solution" / "cuda" / "dispatch.cuh").read_text()
    return re.findall(
        r"^  (k\w+),", text.split("enum class Part {")[1].split("};")[0], re.MULTILINE
    )


def _is_right(library, name, inputs, options):
    tokens, sequences = inputs["q"].shape[0], inputs["cu_seqlens"].numel() - 1
    actual = {
        "output": torch.full((tokens, HEADS, HEAD_SIZE), math.nan, dtype=torch.bfloat16),
        "new_state": torch.full((sequences, HEADS, HEAD_SIZE, HEAD_SIZE), math.nan),
    }
    kept = [inputs[key] if inputs[key] is None else inputs[key].contiguous() for key in TENSORS]
    pointers = emulator.addresses([*kept, *actual.values()])
    scale = ctypes.c_float(inputs["scale"] or 1.0 / math.sqrt(HEAD_SIZE))
    part = -1 if options.part is None else parts().index(options.part)
    served = library.run(pointers, tokens, sequences, scale, part, options.processors)
    if served < 0:
        sys.stdout.write(f"{name:14} not launched\n")
        return False
    expected = dict(zip(BOUNDS, reference.precise(**inputs), strict=True))
    return emulator.within(f"{name:14} {parts()[served]:10}", expected, actual, BOUNDS)


def main(words=None):
    """Draws inputs and runs the kernels; returns 1 where an output is wrong."""
    parser = emulator.command_line(__doc__)
    parser.add_argument("--part", choices=parts(), help="else the one that serves such calls")
    parser.add_argument("--tokens", type=int, default=35)
    parser.add_argument("--sequences", type=int, default=2)
    parser.add_argument("--processors", type=int, default=132)
    options = parser.parse_args(words)
    axes = {"num_q_heads": 4, "num_k_heads": 4, "num_v_heads": HEADS, "head_size": HEAD_SIZE}
    axes |= {"total_seq_len": options.tokens, "num_seqs": options.sequences}
    solution = SOLUTION._replace(tunables=emulator.chosen_tunables(options))
    library = emulator.load_library(solution, options)
    right = True
    for name in emulator.draw_names(options, generators):
        inputs = generators[name].draw(axes, torch.Generator().manual_seed(options.seed))
        right &= _is_right(library, name, inputs, options)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
