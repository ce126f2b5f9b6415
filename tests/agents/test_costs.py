"""What campaigns cost: counted once, limited hard, resumed with what was spent."""

import json
import time
from pathlib import Path
from typing import Any

import kopt_tests_agents
import pytest
from kopt_controller.campaign import open_campaign
from kopt_controller.cli import main
from kopt_controller.costs import (
    Allowance,
    Limits,
    Usage,
    by,
    cost_report,
    dollars_per_percent,
    least,
    note_turn,
    note_usage,
    spent_of,
    total_of,
    uses_in,
)
from kopt_controller.metering import Meter, read_costs
from kopt_controller.simulated import SimulatedHarness
from kopt_harness.errors import LimitReachedError
from kopt_harness.journal import read_journal
from kopt_harness.ledger import DictLedger

Toy = Any
brief_of, agent_of = kopt_tests_agents.brief_of, kopt_tests_agents.agent_of


def _use(**fields: Any) -> Usage:
    return Usage.model_validate({"agent": "a", "model": "m", "dollars": 0.5, **fields})


def _values(ledger: DictLedger) -> dict[str, dict[str, Any]]:
    return {key: ledger.get(key) or {} for key in ledger.completed()}


def test_sums_say_where_a_price_lacks() -> None:
    """Dollars are then a lower bound, and nothing is divided by them."""
    cost = spent_of([_use(tokens_in=3, tokens_out=4), _use(dollars=None, tokens_cached=5)])
    assert (cost.calls, cost.tokens, cost.dollars, cost.unpriced) == (2, 12, 0.5, 1)
    assert dollars_per_percent(cost, 0.9) is None
    priced = spent_of([_use(), _use()])
    assert dollars_per_percent(priced, 0.9) == pytest.approx(0.1)
    assert dollars_per_percent(priced, 1.01) is None
    assert dollars_per_percent(priced, None) is None
    assert list(by([_use(model="x"), _use(model="y"), _use(model="x")], lambda u: u.model)) == [
        "x",
        "y",
    ]


def test_an_attempt_that_was_killed_is_paid_by_its_turns() -> None:
    """Turns count until the attempt has ended; then its own sum takes their place."""
    ledger = DictLedger()
    call = ledger.scoped("r1/agent/tiling")
    for index in range(3):
        note_turn(call, 0, index, _use(tokens_in=10, dollars=None))
    assert spent_of(use.usage for use in uses_in(_values(ledger))).tokens_in == 30
    note_usage(call, 0, [_use(tokens_in=33)])
    note_turn(call, 1, 0, _use(tokens_in=7))
    question = ledger.scoped("r2/planner/a")
    note_usage(question, 0, [_use(tokens_in=100, role="planner")])
    uses = uses_in(_values(ledger))
    assert [(use.round, use.usage.tokens_in) for use in uses] == [(1, 33), (1, 7), (2, 100)]


def test_a_call_is_paid_by_what_it_led_to() -> None:
    """In equal parts; a sub-agent's call belongs to the call that it is a part of."""
    ledger = DictLedger()
    note_usage(ledger.scoped("r1/agent/tiling"), 0, [_use(dollars=1.0)])
    note_usage(ledger.scoped("r1/agent/tiling/reviewer"), 0, [_use(dollars=0.5, sub_agent="r")])
    note_usage(ledger.scoped("r1/agent/fusion"), 0, [_use(dollars=4.0)])
    ledger.put("r1/proposals/tiling", {"candidates": [{"sha256": "x"}, {"sha256": "y"}]})
    report = cost_report([use.usage for use in uses_in(_values(ledger))], [])
    assert {sha: cost.dollars for sha, cost in report.by_candidate.items()} == {
        "x": 0.75,
        "y": 0.75,
    }
    assert report.total.dollars == 5.5
    assert set(report.by_role) == {"author", "author/r"}
    assert total_of([report, report]).by_candidate["x"].dollars == 1.5


def test_the_tightest_allowance_counts() -> None:
    """Each kind for itself."""
    tight = least(Allowance(dollars=1.0, tokens=5), Allowance(dollars=2.0, wall_s=9.0))
    assert tight == Allowance(dollars=1.0, tokens=5, wall_s=9.0)


@pytest.mark.parametrize("name", ["max_dollars", "max_tokens", "max_wall_s", "max_device_s"])
def test_each_limit_ends_a_campaign(toy: Toy, name: str) -> None:
    """With what was used, and how to go on with more."""
    journal, own = DictLedger(), DictLedger()
    limits = Limits.model_validate({name: 0.01 if name != "max_tokens" else 1})
    meter = Meter(journal, own, limits, "kopt resume R")
    meter.check()
    if name == "max_device_s":
        with meter.measuring("gate", toy.solution("plain")):
            time.sleep(0.02)
    else:
        note_usage(journal.scoped("r1/agent/x"), 0, [_use(tokens_in=2)])
        time.sleep(0.02)
    with pytest.raises(LimitReachedError) as caught:
        meter.check()
    assert f"kopt resume R --{name.replace('_', '-')}" in caught.value.hint
    assert caught.value.exit_code == 130


def test_what_earlier_processes_have_used_counts(toy: Toy) -> None:
    """Device and wall time are read back from the file of the run."""
    journal, own = DictLedger(), DictLedger()
    own.put("wall/0/0", {"s": 3.0})
    own.put("wall/0/1", {"s": 5.0})
    own.put("wall/1/0", {"s": 2.0})
    first = Meter(journal, own, Limits())
    with first.measuring("sweep", toy.solution("plain")):
        time.sleep(0.01)
    second = Meter(journal, own, Limits(max_device_s=100.0, max_wall_s=8.0))
    assert second.wall_s() >= 7.0
    left = second.left()
    assert left.device_s is not None
    assert left.device_s < 100.0
    assert left.wall_s is not None
    assert left.wall_s <= 1.0


def _writes(toy_draft: Any, leaves: Any, dollars: float, body: str, name: str) -> list[Any]:
    return [*leaves(toy_draft(body), name), ["turn", [10, 0, 5]], ["end", {"dollars": dollars}]]


def _device(toy: Toy) -> Any:
    times = {"plain": 50.0, "one": 40.0, "two": 30.0, "three": 20.0}
    return toy.device._replace(
        latency_us=lambda solution, workload: times[solution.name] * (1 + 0.05 * workload.axes["n"])
    )


def test_a_dollar_limit_stops_a_campaign_which_then_goes_on(
    toy: Toy, install: Any, toy_draft: Any, leaves: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its state is saved: with a higher limit it goes on where it stopped, and pays once."""
    install("claude", [_writes(toy_draft, leaves, 0.6, "y.copy_(x + 1)", "one")])
    device = _device(toy)
    options = {"agent": "claude-code", "rounds": 2, "promotion": "auto"}
    campaign = toy.campaign(device, limits={"max_dollars": 0.5}, **options)
    with pytest.raises(LimitReachedError) as caught:
        campaign.execute()
    assert "--max-dollars" in caught.value.hint
    assert "0.6" in caught.value.message
    path = campaign.run.journal_path
    assert not any(record.key == "finished" for record in read_journal(path))
    command = ["--root", str(toy.root.path), "status"]
    assert main([*command, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["state"] == "interrupted"
    assert status["limit"] == {"name": "max_dollars", "used": 0.6, "limit": 0.5}
    assert status["cost"]["total"]["dollars"] == 0.6
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "0.6 of 0.5 dollars" in said
    assert f"kopt resume {campaign.run.id} --max-dollars N" in said

    install("claude", [_writes(toy_draft, leaves, 0.3, "y.copy_(1 + x)", "two")])
    harness = SimulatedHarness("cpu", device)
    more = open_campaign(toy.root, campaign.run.id, lambda *_: harness, print, {"max_dollars": 5.0})
    rounds = more.execute().rounds
    assert [result.incumbent.name for result in rounds] == ["one", "two"]
    costs = read_costs(campaign.run.folder)
    assert costs.rounds[1].total.dollars == pytest.approx(0.6)
    assert costs.rounds[2].total.dollars == pytest.approx(0.3)
    document = costs.document()
    assert document is not None
    assert document["total"]["dollars"] == pytest.approx(0.9)
    assert document["by_agent"]["claude-code"]["calls"] == 2
    first = rounds[0].candidates[0].sha256
    assert costs.rounds[1].by_candidate[first].dollars == pytest.approx(0.6)


def test_a_finished_run_that_is_read_again_costs_nothing(toy: Toy) -> None:
    """Neither its journal nor its costs grow."""
    campaign = toy.campaign(rounds=2)
    campaign.execute()
    costs = (campaign.run.folder / "costs.jsonl").read_bytes()
    assert costs
    open_campaign(
        toy.root, campaign.run.id, lambda *_: pytest.fail("measured"), lambda _: None
    ).execute()
    assert (campaign.run.folder / "costs.jsonl").read_bytes() == costs


def test_limits_of_a_call_are_what_is_left_of_the_campaign(
    toy: Toy, install: Any, toy_draft: Any, leaves: Any, tmp_path: Path
) -> None:
    """The program itself is told of the dollars that are left."""
    scripts = [_writes(toy_draft, leaves, 0.6, "y.copy_(x + 1)", "one")]
    install("claude", scripts)
    campaign = toy.campaign(
        _device(toy), agent="claude-code", limits={"max_dollars": 1.0, "max_device_s": 50.0}
    )
    campaign.execute()
    install("claude", [[["steal", "../home/starts.json", "drafts/one/x.json"], ["end"]]])
    brief = brief_of(toy, left=lambda: Allowance(dollars=0.4))
    agent = agent_of(toy, "claude-code", max_dollars=3.0)
    agent.propose(brief)
    words = json.dumps(agent.writer._dialect.command(_called(0.4)))
    assert '"--max-budget-usd", "0.4000"' in words


def _called(dollars: float) -> Any:
    from kopt_controller.agents.writing import Call

    return Call(None, None, 5, dollars, tools=True, work=Path("/work"))


def test_waiting_for_others_is_no_use_of_the_device(toy: Toy, tmp_path: Path) -> None:
    """While another process measures, this campaign pays nothing."""
    from threading import Event, Thread

    from kopt_harness.lease import device_lease

    held, begun = Event(), Event()

    def other() -> None:
        with device_lease("a-device-of-this-test", folder=tmp_path):
            held.set()
            begun.wait(10)
            time.sleep(0.5)

    thread = Thread(target=other)
    thread.start()
    assert held.wait(10)
    meter = Meter(DictLedger(), DictLedger(), Limits())
    with meter.measuring("gate", toy.solution("plain")):
        begun.set()
        with device_lease("a-device-of-this-test", folder=tmp_path):
            pass
    thread.join()
    assert meter.report().device_s < 0.3
