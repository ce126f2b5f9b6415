"""What each mechanism is worth: the design, the estimates, and a whole ablation on a model."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from kopt_controller.ablation import (
    Ablation,
    Plan,
    Result,
    Wish,
    document_of,
    effects_of,
    interval,
    markdown_of,
    open_ablation,
    start_ablation,
)
from kopt_controller.ablation.report import arm_rows, effect_rows
from kopt_controller.campaign import read_manifest
from kopt_controller.cli import main
from kopt_controller.config import RunConfig
from kopt_controller.simulated import SimulatedHarness
from kopt_harness.archive import Archive, read_solution
from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.journal import read_journal

Toy = Any
"""The fixture's type lives in conftest.py, which cannot be imported."""

MECHANISMS = ("memory", "dispatch", "skills")


def _plan(**changes: Any) -> Plan:
    return Plan.model_validate(
        {
            "definition": "toy_op_n",
            "target": "cpu",
            "config": RunConfig().model_dump(mode="json"),
            "seeds": 2,
            "start": {"name": "tuned", "sha256": "00"},
            "whole": ["a", "b"],
            "single": "a",
            "mechanisms": MECHANISMS,
        }
        | changes
    )


def test_arms_differ_in_nothing_but_their_mechanisms() -> None:
    """Same agent, rounds, candidates and seed; the prompt's mechanisms need an agent that reads."""
    plan = _plan()
    cells = plan.cells()
    assert len(cells) == len(set(cells)) == 2 * 2 * 3
    assert {cell.arm for cell in cells} == {"goal-only", "+memory", "full"}
    assert {cell.arm for cell in _plan(writes_code=True).cells()} >= {"+skills"}
    free = {"policy", "mechanisms", "search_seed", "gate_workloads"}
    configs = {cell: plan.config_of(cell) for cell in cells}
    shared = {config.model_dump_json(exclude=free) for config in configs.values()}
    assert len(shared) == 1
    for cell, config in configs.items():
        assert config.search_seed == cell.seed
        assert (config.policy == "assisted") == (cell.arm == "full")
        expected = (cell.arm[1:],) if cell.arm.startswith("+") else ()
        assert config.mechanisms == expected
        assert config.gate_workloads == (("a",) if cell.scope == "single" else ("rep",))
    assert not plan.applies("+dispatch", "single")
    assert plan.applies("+dispatch", "whole")
    assert not plan.applies("+skills", "whole")


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Of five seeds and a known mean, over many repetitions; never less than 93 in 100."""
    rng = random.Random(1)
    held = 0
    for _ in range(150):
        found = interval([rng.gauss(-0.1, 0.05) for _ in range(5)])
        assert found is not None
        held += found.lo <= math.exp(-0.1) <= found.hi
    assert held >= 0.93 * 150
    assert interval([0.1]) is None


def test_errors_of_the_measurement_widen_an_interval() -> None:
    """Seeds that agree do not make a doubtful measurement a certain one."""
    found = interval([-0.2] * 5, [0.03] * 5)
    assert found is not None
    assert found.ratio == pytest.approx(math.exp(-0.2))
    assert math.log(found.hi / found.ratio) == pytest.approx(0.03)
    assert math.log(found.ratio / found.lo) == pytest.approx(0.03)


def _result(sha256: str, ratio: float, single: float) -> Result:
    ci = (ratio * 0.99, ratio * 1.01)
    return Result(sha256, sha256, ratio, ci, 6, single, (single * 0.99, single * 1.01))


def test_effects_compare_seed_by_seed() -> None:
    """The same program is no effect at all; a difference between seeds is none between arms."""
    levels = {0: 0.5, 1: 0.9}
    goal = {s: _result(f"g{s}", level, level) for s, level in levels.items()}
    full = {s: _result(f"f{s}", level * 0.8, level * 0.8) for s, level in levels.items()}
    results = {("whole", "goal-only"): goal, ("whole", "full"): full, ("whole", "+memory"): goal}
    alone = {s: _result(f"a{s}", level * 0.4, level * 0.4) for s, level in levels.items()}
    found = {
        (e.name, e.of): e.estimate
        for e in effects_of(_plan(), results | {("single", "full"): alone})
    }
    harness = found["harness", "whole"]
    assert harness is not None
    assert harness.ratio == pytest.approx(0.8)
    assert harness.hi < 0.83
    memory = found["+memory", "whole"]
    assert memory is not None
    assert (memory.lo, memory.hi) == (1.0, 1.0)
    scope = found["scope", "full"]
    assert scope is not None
    assert scope.ratio == pytest.approx(0.5)
    assert found["harness", "single"] is None
    assert found["scope", "goal-only"] is None


def _start(toy: Toy, harnesses: list[SimulatedHarness], **changes: Any) -> Ablation:
    wish = Wish(
        definition="toy",
        config=RunConfig(target="cpu", rounds=2, max_candidates=2),
        seeds=2,
        start="tuned",
        mechanisms=MECHANISMS,
    )
    return start_ablation(
        toy.root, wish._replace(**changes), _maker(toy, harnesses), lambda _: None
    )


def _maker(toy: Toy, harnesses: list[SimulatedHarness]) -> Callable[..., Any]:
    def make(*_: object) -> SimulatedHarness:
        harnesses.append(SimulatedHarness("cpu", toy.device))
        return harnesses[-1]

    return make


def test_an_ablation_finds_what_its_arms_have_found(toy: Toy) -> None:
    """Ratios are those of the model, nothing is retained, and it is complete."""
    pointer = (toy.root.kernels / "toy_op_n" / "retained.toml").read_text()
    ablation = _start(toy, [])
    results = ablation.execute()
    manifests = [read_manifest(run) for run in Archive(ablation.root.local).runs()]
    assert len(manifests) == 12
    # No campaign knows of another, and all have the same start.
    assert all(manifest.memory.rounds == () for manifest in manifests)
    assert {m.incumbent.sha256 for m in manifests} == {ablation.plan.start.sha256}
    document = document_of(ablation.run.id, ablation.plan, results, ablation.environment())
    assert document["complete"]
    assert document["campaigns"] == 12
    assert (toy.root.kernels / "toy_op_n" / "retained.toml").read_text() == pointer
    assert not toy.root.retained.exists()
    start = toy.solution("tuned")
    archive = ablation.root.local / "objects"
    assert {path.stem for path in archive.iterdir()} > {start.sha256}
    by_name = {s.name: s for s in _solutions(ablation)}
    workloads = {w.uuid: w for w in toy.catalog.workloads(toy.catalog.resolve("toy"))}
    for (scope, _), found in results.items():
        uuids = ablation.plan.whole if scope == "whole" else (ablation.plan.single,)
        for result in found.values():
            us = [
                sum(toy.device.latency_us(s, workloads[u]) for u in uuids)
                for s in (by_name[result.name], start)
            ]
            assert result.ratio == pytest.approx(us[0] / us[1], rel=0.02)
            assert 0 < result.evaluations <= 4
    applies = {(row["arm"], row["scope"]): row["applies"] for row in document["arms"]}
    assert not applies["+skills", "whole"]
    assert not applies["+dispatch", "single"]
    text = markdown_of(document, "2026-01-01", "kopt ablate toy")
    assert "| +skills | n/a | n/a | n/a |" in text
    assert "the whole harness" in text


def _solutions(ablation: Ablation) -> list[Any]:
    return [read_solution(path) for path in (ablation.root.local / "objects").iterdir()]


def test_an_ablation_goes_on_where_it_was_stopped(toy: Toy) -> None:
    """With the same samples the same results; what was measured is not measured again."""
    ablation = _start(toy, [])
    expected = ablation.execute()
    path = ablation.run.journal_path
    lines = path.read_bytes().splitlines(keepends=True)
    keys = [record.key for record in read_journal(path)]
    cut = next(i for i, key in enumerate(keys) if key.endswith("/full/1/outcome"))
    path.write_bytes(b"".join(lines[: cut + 1]) + lines[cut + 1][:9])
    harnesses: list[SimulatedHarness] = []
    again = open_ablation(toy.root, None, _maker(toy, harnesses), lambda _: None)
    assert again.execute() == expected
    assert 0 < sum(harness.units for harness in harnesses) < 2000
    harnesses.clear()
    again.execute()
    assert sum(harness.units for harness in harnesses) == 0


def test_pairs_can_be_measured_once_for_all(toy: Toy) -> None:
    """The campaigns then cost less, what they found is measured anew, and the report says so."""
    counts, texts = [], []
    for reuse in (False, True):
        harnesses: list[SimulatedHarness] = []
        ablation = _start(toy, harnesses, reuse=reuse, mechanisms=("skills",))
        results = ablation.execute()
        counts.append([harness.units for harness in harnesses])
        document = document_of(ablation.run.id, ablation.plan, results, {})
        texts.append(markdown_of(document, "2026-01-01", "kopt ablate toy"))
    assert counts[1][0] < 0.7 * counts[0][0]
    assert counts[1][1] > 0
    assert ["is in no interval" in text for text in texts] == [False, True]


def test_a_budget_ends_an_ablation_between_campaigns(toy: Toy) -> None:
    """It says what it has and that it is not complete."""
    ablation = _start(toy, [], total_s=0.0)
    results = ablation.execute()
    document = document_of(ablation.run.id, ablation.plan, results, {})
    assert not document["complete"]
    assert document["campaigns"] < 12
    assert "incomplete" in markdown_of(document, "2026-01-01", "kopt ablate")
    assert any("- (0 of 2 seeds)" in row for row in arm_rows(document))
    assert any("- (incomplete)" in row for row in effect_rows(document))


def test_an_incomplete_ablation_ends_with_the_code_of_a_limit(
    toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    """It shows what it has all the same, and nothing else on standard output."""
    words = ["ablate", "toy", "--target", "cpu", "--start", "tuned", "--seeds", "2"]
    code = main([*words, "--total-s", "0", "--json", "--root", str(toy.root.path)])
    document = json.loads(capsys.readouterr().out)
    assert not document["complete"]
    assert code == 130


def test_what_cannot_be_compared_is_refused(toy: Toy) -> None:
    """A single workload that is many, a start that is not there, an ablation that never was."""
    with pytest.raises(InvalidInputError, match="single workload"):
        _start(toy, [], single="all")
    with pytest.raises(NotFoundError):
        _start(toy, [], start="nothing")
    with pytest.raises(NotFoundError, match="unknown mechanism 'zzz'") as caught:
        _start(toy, [], mechanisms=("memory", "zzz"))
    assert "directions, memory" in caught.value.hint
    with pytest.raises(InvalidInputError, match="at least 2 seeds, not 0"):
        _start(toy, [], seeds=0)
    with pytest.raises(NotFoundError, match="no ablation"):
        open_ablation(toy.root, None, _maker(toy, []), lambda _: None)


def test_the_command_wants_a_definition_or_an_ablation(
    toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither, or both, is a question that it does not answer."""
    root = ["--root", str(toy.root.path)]
    assert main(["ablate", *root]) == 2
    assert main(["ablate", "toy", "--resume", "last", *root]) == 2
    assert main(["ablate", "--resume", "last", *root]) == 2
    assert "no ablation" in capsys.readouterr().err
