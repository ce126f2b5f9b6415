"""A person's promotion: verified again, conditions with numbers, overrides on record."""

import gzip
import json
import shutil
import tomllib
from typing import Any

import pytest
from kopt_controller.applying import apply_recorded
from kopt_controller.config import PromotionRules, RunConfig
from kopt_controller.history import list_promotions
from kopt_controller.indexed import open_index
from kopt_controller.policy.conditions import NOT_RUN
from kopt_controller.result import PromoteOutcome
from kopt_controller.reverify import find_promotable, reverify
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, NotFoundError, UsageError
from kopt_harness.schema import Solution, Validation, Workload

Toy = Any


def _promote(
    toy: Toy,
    what: str | None = None,
    *overridden: str,
    device: SimulatedDevice | None = None,
    harness: SimulatedHarness | None = None,
    config: RunConfig | None = None,
) -> PromoteOutcome:
    archive = Archive(toy.root.local)
    return reverify(
        toy.catalog,
        find_promotable(toy.catalog, archive, what, None),
        config or RunConfig(),
        lambda target, _: harness or SimulatedHarness(target.name, device or toy.device),
        overridden=overridden,
        notify=lambda _: None,
    )


def _pointer(toy: Toy) -> dict[str, Any]:
    return tomllib.loads((toy.root.kernels / "toy_op_n/retained.toml").read_text())["cpu"]


def test_the_latest_promotable_is_verified_and_applied(toy: Toy) -> None:
    """Without a name, what waits is taken; every condition is listed with what was measured."""
    (result,) = toy.campaign(promotion="ask").execute().rounds
    done = _promote(toy)
    assert done.applied
    assert done.candidate == result.best
    assert _pointer(toy) == {"solution": done.candidate.name, "sha256": done.candidate.sha256}
    document = done.document()
    assert {"candidate", "applied", "conditions"} <= set(document)
    for condition in document["conditions"]:
        assert set(condition) == {"name", "required", "measured", "ok"}
        assert condition["ok"]
    with pytest.raises(UsageError, match="incumbent already"):
        _promote(toy, done.candidate.sha256[:12])


@pytest.mark.parametrize("form", ["{run}/1", "{run}/r1", "{sha}"])
def test_a_candidate_is_named_by_round_or_hash(toy: Toy, form: str) -> None:
    """RUN/ROUND and SHA mean the same candidate."""
    outcome = toy.campaign(promotion="ask").execute()
    best = outcome.rounds[0].best
    assert best is not None
    what = form.format(run=outcome.run, sha=best.sha256[:10])
    found = find_promotable(toy.catalog, Archive(toy.root.local), what, None)
    assert found.candidate.sha256 == best.sha256
    assert found.target.name == "cpu"


def test_what_no_longer_holds_is_not_promoted(toy: Toy) -> None:
    """A claim of a round that the second sweep does not confirm changes nothing."""
    toy.campaign(promotion="ask").execute()
    equal = SimulatedDevice(latency_us=lambda *_: 10.0, noise=0.001)
    done = _promote(toy, device=equal)
    assert not done.applied
    failed = {c.name: c.measured for c in done.conditions if not c.ok}
    assert list(failed) == ["speed", "rebuild", "validation", "confirmation"]
    assert failed["validation"] == failed["rebuild"] == failed["confirmation"] == NOT_RUN
    assert "sha256" not in _pointer(toy)
    assert not toy.root.retained.exists()


def test_a_second_process_that_disagrees_refuses(toy: Toy) -> None:
    """All of the sweep holds, the validation does not: nothing moves, and it is named."""

    class Disagrees(SimulatedHarness):
        def validate(self, *arguments: Any) -> Validation:
            found = super().validate(*arguments)
            assert found.gate is not None
            return found.model_copy(
                update={"gate": found.gate.model_copy(update={"passed": False})}
            )

    toy.campaign(promotion="ask").execute()
    done = _promote(toy, harness=Disagrees("cpu", toy.device))
    assert not done.applied
    assert [c.name for c in done.conditions if not c.ok] == ["validation"]
    assert done.detail.startswith("not applied: validation is")
    assert "sha256" not in _pointer(toy)


def test_another_build_refuses(toy: Toy) -> None:
    """Archived bytes that no longer give the measured build are not promoted, in a round too."""

    class Rebuilds(SimulatedHarness):
        def validate(self, *arguments: Any) -> Validation:
            found = super().validate(*arguments)
            return found.model_copy(update={"built": found.built.model_copy(update={"key": "0"})})

    campaign = toy.campaign()._replace(make_harness=lambda *_: Rebuilds("cpu", toy.device))
    (result,) = campaign.execute().rounds
    assert (result.decision.label, result.decision.code) == ("archive", "rebuild")
    assert result.incumbent == result.incumbent_before
    assert result.best is not None
    done = _promote(toy, result.best.sha256, harness=Rebuilds("cpu", toy.device))
    assert [c.name for c in done.conditions if not c.ok] == ["rebuild"]
    assert "sha256" not in _pointer(toy)


def test_what_is_slower_somewhere_waits_for_a_person(toy: Toy) -> None:
    """Faster on average: a round keeps it; a person who turns the rule off may promote it."""
    times_us = {("tuned", 2): 60.0, ("plain", 2): 50.0, ("tuned", 64): 10.0}

    def latency_us(solution: Solution, workload: Workload) -> float:
        return times_us.get((solution.name, workload.axes["n"]), 50.0)

    device = SimulatedDevice(latency_us=latency_us, noise=0.002)
    (result,) = toy.campaign(device, max_candidates=1).execute().rounds
    assert (result.decision.label, result.decision.code) == ("promote-dispatch", "dispatch")
    assert "not everywhere: regressions is" in result.decision.reason
    assert result.best is not None
    sha256 = result.best.sha256
    refused = _promote(toy, sha256, device=device)
    assert "regressions" in [c.name for c in refused.conditions if not c.ok]
    lenient = PromotionRules(regressions="off", p95_ratio_max=9, worst_regime_ratio_max=9)
    done = _promote(toy, sha256, device=device, config=RunConfig(conditions=lenient))
    assert done.applied
    decision = json.loads((toy.root.retained / "toy_op_n/cpu/decision.json").read_text())
    assert decision["conditions"]["regressions"] == "off"


def test_an_override_is_on_record(toy: Toy) -> None:
    """A flagged candidate needs the flag's own code; the evidence says who accepted what."""
    device = toy.device._replace(flags={"tuned": "timer-unconfirmed"})
    outcome = toy.campaign(device, max_candidates=1).execute()
    what = f"{outcome.run}/1"
    assert not _promote(toy, what, device=device).applied
    assert not _promote(toy, what, "library-call", device=device).applied
    assert _promote(toy, what, "timer-unconfirmed", device=device).applied
    decision = json.loads((toy.root.retained / "toy_op_n/cpu/decision.json").read_text())
    assert decision["overridden_flags"] == ["timer-unconfirmed"]


def test_changed_bytes_are_not_promoted(toy: Toy) -> None:
    """What is promoted is what was archived, or nothing."""
    outcome = toy.campaign(promotion="ask").execute()
    best = outcome.rounds[0].best
    assert best is not None
    path = toy.root.local / "objects" / f"{best.sha256}.json"
    path.write_text(path.read_text().replace("x + 1", "x + 2"))
    with pytest.raises(InvalidInputError, match="was changed"):
        _promote(toy)


def test_nothing_to_promote_is_said(toy: Toy) -> None:
    """No promotable, an unknown run, a round that never was, a hash of nothing."""
    with pytest.raises(NotFoundError, match="no round waits"):
        _promote(toy)
    outcome = toy.campaign().execute()
    with pytest.raises(NotFoundError, match="no round waits"):
        _promote(toy)
    with pytest.raises(NotFoundError, match="no closed round '7'"):
        _promote(toy, f"{outcome.run}/7")
    with pytest.raises(NotFoundError, match="no run"):
        _promote(toy, "nowhere/1")
    with pytest.raises(NotFoundError, match="no archived solution"):
        _promote(toy, "0123456789")


def test_what_a_round_has_decided_is_applied_without_measuring(toy: Toy) -> None:
    """By its record alone: pointer, evidence with its samples, and a promotion in the history."""
    (result,) = toy.campaign(promotion="ask").execute().rounds
    archive = Archive(toy.root.local)
    done = apply_recorded(toy.catalog, archive, None)
    assert done.applied
    assert done.candidate == result.best
    assert done.conditions == result.decision.evidence
    assert _pointer(toy) == {"solution": done.candidate.name, "sha256": done.candidate.sha256}
    retained = toy.root.retained / "toy_op_n/cpu"
    decision = json.loads((retained / "decision.json").read_text())
    assert decision["decision"]["evidence"] == [c.model_dump(mode="json") for c in done.conditions]
    samples = json.loads(gzip.decompress((retained / "samples.json.gz").read_bytes()))
    assert any(key.startswith("r1/sweep/") for key in samples)
    assert any(key.startswith("r1/validation/") for key in samples)
    assert json.loads((retained / "profile.json").read_text())["profiles"]
    with open_index(archive.folder) as index:
        (listed,) = list_promotions(index)
    assert listed.applied
    with pytest.raises(UsageError, match="incumbent already"):
        apply_recorded(toy.catalog, archive, f"{decision['run']}/1")


def test_a_round_that_did_not_promote_is_not_applied(toy: Toy) -> None:
    """Nothing moves without a decision, nor after the incumbent has moved."""
    equal = SimulatedDevice(latency_us=lambda *_: 10.0, noise=0.001)
    outcome = toy.campaign(equal, promotion="ask").execute()
    archive = Archive(toy.root.local)
    with pytest.raises(UsageError, match="did not decide to promote"):
        apply_recorded(toy.catalog, archive, f"{outcome.run}/1")
    with pytest.raises(UsageError, match="names no round"):
        apply_recorded(toy.catalog, archive, "0123456789ab")
    assert "sha256" not in _pointer(toy)


def test_a_decision_is_not_applied_to_what_has_changed_since(toy: Toy) -> None:
    """Another incumbent, and other workloads, were not in the comparison."""
    toy.campaign(promotion="ask", max_candidates=1).execute()
    archive = Archive(toy.root.local)
    folder = toy.root.kernels / "toy_op_n"
    as_it_was = (folder / "retained.toml").read_text()
    name = tomllib.loads(as_it_was)["cpu"]["solution"]
    shutil.copytree(folder / "solutions" / name, folder / "solutions/other")
    config = folder / "solutions/other/config.toml"
    config.write_text(config.read_text().replace(f'name = "{name}"', 'name = "other"'))
    source = next((folder / "solutions/other/solution").rglob("*.py"))
    source.write_text(f"{source.read_text()}\n# another one\n")
    (folder / "retained.toml").write_text('[cpu]\nsolution = "other"\n')
    with pytest.raises(UsageError, match="the incumbent of cpu is other"):
        apply_recorded(toy.catalog, archive, None)
    (folder / "retained.toml").write_text(as_it_was)
    lines = (folder / "workloads.jsonl").read_text().splitlines(keepends=True)
    (folder / "workloads.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(UsageError, match="other workloads"):
        apply_recorded(Catalog(toy.root), archive, None)
    assert (folder / "retained.toml").read_text() == as_it_was
