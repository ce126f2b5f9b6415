"""The ablation of ``kopt ablate`` on a recorded table, where seeds cost nothing but arithmetic.

What: the same arms, scopes, campaigns and estimates, but measured by the simulated device that
ships with kopt, which takes the latencies of a recorded table of all settings of one solution
(scripts/settings_table.py makes one) and adds noise, other noise in every gate and sweep. A
dispatcher takes the latencies of its parts. It says nothing of agents that write code, for which
no table stands.
When: after a change of the loop, a policy, memory or the agent ``knobs``, beside a live ablation.
How: python scripts/ablate_table.py DEF SOLUTION TABLE.jsonl.gz [--seeds 20] [--rounds 6]
         [--candidates 3] [--noise 0.01] [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shlex
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from controller_value import CHECKOUT, Problem, lonely, problem, sha256_of
from kopt_controller.ablation import Wish, document_of, markdown_of, start_ablation
from kopt_controller.config import RunConfig
from kopt_controller.dispatch import read_table
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_harness.root import Root
from kopt_harness.schema import GateResult, Solution, SweepResult, Workload


def device_of(given: Problem, folder: Path) -> SimulatedDevice:
    """Latencies of the table."""
    us = {sha256_of(given, folder, point): point.us for point in given.points}

    def latency_us(solution: Solution, workload: Workload) -> float:
        table = read_table(solution)
        if table is None:
            return us[solution.sha256][workload.uuid]
        rules = (r for r in table.rules if r.low <= workload.axes[r.axis] <= r.high)
        part = next((rule.part for rule in rules), table.otherwise)
        return us[part.sha256][workload.uuid]

    return SimulatedDevice(latency_us=latency_us, seed=None, noise=given.noise)


class NoisyHarness(SimulatedHarness):
    """Draws its noise anew for every gate and sweep, from a seed of its own."""

    def __init__(self, target: str, device: SimulatedDevice, seed: int) -> None:
        super().__init__(target, device)
        self._drawn = random.Random(seed)

    def gate(self, *arguments: Any) -> GateResult:
        """With other noise."""
        self._run_seed = self._drawn.getrandbits(64)
        return super().gate(*arguments)

    def sweep(self, *arguments: Any) -> SweepResult:
        """With other noise."""
        self._run_seed = self._drawn.getrandbits(64)
        return super().sweep(*arguments)


def ablate(given: Problem, seeds: int, rounds: int, candidates: int) -> dict[str, Any]:
    """The document of one ablation on the table."""
    with tempfile.TemporaryDirectory() as place:
        root = Root(Path(place))
        device = device_of(given, lonely(given, root))
        config = RunConfig(
            target=given.target,
            rounds=rounds,
            max_candidates=candidates,
            gate_workloads=("all",),
        )
        numbers = itertools.count()
        wish = Wish(definition=given.definition, config=config, seeds=seeds)
        ablation = start_ablation(
            root,
            wish,
            lambda _root, target, _config: NoisyHarness(target.name, device, next(numbers)),
            lambda _: None,
        )
        results = ablation.execute()
        return document_of("table", ablation.plan, results, ablation.environment())


def main() -> int:
    """Ablates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("definition")
    parser.add_argument("solution")
    parser.add_argument("table", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--root", type=Path, default=CHECKOUT)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--candidates", type=int, default=3)
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    given = problem(
        options.root, options.definition, options.solution, options.table, options.target
    )._replace(noise=options.noise)
    document = ablate(given, options.seeds, options.rounds, options.candidates)
    if options.json:
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        command = shlex.join(["python", *sys.argv])
        sys.stdout.write(markdown_of(document, f"{datetime.now(UTC):%Y-%m-%d}", command))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
