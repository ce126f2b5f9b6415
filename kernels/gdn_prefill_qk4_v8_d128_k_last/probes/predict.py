"""Predicts every workload of cuda-prefill from measured times, and what its dispatch loses.

    python predict.py [RECORD]

RECORD has a line `T,N [longest sequences]` for each shape, and below it `kernel p10/median/p90` in
us for each kernel that was timed there. Between shapes of about as many sequences times are
interpolated: over tokens up to 12 sequences, over sequences beyond, where nearly all workloads have
8192 tokens.
"""

import json
import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parent
DISPATCH = DEFINITION / "solutions" / "cuda-prefill" / "solution" / "cuda" / "dispatch.cuh"
RECORD = HERE / "2026-11-30-h200-fused.txt"
CLASSES = (1, 2, 4, 12)  # sequences up to and including
KERNELS = {"c425": "kColumns", "r13s": "kOneTile", "t13": "kTwoTiles", "m13": "kFourTiles"}
CHUNKED = {"k16": range(1, 5), "k32": range(5, 10**6)}  # for so many sequences


def measured(path):
    """(part, class of N) to (x, median) in the order of x; x are tokens, or sequences beyond."""
    points = {}
    shape = None
    for line in path.read_text().splitlines():
        if found := re.match(r"(\d+),(\d+) \[", line):
            shape = int(found[1]), int(found[2])
        elif shape and line.startswith("   "):
            for kernel, median in re.findall(r"(\w+) [\d.]+/([\d.]+)/[\d.]+", line):
                part = KERNELS.get(kernel)
                if shape[1] in CHUNKED.get(kernel, ()):
                    part = "kChunked"
                key, x = place(*shape)
                points.setdefault((part, key), []).append((x, float(median)))
    return {key: sorted(values) for key, values in points.items()}


def place(tokens, sequences):
    """Class of a shape, and where it lies in it."""
    for key in CLASSES:
        if sequences <= key:
            return key, tokens
    return ("many", "few tokens")[tokens < 6000], sequences


def between(points, x):
    """The line through the two neighbours of x, or through the two last points."""
    if len(points) == 1:
        return points[0][1]
    (x0, y0), (x1, y1) = next(
        (pair for pair in pairwise(points) if x <= pair[1][0]), (points[-2], points[-1])
    )
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def regimes():
    """(sequences, tokens, part) as in the source, and what serves the rest."""
    text = DISPATCH.read_text()
    rows = re.findall(r"\{(\w+), (\w+), Part::(k\w+)\}", text)
    bound = {"kAny": float("inf")}
    return [(bound.get(n) or int(n), bound.get(t) or int(t), part) for n, t, part in rows]


def served(table, tokens, sequences):
    """The part that a call is dispatched to."""
    return next((p for n, t, p in table if sequences <= n and tokens <= t), "kFourTiles")


def main():
    """Prints a line for each shape of the workloads, and the sum over all."""
    points = measured(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORD)
    table = regimes()
    lines = (DEFINITION / "workloads.jsonl").read_text().splitlines()
    axes = [json.loads(line)["axes"] for line in lines]
    shapes = Counter((each["num_seqs"], each["total_seq_len"]) for each in axes)
    total = loss = 0.0
    for (sequences, tokens), count in sorted(shapes.items()):
        key, x = place(tokens, sequences)
        times = {part: between(p, x) for (part, own), p in points.items() if part and own == key}
        part = served(table, tokens, sequences)
        best = min(times, key=times.get)
        total += count * times[part]
        loss += count * (times[part] - times[best])
        rest = "" if best == part else f"   {best} {times[best]:.1f}"
        sys.stdout.write(f"{tokens:5} {sequences:3} x{count}  {part:10} {times[part]:6.1f}{rest}\n")
    share = 100 * loss / total
    sys.stdout.write(f"{total:.0f} us for {len(axes)} workloads, {share:.2f} % lost by dispatch\n")


if __name__ == "__main__":
    main()
