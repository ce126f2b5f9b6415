"""How far honest tensor core arithmetic is from the reference, row by row.

Chunks of 64 in which every operand of a matrix product is rounded to bfloat16, sums are kept and
the output is rounded to bfloat16: what a fast kernel does, emulated in float64 on a CPU. For each
row of the output: its error relative to the row, and, where terms cancel, relative to what
``magnitudes`` of the reference says. The bounds of the strict tier in definition.json come from it.

    python probes/bf16_error.py [--generator extreme-gates] [--tokens 8192] [--seqs 43] [--draws 30]
"""

import argparse
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE))

import inputs as generators  # noqa: E402
import reference  # noqa: E402

AXES = {"num_q_heads": 4, "num_k_heads": 4, "num_v_heads": 8, "head_size": 128}
BOUND, SHARE = 0.016, 0.25
exact_chunk = reference._chunk


def rounded(x):
    """To bfloat16 and back."""
    return x.float().to(torch.bfloat16).double()


def rounded_chunk(q, k, v, log_decay, beta, state):
    """As ``reference._chunk``; shapes are its own."""
    total = log_decay.cumsum(-1)
    growth = total.exp()[..., None]
    lower = torch.ones(*total.shape, total.shape[-1], dtype=torch.bool).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    keys, held = k.transpose(-1, -2), rounded(state).transpose(-1, -2)
    system = beta[..., None] * decay * (k @ keys)
    wanted = beta[..., None] * (v - growth * (k @ held))
    update = rounded(torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True))
    output = growth * (q @ held) + rounded(decay * (q @ keys)) @ update
    left = (total[..., -1:] - total).exp()[..., None]
    after = growth[..., -1:, :] * state + update.transpose(-1, -2) @ rounded(left * k)
    return output, after


def draw(arguments, seed):
    """Inputs in call order."""
    rng = torch.Generator().manual_seed(seed)
    axes = AXES | {"total_seq_len": arguments.tokens, "num_seqs": arguments.seqs}
    axes["len_cu_seqlens"] = arguments.seqs + 1
    drawn = generators.GENERATORS[arguments.generator].draw(axes, rng)
    names = ["q", "k", "v", "state", "A_log", "a", "dt_bias", "b", "cu_seqlens", "scale"]
    return [drawn[name] for name in names]


def main():
    """Prints the worst rows and what each rule says of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generator", default="extreme-gates")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--seqs", type=int, default=43)
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--seed", type=int, default=100)
    arguments = parser.parse_args()
    rows, worst = 0, []
    for seed in range(arguments.seed, arguments.seed + arguments.draws):
        values = draw(arguments, seed)
        reference._chunk = exact_chunk
        exact = reference.precise(*values)[0].double()
        reference._chunk = rounded_chunk
        found = reference.precise(*values)[0].to(torch.bfloat16).double()
        reference._chunk = exact_chunk
        error, norm = (found - exact).norm(dim=-1), exact.norm(dim=-1)
        relative = torch.where(norm > 0, error / norm, 0.0)
        rows += int((norm > 0).sum())
        far = relative > BOUND / 2
        if far.any():
            size = reference.magnitudes(*values)["output"][far]
            worst += zip(relative[far], norm[far] / size, error[far] / size, strict=True)
    print(f"{arguments.generator}: {rows} rows, {len(worst)} further off than {BOUND / 2}")
    print("relative error, row / magnitude, error / magnitude, within the bound")
    for relative, share, error in sorted(worst, key=lambda each: -each[0]):
        within = "plain" if relative <= BOUND else "cancelled"
        within = within if error <= BOUND * max(share, SHARE) else "no"
        print(f"{relative:.4f}  {share:.4f}  {error:.5f}  {within}")


if __name__ == "__main__":
    main()
