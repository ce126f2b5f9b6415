"""Whether the supervisor's rules fire where they should, and only there.

What: trajectories whose truth is known, because a seeded process with that truth made them, go
through the supervisor; for each rule the script prints precision and recall. With --search also
the recorded trace of a search (checkpoints and evaluations of an evolutionary search), whose
intervals come from the spread of its own reference timings.
When: after a rule or a threshold has changed.
How: python scripts/supervisor_rules.py [--seeds N] [--search DIR] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from math import exp, log, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from kopt_controller.memory import Memory, RoundMemory
from kopt_controller.supervisor import supervise

KINDS = ("stall", "exhausted", "cycle", "regression", "plateau", "diminishing-returns")
NOISE = 0.004
"""Standard error of a logarithmic ratio in a quiet comparison."""
LOUD = 0.04
"""The same on a machine that others use."""
MARGIN = 0.02
Z95 = 1.96


class Trajectory(NamedTuple):
    """Rounds, and what is true of them."""

    name: str
    rounds: tuple[RoundMemory, ...]
    truth: frozenset[str]


class Score(NamedTuple):
    """How one rule did."""

    fired: int
    """Rightly."""
    false: int
    missed: int

    @property
    def precision(self) -> float | None:
        """Share of its signals that were right; None where it gave none."""
        total = self.fired + self.false
        return self.fired / total if total else None

    @property
    def recall(self) -> float | None:
        """Share of what it should have seen; None where there was nothing to see."""
        total = self.fired + self.missed
        return self.fired / total if total else None


def round_of(
    direction: str,
    ratio: float | None,
    error: float = NOISE,
    *,
    verdict: str = "pass",
    regime: str = "n=1",
    trials: int = 1,
) -> RoundMemory:
    """A round whose only candidate was measured to take ``ratio`` with a standard error.

    It passes the gate unless it is surely slower, and is promoted if it is surely faster by
    more than the margin, as in the loop.
    """
    ci = None
    if ratio is not None:
        ci = (ratio * exp(-Z95 * error), ratio * exp(Z95 * error))
    passed = verdict == "pass" and (ci is None or ci[0] <= 1)
    promoted = passed and ci is not None and ci[1] < 1 - MARGIN
    trial: dict[str, Any] = {
        "name": "x",
        "sha256": f"{direction}-{ratio}",
        "family": None,
        "settings": {},
        "verdict": verdict,
        "passed": passed,
        "ratio": ratio,
        "ci": ci,
    }
    return RoundMemory.model_validate(
        {
            "run": "r",
            "round": 1,
            "direction": direction,
            "bottleneck": "memory",
            "regime": regime,
            "incumbent": "00",
            "label": "promote" if promoted else "archive" if passed else "reject",
            "code": "x",
            "ratio": ratio if passed else None,
            "ci": ci if passed else None,
            "promoted": promoted,
            "swept": None,
            "trials": [trial] * trials,
        }
    )


def _measure(rng: random.Random, true_ratio: float, error: float = NOISE) -> float:
    return true_ratio * exp(rng.gauss(0, error))


def _even(rng: random.Random, direction: str, error: float = NOISE) -> RoundMemory:
    """A candidate that is as fast as the incumbent."""
    return round_of(direction, _measure(rng, 1.0, error), error)


def _slow(rng: random.Random, direction: str) -> RoundMemory:
    return round_of(direction, _measure(rng, rng.uniform(1.1, 1.6)))


def _win(rng: random.Random, direction: str, gain: float) -> RoundMemory:
    return round_of(direction, _measure(rng, 1 - gain))


def _improving(rng: random.Random) -> list[RoundMemory]:
    return [_win(rng, d, rng.uniform(0.08, 0.2)) for d in "abcde"]


def _stalled(rng: random.Random) -> list[RoundMemory]:
    wrong = [round_of(d, None, verdict=rng.choice(["fail", "crash"])) for d in "abc"]
    return [_win(rng, "z", 0.2), *wrong]


def _stalled_slow(rng: random.Random) -> list[RoundMemory]:
    return [_slow(rng, d) for d in "abc"]


def _billing(_: random.Random) -> list[RoundMemory]:
    return [round_of("a", None, verdict="infra") for _ in range(6)]


def _idle(rng: random.Random) -> list[RoundMemory]:
    return [_win(rng, "z", 0.2), *(round_of(d, None, trials=0) for d in "ab")]


def _same_again(rng: random.Random) -> list[RoundMemory]:
    return [_win(rng, "z", 0.2), _even(rng, "b"), _even(rng, "a"), _even(rng, "a")]


def _in_turn(rng: random.Random) -> list[RoundMemory]:
    return [_even(rng, d, LOUD) for d in "abab"]


def _other_states(rng: random.Random) -> list[RoundMemory]:
    """One direction on one regime after the other is work, no cycle."""
    pairs = [("a", "n=1"), ("a", "n=64"), ("b", "n=1")]
    return [round_of(d, _measure(rng, 1.0), regime=regime) for d, regime in pairs]


def _worse(rng: random.Random) -> list[RoundMemory]:
    return [_slow(rng, "a"), _even(rng, "b"), _slow(rng, "a")]


def _worse_and_flat(rng: random.Random) -> list[RoundMemory]:
    return [*_worse(rng), _even(rng, "c")]


def _unlucky(rng: random.Random) -> list[RoundMemory]:
    """As fast as the incumbent, measured on a loud machine: half look slower."""
    return [_even(rng, d, LOUD) for d in ("a", "b", "a")]


def _flat(rng: random.Random) -> list[RoundMemory]:
    return [_win(rng, "z", 0.2), *(_even(rng, d) for d in "abcd")]


def _unclear(rng: random.Random) -> list[RoundMemory]:
    """Too loud to know, and not tried long enough."""
    return [_even(rng, d, LOUD) for d in "abcd"]


def _unclear_long(rng: random.Random) -> list[RoundMemory]:
    return [_even(rng, d, LOUD) for d in "abcdefg"]


def _shrinking(rng: random.Random) -> list[RoundMemory]:
    """The last is as small as a promotion can be, up to where it is no longer small."""
    gains = (rng.uniform(0.2, 0.4), rng.uniform(0.06, 0.15), rng.uniform(0.022, 0.029))
    pairs = zip("abc", gains, strict=True)
    return [round_of(d, _measure(rng, 1 - gain, 0.001), 0.001) for d, gain in pairs]


def _steady(rng: random.Random) -> list[RoundMemory]:
    return [_win(rng, d, gain) for d, gain in zip("abc", (0.12, 0.11, 0.1), strict=True)]


SCENARIOS: Mapping[str, tuple[Callable[[random.Random], list[RoundMemory]], frozenset[str]]] = {
    "improving": (_improving, frozenset()),
    "wrong three times": (_stalled, frozenset({"stall"})),
    "slower three times": (_stalled_slow, frozenset({"stall"})),
    "failures of the machine": (_billing, frozenset()),
    "nothing to propose": (_idle, frozenset({"exhausted"})),
    "the same again": (_same_again, frozenset({"cycle"})),
    "two in turn": (_in_turn, frozenset({"cycle"})),
    "one direction, other regimes": (_other_states, frozenset()),
    "slower twice": (_worse, frozenset({"regression"})),
    "slower twice, flat otherwise": (_worse_and_flat, frozenset({"regression", "plateau"})),
    "even on a loud machine": (_unlucky, frozenset()),
    "flat": (_flat, frozenset({"plateau"})),
    "unclear": (_unclear, frozenset()),
    "unclear for long": (_unclear_long, frozenset({"plateau"})),
    "shrinking gains": (_shrinking, frozenset({"diminishing-returns"})),
    "steady gains": (_steady, frozenset()),
}


def synthetic(seeds: int) -> list[Trajectory]:
    """Every scenario, with so many seeds each."""
    return [
        Trajectory(name, tuple(make(random.Random(f"{name}/{seed}"))), truth)
        for name, (make, truth) in SCENARIOS.items()
        for seed in range(seeds)
    ]


def recorded(folder: Path) -> list[Trajectory]:
    """The trace of a search: what can be concluded from it with its own noise.

    A score is a speed-up over a reference that was timed anew each time, so its noise is that
    of the reference, and scores of two machines (whose references differ fourfold) say nothing
    of each other: each machine has a trajectory of its own.
    """
    evaluations = [
        json.loads(path.read_text()) for path in sorted(folder.rglob("evaluation_result.json"))
    ]
    good = [each for each in evaluations if each["status"] == "success"]
    reference_ms = {each["score"]: each["metrics"]["baseline_time_ms"] for each in good}
    states = [json.loads(path.read_text()) for path in folder.rglob("metadata.json")]
    last = max(states, key=lambda state: state["last_iteration"])
    scores = last["feature_stats"]["score"]["values"]
    split = sqrt(min(reference_ms.values()) * max(reference_ms.values()))
    parts = [
        [score for score in scores if (reference_ms[score] < split) is fast]
        for fast in (True, False)
    ]
    failed = sum(each["status"] == "execution_failed" for each in evaluations)
    found = [
        Trajectory(
            "recorded: the service did not answer",
            tuple(round_of("search", None, verdict="infra") for _ in range(failed)),
            frozenset(),
        )
    ]
    # Of the first machine one child was surely slower than its parent, the other within the
    # spread of the reference; of the second no child differs by more than that. So nothing but
    # that one direction was followed over and over, and moved nothing, can be concluded.
    for part, truth in zip(parts, ({"cycle"}, {"cycle"}), strict=True):
        near = [log(reference_ms[s["score"]]) for s in good if _same_side(s, part, reference_ms)]
        error = sqrt(2) * statistics.stdev(near)
        found.append(
            Trajectory(f"recorded: {len(part)} iterations", _search(part, error), frozenset(truth))
        )
    return found


def _same_side(
    evaluation: Mapping[str, Any], part: Sequence[float], reference_ms: Mapping[float, float]
) -> bool:
    middle = statistics.median(reference_ms[score] for score in part)
    return bool(0.5 < evaluation["metrics"]["baseline_time_ms"] / middle < 2)


def _search(scores: Sequence[float], error: float) -> tuple[RoundMemory, ...]:
    """Each score against that of the incumbent, which moves only when that is sure."""
    incumbent, rounds = scores[0], []
    for score in scores[1:]:
        past = round_of("search", incumbent / score, error)
        rounds.append(past)
        if past.promoted:
            incumbent = score
    return tuple(rounds)


def scores_of(trajectories: Sequence[Trajectory]) -> dict[str, Score]:
    """Precision and recall of each rule, at the end of each trajectory."""
    counts = {kind: [0, 0, 0] for kind in KINDS}
    for each in trajectories:
        fired = {signal.kind for signal in supervise(Memory(rounds=each.rounds)).signals}
        for kind in KINDS:
            counts[kind][0] += kind in fired and kind in each.truth
            counts[kind][1] += kind in fired and kind not in each.truth
            counts[kind][2] += kind not in fired and kind in each.truth
    return {kind: Score(*count) for kind, count in counts.items()}


def mistakes(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    """What was wrong, and how often."""
    found: dict[str, int] = {}
    for each in trajectories:
        fired = {str(signal.kind) for signal in supervise(Memory(rounds=each.rounds)).signals}
        for kind in sorted(fired ^ each.truth):
            what = f"{each.name}: {kind} {'fired' if kind in fired else 'was missed'}"
            found[what] = found.get(what, 0) + 1
    return found


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="of each scenario")
    parser.add_argument("--search", type=Path, help="folder of a recorded search")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sets = {"synthetic": synthetic(options.seeds)}
    if options.search is not None:
        sets["recorded"] = recorded(options.search)
    document = {
        name: {
            "trajectories": len(trajectories),
            "rules": {
                kind: {**score._asdict(), "precision": score.precision, "recall": score.recall}
                for kind, score in scores_of(trajectories).items()
            },
            "mistakes": mistakes(trajectories),
        }
        for name, trajectories in sets.items()
    }
    sys.stdout.write(json.dumps(document, indent=1) + "\n" if options.json else _table(document))
    return 0


def _table(document: Mapping[str, Any]) -> str:
    lines = []
    for name, part in document.items():
        lines.append(f"{name}: {part['trajectories']} trajectories")
        for kind, rule in part["rules"].items():
            numbers = "  ".join(
                f"{what} {'  -  ' if rule[what] is None else format(rule[what], '.3f')}"
                for what in ("precision", "recall")
            )
            counts = f"right {rule['fired']}, false {rule['false']}, missed {rule['missed']}"
            lines.append(f"  {kind:20} {numbers}  {counts}")
        lines += [f"  {count} x {what}" for what, count in part["mistakes"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
