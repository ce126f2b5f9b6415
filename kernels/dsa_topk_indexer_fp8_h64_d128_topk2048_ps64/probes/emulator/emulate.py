"""Runs cuda-topk's device code on a CPU and judges the selection by check.py, both tiers.

Usage: python emulate.py --rows 3 --pages 40 --way 1 --generator ties ragged
"""

import sys
from pathlib import Path

import torch
from kopt_harness.catalog import Catalog
from kopt_harness.root import find_root

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

import emulator

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parents[1]
SMALL = {"WARPGROUPS": 2}
"""Few threads, so that a run takes seconds."""
SOLUTION = emulator.Solution(
    DEFINITION / "solutions" / "cuda-topk", HERE, SMALL, defined={"EMULATED_WARPGROUPS": 1}
)
INPUTS = ("q_index_fp8", "k_index_cache_fp8", "weights", "seq_lens", "block_table")
reference = emulator.load_beside(DEFINITION, "reference")
drawing = emulator.load_beside(DEFINITION, "inputs")
check = emulator.load_beside(DEFINITION, "check")


def _is_right(name, definition, inputs, actual):
    expected = {"topk_indices": reference.precise(**inputs)[0]}
    found = {"topk_indices": actual}
    tiers = [
        check.compare(tier, definition, inputs, expected, found) for tier in ("contest", "strict")
    ]
    words = [tier.outputs[0].detail or tier.verdict for tier in tiers]
    sys.stdout.write(f"{name:16} {' | '.join(words)}\n")
    sys.stdout.flush()
    return all(tier.verdict == "pass" for tier in tiers)


def main(words=None):
    """Draws inputs and runs the kernels; returns 1 where a selection is wrong."""
    parser = emulator.command_line(__doc__)
    parser.add_argument("--way", type=int, default=1, help="0 short rows, 1 one launch, 2 two")
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--clusters", type=int, nargs=2, default=(1, 4), metavar=("N", "BLOCKS"))
    parser.add_argument("--unstaged", action="store_true", help="the table stays in memory")
    parser.add_argument("--warps", action="store_true", help="no products of warpgroups")
    options = parser.parse_args(words)
    definition = Catalog(find_root(DEFINITION.parents[1])).resolve("dsa_topk")
    cached = max(4 * options.pages, options.rows * options.pages + 3 * options.pages)
    axes = {name: axis.value for name, axis in definition.axes.items() if axis.type == "const"}
    axes |= {"batch_size": options.rows, "max_num_pages": options.pages, "num_pages": cached}
    rng = torch.Generator().manual_seed(options.seed)
    static = drawing.draw_static(axes, rng)
    library = emulator.load_library(
        SOLUTION._replace(
            tunables=SMALL | emulator.chosen_tunables(options),
            defined={"EMULATED_WARPGROUPS": int(not options.warps)},
        ),
        options,
    )
    right = True
    for name in emulator.draw_names(options, drawing.GENERATORS):
        inputs = static | drawing.GENERATORS[name].draw(axes, rng, static)
        selected = torch.full((options.rows, 2048), -77, dtype=torch.int32)
        kept = [inputs[key].contiguous() for key in INPUTS] + [selected]
        shape = (options.rows, options.pages, cached)
        ways = (options.way, *options.clusters, not options.unstaged)
        library.run(emulator.addresses(kept), *shape, *ways)
        right &= _is_right(name, definition, inputs, selected)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
