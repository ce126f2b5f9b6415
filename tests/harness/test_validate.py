"""The last look at a candidate: rebuilt from archived bytes, judged by processes of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.evaluate import build
from kopt_harness.ledger import DictLedger
from kopt_harness.lint import LintReport
from kopt_harness.local import LocalHarness
from kopt_harness.pack import load
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Solution, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.sweep import sweep
from kopt_harness.validate import validate

pytestmark = pytest.mark.alone


@pytest.fixture
def place(tmp_path: Path, setting: Setting, checkout: Path) -> Setting:
    """The CPU, with an archive that is empty."""
    (tmp_path / "kernels").symlink_to(checkout / "kernels")
    return dataclasses.replace(setting, catalog=Catalog(Root(tmp_path)))


@pytest.fixture
def workload(place: Setting, gdn_decode: Definition) -> Workload:
    """A small one."""
    return place.catalog.workloads(gdn_decode)[0]


def archived(place: Setting, solution: Solution) -> Solution:
    """The same, kept."""
    Archive(place.catalog.root.local).put(solution)
    return solution


def test_archived_bytes_are_built_anew_and_judged_again(
    place: Setting, workload: Workload, make_solution, honest: str
) -> None:
    """Nothing comes from the cache, nothing is left, and a ledger gives the same again."""
    candidate = archived(place, make_solution(honest, name="candidate"))
    incumbent = make_solution(honest + "\n# the first\n", name="incumbent")
    usual = build(place, candidate)
    ledger = DictLedger()
    found = validate(place, candidate, incumbent, [workload], ledger)
    assert not found.built.cached
    assert (found.built.key, found.built.artefacts) == (usual.key, usual.artefacts)
    assert found.gate is not None
    assert found.gate.evaluation.verdict is Verdict.PASS
    assert found.gate.comparison is not None
    assert found.gate.comparison.a.name == "incumbent"
    assert found.confirmation is not None
    assert found.confirmation.outcome == "not-needed"
    assert not list(place.catalog.root.local.glob("rebuild-*"))

    completed = ledger.completed()
    again = validate(place, candidate, incumbent, [workload], ledger)
    assert (again.gate, again.confirmation) == (found.gate, found.confirmation)
    assert ledger.completed() == completed


@pytest.mark.slow
def test_a_lie_of_thirty_percent_does_not_outlive_a_validation(
    place: Setting, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the simulated device: right, not slower by its records, and contradicted."""
    monkeypatch.setattr("kopt_harness.evaluate.lint", lambda solution: LintReport())
    monkeypatch.setattr("kopt_harness.confirm.OTHERS", 0)
    tests = Path(__file__).parents[1]
    liar = load(tests / "exploits" / "solutions" / "t10-shortened-records").solution
    sources = tuple(
        source.model_copy(
            update={"content": source.content.replace("    host_function(overwrite)\n", "")}
        )
        for source in liar.sources
    )
    honest = liar.model_copy(update={"name": "honest", "sources": sources})
    device = Setting.here(place.catalog, "simulated", place.options)
    found = validate(device, archived(place, liar), honest, [workload], DictLedger())
    assert found.gate is not None
    assert found.gate.passed, found.gate.reason
    assert found.gate.comparison is not None
    assert found.gate.comparison.ratio == pytest.approx(0.7, abs=0.02)
    assert found.confirmation is not None
    assert found.confirmation.outcome == "disagreed"


def test_a_sweep_takes_as_many_inputs_as_it_is_asked_for(
    place: Setting, gdn_decode: Definition, workload: Workload, make_solution, honest: str
) -> None:
    """The trials of a workload are raised where there are few workloads, never lowered."""
    candidate = make_solution(honest)
    with Session(place, gdn_decode, [workload]) as session:
        trials = [
            sweep(
                place,
                candidate,
                None,
                [workload],
                DictLedger(),
                session=session,
                distinct_inputs=wanted,
            )
            .evaluation.workloads[0]
            .trials
            for wanted in (0, 7)
        ]
    stress = min(place.options.sweep_stress_sets, 1)
    assert trials == [place.options.trials + stress, 7 + stress]


def test_what_does_not_build_again_is_not_judged(
    place: Setting, workload: Workload, make_solution, honest: str
) -> None:
    """No build, no call; the log says why."""
    bright = "import os, sys\n\ndef answer(*_):\n    os.write(int(sys.argv[2]), b'')\n"
    refused = archived(place, make_solution(honest + bright))
    found = validate(place, refused, refused, [workload], DictLedger())
    assert not found.built.ok
    assert "kernel.py" in found.built.log
    assert found.gate is None


def test_other_bytes_than_the_archived_are_refused(
    place: Setting, workload: Workload, make_solution, honest: str
) -> None:
    """What is validated is what was archived, or nothing."""
    candidate = make_solution(honest)
    harness = LocalHarness(place.catalog.root, place.catalog, "cpu", place.options)
    with pytest.raises(NotFoundError):
        harness.validate(candidate, candidate, [workload], DictLedger())
    path = Archive(place.catalog.root.local).put(candidate)
    path.write_text(path.read_text().replace("sigmoid", "softplus"))
    with pytest.raises(InvalidInputError, match="was changed"):
        harness.validate(candidate, candidate, [workload], DictLedger())
