"""Each condition of a promotion fails alone, and is named; without the fault it holds."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kopt_controller.config import PromotionRules, load_config
from kopt_controller.policy import (
    awaits_validation,
    decide,
    promotion_conditions,
    validation_conditions,
)
from kopt_controller.result import Decision
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_harness.ledger import DictLedger
from kopt_harness.schema import Artefact, SweepResult, Validation, Workload

Toy = Any
INPUTS = PromotionRules().min_distinct_inputs


class Found(NamedTuple):
    """What a round has recorded of its best candidate."""

    toy: Toy
    workloads: list[Workload]
    sweep: SweepResult
    validation: Validation

    def decide(self, rules: PromotionRules | None = None, seed: int | None = None) -> Decision:
        """The decision of the round."""
        return decide(
            [],
            self.sweep,
            workloads=self.workloads,
            public_seed=seed,
            rules=rules,
            validation=self.validation,
        )

    def failing(self, rules: PromotionRules | None = None, seed: int | None = None) -> list[str]:
        """Names of the conditions that do not hold."""
        return [c.name for c in self.decide(rules, seed).evidence if not c.ok]


def found(toy: Toy, latency_us: Callable[[str, int], float]) -> Found:
    """Recorded of ``tuned`` against ``plain``, whose latencies are a function of name and n."""
    device = SimulatedDevice(latency_us=lambda s, w: latency_us(s.name, w.axes["n"]), noise=0.002)
    workloads = toy.catalog.workloads(toy.catalog.resolve("toy"))
    tuned, plain = toy.solution("tuned"), toy.solution("plain")
    sweep = SimulatedHarness("cpu", device).sweep(tuned, plain, workloads, DictLedger(), INPUTS)
    steady = SimulatedDevice(latency_us=lambda s, _: 50.0 if s.name == "tuned" else 100.0)
    again = SimulatedHarness("cpu", steady).validate(tuned, plain, workloads[:2], DictLedger())
    return Found(toy, workloads, sweep, again)


@pytest.fixture
def good(toy: Toy) -> Found:
    """Twice as fast everywhere."""
    return found(toy, lambda name, _: 50.0 if name == "tuned" else 100.0)


def with_sweep(good: Found, change: Callable[[dict[str, Any]], Any]) -> Found:
    """The same with its sweep changed in one place."""
    data = good.sweep.model_dump(mode="json")
    change(data)
    return good._replace(sweep=SweepResult.model_validate(data))


def with_validation(good: Found, change: Callable[[dict[str, Any]], Any]) -> Found:
    """The same with its validation changed in one place."""
    data = good.validation.model_dump(mode="json")
    change(data)
    return good._replace(validation=Validation.model_validate(data))


def test_without_a_fault_everything_holds(good: Found) -> None:
    """Every condition has what is required and what was measured, and says yes."""
    decision = good.decide()
    assert decision.label == "promote"
    for condition in decision.evidence:
        assert condition.ok
        assert condition.required
        assert condition.measured


IN_SWEEP: dict[str, Callable[[dict[str, Any]], Any]] = {
    "coverage": lambda s: s.update(complete=False),
    "contest-tier": lambda s: s["evaluation"]["workloads"][0]["tiers"].pop("contest"),
    "strict-tier": lambda s: s["evaluation"]["workloads"][2]["tiers"].pop("strict"),
    "speed": lambda s: s["comparison"].update(decision="ambiguous"),
    "regressions": lambda s: s["comparison"]["workloads"][1].update(p_slower=0.01, ratio=1.2),
    "median": lambda s: s["comparison"]["secondary"].update(median=1.03),
    "p95": lambda s: s["comparison"]["secondary"].update(p95=1.03),
    "worst-regime": lambda s: s["comparison"]["secondary"].update(worst_regime_ratio=1.03),
    "trials": lambda s: s["evaluation"]["workloads"][3].update(trials=INPUTS // 4 - 1),
    "flags": lambda s: s["evaluation"].update(flags=[{"code": "below-floor", "detail": "x"}]),
    "rebuild": lambda s: s["built"].update(key="f" * 64),
}


@pytest.mark.parametrize("name", IN_SWEEP)
def test_a_condition_of_the_sweep_bars_alone(good: Found, name: str) -> None:
    """One fault in what was recorded, one condition that fails, and the decision names it."""
    faulty = with_sweep(good, IN_SWEEP[name])
    decision = faulty.decide()
    assert (decision.label, decision.code) == ("archive", name)
    assert faulty.failing() == [name]
    (failed,) = [c for c in decision.evidence if not c.ok]
    assert failed.measured in decision.reason


def test_the_verdict_bars_alone(good: Found) -> None:
    """A machine that failed is no pass, and nobody's fault."""
    faulty = with_sweep(good, lambda s: s["evaluation"].update(verdict="infra"))
    assert faulty.failing() == ["verdict"]
    assert faulty.decide().code == "verdict"


def test_a_public_seed_bars_alone(good: Found) -> None:
    """All else may hold."""
    assert good.failing(seed=7) == ["inputs"]


IN_VALIDATION: dict[str, Callable[[dict[str, Any]], Any]] = {
    "slower": lambda v: v["gate"].update(passed=False),
    "not compared": lambda v: v["gate"]["comparison"].update(ratio=None, ci=None),
    "flagged": lambda v: v["gate"]["evaluation"].update(
        flags=[{"code": "pointer-bound", "detail": "x"}]
    ),
    "machine": lambda v: v["gate"]["evaluation"].update(verdict="infra"),
}


@pytest.mark.parametrize("fault", IN_VALIDATION)
def test_a_second_process_bars_alone(good: Found, fault: str) -> None:
    """What it does not confirm is kept and not promoted."""
    faulty = with_validation(good, IN_VALIDATION[fault])
    assert faulty.failing() == ["validation"]
    assert (faulty.decide().label, faulty.decide().code) == ("archive", "validation")


def test_what_is_wrong_in_a_second_process_is_rejected(good: Found) -> None:
    """A wrong answer is one, whatever the sweep has seen."""

    def wrong(validation: dict[str, Any]) -> None:
        validation["gate"].update(passed=False)
        validation["gate"]["evaluation"].update(verdict="fail")

    decision = with_validation(good, wrong).decide()
    assert (decision.label, decision.code) == ("reject", "validation-fail")


def _other_artefact(validation: dict[str, Any]) -> None:
    artefact = Artefact(kind="cubin", arch="sm_90a", name="step", registers=40, spill_bytes=0)
    validation["built"]["artefacts"] = [artefact.model_dump(mode="json")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v["built"].update(key="e" * 64), "flags or toolchain have changed"),
        (lambda v: v["built"].update(cached=True), "taken from a cache"),
        (lambda v: v["built"].update(ok=False, log="ld: no such file"), "ld: no such file"),
        (_other_artefact, "40 registers"),
    ],
)
def test_another_build_bars_alone(
    good: Found, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    """The condition says what differs."""
    faulty = with_validation(good, change)
    assert faulty.failing() == ["rebuild"]
    assert words in faulty.decide().reason


def test_faster_on_average_and_slower_somewhere_is_kept(toy: Toy) -> None:
    """A measured regression: archived under its name, the worst workload with axes and p."""
    mixed = found(toy, lambda name, n: 100.0 if name == "plain" else 130.0 if n == 2 else 40.0)
    decision = mixed.decide()
    assert (decision.label, decision.code) == ("archive", "regressions")
    condition = next(c for c in decision.evidence if c.name == "regressions")
    assert condition.measured.startswith("1 of 4 slower; worst 00000001-toy (n=2): ratio 1.3")
    assert "adjusted p" in condition.measured


def test_a_slow_down_within_the_margin_bars_nothing(toy: Toy) -> None:
    """One per cent slower on one workload is no regression at a margin of two."""
    slight = found(toy, lambda name, n: 100.0 if name == "plain" else 101.0 if n == 2 else 40.0)
    assert slight.failing() == []


def test_a_person_can_turn_a_rule_off(toy: Toy) -> None:
    """Then the condition is still shown, with its number."""
    mixed = found(toy, lambda name, n: 100.0 if name == "plain" else 130.0 if n == 2 else 40.0)
    rules = PromotionRules(regressions="off", p95_ratio_max=2.0, worst_regime_ratio_max=2.0)
    decision = mixed.decide(rules)
    assert decision.label == "promote"
    assert "1 of 4 slower" in next(c for c in decision.evidence if c.name == "regressions").measured


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ({"median_ratio_max": 0.4}, "median"),
        ({"p95_ratio_max": 0.4}, "p95"),
        ({"worst_regime_ratio_max": 0.4}, "worst-regime"),
        ({"min_distinct_inputs": INPUTS + 1}, "trials"),
    ],
)
def test_the_rules_are_data(good: Found, rules: dict[str, Any], name: str) -> None:
    """A stricter number refuses what the default lets through."""
    assert good.failing() == []
    assert good.failing(PromotionRules.model_validate(rules)) == [name]


def test_the_level_of_a_regression_is_data(good: Found) -> None:
    """A p-value of one per cent is a regression at five and none at half a per cent."""
    faulty = with_sweep(good, IN_SWEEP["regressions"])
    assert faulty.failing() == ["regressions"]
    assert faulty.failing(PromotionRules(regression_level=0.005)) == []


ONE_BY_ONE = {
    "clean_rebuild": "rebuild",
    "validate_in_second_process": "validation",
    "external_confirmation": "confirmation",
}


def test_a_validation_is_run_only_where_all_else_holds(good: Found) -> None:
    """And not at all where the rules do not ask for one."""
    rules = PromotionRules()

    def awaited(found: Found, rules: PromotionRules) -> bool:
        of_sweep = promotion_conditions(
            found.sweep, workloads=found.workloads, public_seed=None, rules=rules
        )
        return awaits_validation(of_sweep, rules)

    assert awaited(good, rules)
    assert not awaited(with_sweep(good, IN_SWEEP["trials"]), rules)
    none = PromotionRules(
        validate_in_second_process=False, clean_rebuild=False, external_confirmation=False
    )
    assert not awaited(good, none)
    assert validation_conditions(good.sweep, None, rules=none) == ()
    for field, name in ONE_BY_ONE.items():
        only = PromotionRules.model_validate(none.model_dump() | {field: True})
        assert awaited(good, only)
        assert [c.name for c in validation_conditions(good.sweep, None, rules=only)] == [name]


def test_a_journal_of_an_older_version_is_read_and_promotes_nothing(good: Found) -> None:
    """What it did not record is said to be missing, condition by condition."""

    def older(sweep: dict[str, Any]) -> None:
        del sweep["built"], sweep["comparison"]["secondary"]
        for row in sweep["comparison"]["workloads"]:
            del row["p_slower"], row["slower"]

    old = with_sweep(good, older)
    missing = {c.name: c.measured for c in old.decide().evidence if not c.ok}
    assert list(missing) == ["regressions", "median", "p95", "worst-regime", "rebuild"]
    assert all("not recorded" in measured for measured in missing.values())
    assert old.decide().label == "archive"


def test_a_flag_of_the_validation_can_be_overridden(good: Found) -> None:
    """By its own code, like one of the sweep."""
    faulty = with_validation(good, IN_VALIDATION["flagged"])

    def ok(*overridden: str) -> bool:
        found = validation_conditions(faulty.sweep, faulty.validation, overridden=overridden)
        return {c.name: c.ok for c in found}["validation"]

    assert not ok()
    assert not ok("below-floor")
    assert ok("pointer-bound")


CONFIRMED = {
    "uuid": "w",
    "axes": {"n": 1},
    "kernels": 2,
    "claimed_span_us": 10.0,
    "claimed_busy_us": 9.0,
    "external_us": 9.25,
    "external_raw_us": 10.75,
    "allowed_us": 0.925,
    "outcome": "agreed",
}
"""One workload of a confirmation that agrees."""


def confirmed(good: Found, outcome: str, **fields: Any) -> Found:
    """The same, with what an external profiler came to."""
    told = {"outcome": outcome, "profiler": "ncu", "workloads": [CONFIRMED], **fields}
    return with_validation(good, lambda validation: validation.update(confirmation=told))


def test_a_profiler_that_agrees_is_named_with_its_distance(good: Found) -> None:
    """A person sees how far claim and profiler are apart."""
    evidence = {c.name: c for c in confirmed(good, "agreed").decide().evidence}
    assert evidence["confirmation"].ok
    assert "ncu agrees on 1 workload, within 0.25 us" in evidence["confirmation"].measured


@pytest.mark.parametrize(
    ("outcome", "code"), [("disagreed", "timer-disagrees"), ("unconfirmed", "timer-unconfirmed")]
)
def test_without_a_profiler_that_agrees_nothing_is_promoted(
    good: Found, outcome: str, code: str
) -> None:
    """The reason is shown; a person may accept it by its own code, and by no other."""
    faulty = confirmed(good, outcome, reason="ERR_NVGPUCTRPERM")
    assert faulty.failing() == ["confirmation"]
    assert (faulty.decide().label, faulty.decide().code) == ("archive", "confirmation")
    assert faulty.failing(PromotionRules(external_confirmation=False)) == []

    def found(*overridden: str) -> Any:
        every = validation_conditions(faulty.sweep, faulty.validation, overridden=overridden)
        return {c.name: c for c in every}["confirmation"]

    assert f"{code}: ERR_NVGPUCTRPERM" in found().measured
    assert not found("pointer-bound").ok
    assert found(code).ok


def test_a_confirmation_that_was_not_recorded_is_none(good: Found) -> None:
    """A journal of an older version has no such field."""
    older = with_validation(good, lambda validation: validation.pop("confirmation"))
    missing = {c.name: c.measured for c in older.decide().evidence if not c.ok}
    assert missing == {"confirmation": "not recorded"}


def test_the_same_record_gives_the_same_decision(good: Found) -> None:
    """Read back from JSON, nothing is drawn and nothing is looked up."""
    again = with_validation(with_sweep(good, lambda _: None), lambda _: None)
    assert again.decide() == good.decide()


def test_rules_come_from_file_and_flags(tmp_path: Any) -> None:
    """Defaults < file < flag, as everywhere."""
    (tmp_path / "mine.toml").write_text(
        "[conditions]\nmin_distinct_inputs = 7\np95_ratio_max = 2\n"
    )
    config = load_config(tmp_path, "mine", {"conditions.min_distinct_inputs": 9})
    assert config.conditions.min_distinct_inputs == 9
    assert config.conditions.p95_ratio_max == 2
    assert config.conditions.clean_rebuild


def test_the_shipped_default_spells_out_the_rules(repo_root: Any) -> None:
    """configs/default.toml names every field that has a value, as the code has it."""
    from kopt_harness.files import read_toml

    written = read_toml(repo_root / "configs/default.toml", "run configuration")["conditions"]
    assert written == PromotionRules().model_dump(exclude_none=True)
