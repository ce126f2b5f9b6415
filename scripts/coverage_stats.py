"""Coverage and false decisions of the statistics on simulated samples, printed as Markdown.

Run it after a change of ``kopt_harness/bench/stats.py`` or ``sequence.py``, and put its tables
into docs/measurement.md; ``tests/harness/test_stats_coverage.py`` has a small version.

    python scripts/coverage_stats.py [--trials 2000] [--only WORDS] [--json FILE]

Two tables: how often an interval at 99 % misses a true ratio of 0.9, and how often a whole
comparison of equal solutions, with all its looks and a margin of zero, is decided ``faster``
or ``slower``. 2000 trials take about half an hour on one core.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from kopt_harness.bench.detection import failure_rate_upper
from kopt_harness.bench.noise_models import MODELS, NoiseModel
from kopt_harness.bench.sequence import Rule, run_sequence
from kopt_harness.bench.stats import interval_of

SIZES = ((2, 1), (3, 1), (5, 1), (10, 1), (3, 4), (8, 4), (2, 16), (2, 54), (3, 54))
"""Blocks, workloads."""
RULES = ((3, 16, 1), (3, 16, 4), (3, 8, 12), (2, 16, 16), (2, 16, 54))
"""Least and most blocks, workloads."""
CONFIDENCE = 0.99
RATIO = 0.9


def missed(model: NoiseModel, blocks: int, workloads: int, trials: int) -> Counter[str]:
    """Intervals that lie below or above the true ratio."""
    rng = np.random.default_rng(17)
    found: Counter[str] = Counter()
    for _ in range(trials):
        made = model.levels(rng, blocks=blocks, workloads=workloads, ratio=RATIO)
        interval = interval_of(made, CONFIDENCE)
        found["below"] += interval.hi < RATIO
        found["above"] += interval.lo > RATIO
    return found


def decided(model: NoiseModel, rule: Rule, workloads: int, trials: int) -> Counter[str]:
    """Decisions of comparisons of equal solutions."""
    rng = np.random.default_rng(19)
    found: Counter[str] = Counter()
    for _ in range(trials):
        made = model.levels(rng, blocks=rule.blocks_max, workloads=workloads)
        ended = run_sequence(rule, workloads, lambda w, n, m=made: m[w][:n], quick=True)
        found[ended.look.decision] += 1
    return found


def rows(trials: int, only: str) -> Iterator[dict[str, Any]]:
    """One for each model and size."""
    for name, model in MODELS.items():
        if only not in name:
            continue
        for blocks, workloads in SIZES:
            found = missed(model, blocks, workloads, trials)
            yield {
                "kind": "coverage",
                "model": name,
                "size": f"{blocks} x {workloads}",
                "below": found["below"],
                "above": found["above"],
            }
        for blocks_min, blocks_max, workloads in RULES:
            rule = Rule(blocks_min, blocks_max, CONFIDENCE, 0.0)
            found = decided(model, rule, workloads, trials)
            yield {
                "kind": "decisions",
                "model": name,
                "size": f"{blocks_min}..{blocks_max} x {workloads}",
                "faster": found["faster"],
                "slower": found["slower"],
            }


def table(found: list[dict[str, Any]], kind: str, first: str, second: str, trials: int) -> str:
    """Markdown: a row for each model, a column for each size, per cent of either side."""
    chosen = [row for row in found if row["kind"] == kind]
    sizes = list(dict.fromkeys(row["size"] for row in chosen))
    lines = [f"| model | {' | '.join(sizes)} |", "|---" * (len(sizes) + 1) + "|"]
    for name in dict.fromkeys(row["model"] for row in chosen):
        cells = [
            f"{100 * row[first] / trials:.2f} / {100 * row[second] / trials:.2f}"
            for row in chosen
            if row["model"] == name
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Runs all models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--only", default="", help="models whose name has these words")
    parser.add_argument("--json", type=Path, default=None, help="where the counts go")
    arguments = parser.parse_args()
    trials = arguments.trials
    found = list(rows(trials, arguments.only))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"trials": trials, "rows": found}, indent=1) + "\n")
    print(f"{datetime.now(UTC).date()}, Python {platform.python_version()}, numpy {np.__version__}")
    print(f"{trials} trials; a rate of 0 is below {failure_rate_upper(trials, 0):.2%} at 95 %\n")
    print(f"Intervals at {CONFIDENCE:.0%} that lie below / above the truth, per cent:\n")
    print(table(found, "coverage", "below", "above", trials))
    print("\nEqual solutions that are called faster / slower, per cent:\n")
    print(table(found, "decisions", "faster", "slower", trials))


if __name__ == "__main__":
    main()
