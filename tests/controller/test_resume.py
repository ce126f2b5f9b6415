"""Killing kopt at any instant loses at most the measurement in flight."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.campaign import open_campaign
from kopt_controller.history import view_run
from kopt_controller.simulated import SimulatedHarness
from kopt_harness.archive import Run
from kopt_harness.errors import InfraError, InterruptedRunError, NotFoundError, UsageError
from kopt_harness.journal import Journal, read_journal
from kopt_harness.schema import Solution

Toy = Any
"""The fixture's type lives in conftest.py, which cannot be imported."""

# Real noise (no seed): what is measured twice differs, so a reused sample shows.
_CHILD = """
import json, sys
from pathlib import Path
from kopt_controller.campaign import open_campaign, start_campaign
from kopt_controller.config import RunConfig
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness, bowl
from kopt_harness.root import Root

root = Root(Path(sys.argv[1]))
device = SimulatedDevice(
    latency_us=bowl({"plain": 50.0, "tuned": 10.0}, {"TILE": 8, "UNROLL": 4}),
    launches=lambda solution: 9 if solution.name == "plain" else 1,
    seed=None, noise=0.05, blocks=3, unit_s=0.003,
)
make = lambda target, _: SimulatedHarness(target.name, device)
if sys.argv[2] == "start":
    config = RunConfig(target="cpu", rounds=3, max_candidates=3, search_seed=1)
    campaign = start_campaign(root, "toy", config, make, lambda _: None)
else:
    campaign = open_campaign(root, None, make, lambda _: None)
print(campaign.run.id, flush=True)
print(json.dumps(campaign.execute().document()))
"""


def _spawn(root: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(root), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for_records(path: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.001)
    raise AssertionError(f"no {count} records in {path}")


def _replay(root: Path, run_id: str, toy: Toy) -> SimulatedHarness:
    """Runs the loop over what is recorded; returns the harness that had to measure."""
    harness = SimulatedHarness("cpu", toy.device)
    open_campaign(toy.root, run_id, lambda *_: harness, lambda _: None).execute()
    return harness


@pytest.mark.parametrize("kills", [(1, 20, 45), (3, 30), (12, 60, 75)])
def test_a_killed_run_decides_as_if_it_had_not_been(
    toy: Toy, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    """Kill -9 again and again: no record is lost or changed, and a replay decides the same."""
    run: Run | None = None
    before = b""
    for number, records in enumerate(kills):
        with _spawn(tmp_path, "start" if number == 0 else "resume") as child:
            assert child.stdout is not None
            run = Run(tmp_path / "artifacts/local/runs" / child.stdout.readline().strip())
            _wait_for_records(run.journal_path, records)
            child.kill()
        after = run.journal_path.read_bytes()
        whole = before[: before.rfind(b"\n") + 1]
        assert after.startswith(whole)
        before = after
    assert run is not None
    with _spawn(tmp_path, "resume") as child:
        output, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    resumed = json.loads(output.splitlines()[1])
    assert run.journal_path.read_bytes().startswith(before[: before.rfind(b"\n") + 1])

    # The same recorded samples in one go, in a folder in which nothing was ever promoted.
    complete = run.journal_path.read_bytes()
    (toy.root.kernels / "toy_op_n" / "retained.toml").write_text('[cpu]\nsolution = "plain"\n')
    harness = SimulatedHarness("cpu", toy.device)
    replay = open_campaign(toy.root, run.id, lambda *_: harness, lambda _: None)
    assert replay.execute().document() == resumed
    assert harness.units == 0
    assert run.journal_path.read_bytes() == complete


def _set_pointer(toy: Toy, rounds: list[dict[str, Any]], promotions: int) -> None:
    """The pointer as it was when so many promotions had been recorded."""
    text = '[cpu]\nsolution = "plain"\n'
    if promotions:
        now = rounds[promotions - 1]["incumbent"]
        text = f'[cpu]\nsolution = "{now["name"]}"\nsha256 = "{now["sha256"]}"\n'
    (toy.root.kernels / "toy_op_n" / "retained.toml").write_text(text)


def test_every_prefix_of_a_journal_leads_to_the_same_decisions(toy: Toy) -> None:
    """Cut after each record, and inside each record: with equal samples, equal decisions."""
    campaign = toy.campaign(rounds=2, max_candidates=2)
    expected = campaign.execute().document()
    path = campaign.run.journal_path
    complete = path.read_bytes()
    keys = [record.key for record in read_journal(path)]
    lines = complete.splitlines(keepends=True)
    for count in range(0, len(lines), 7):
        half = lines[count][: len(lines[count]) // 2]
        path.write_bytes(b"".join(lines[:count]) + half)
        _set_pointer(toy, expected["rounds"], sum("/promotion" in key for key in keys[:count]))
        harness = SimulatedHarness("cpu", toy.device)
        resumed = open_campaign(toy.root, campaign.run.id, lambda *_, h=harness: h, print)
        assert resumed.execute().document() == expected
        measured = sum("/block/" in key or "/check/" in key for key in keys[count:])
        assert harness.units == measured
        assert [r.key for r in read_journal(path) if r.key in keys] == keys


def test_a_promotion_that_was_cut_off_is_completed(toy: Toy) -> None:
    """Killed after the pointer moved and before the journal knew: the result is the same."""
    campaign = toy.campaign()
    expected = campaign.execute().document()
    path = campaign.run.journal_path
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(i for i, record in enumerate(read_journal(path)) if record.key == "r1/promotion")
    path.write_bytes(b"".join(lines[:at]))
    shutil.rmtree(toy.root.retained)
    assert _replay(toy.root.path, campaign.run.id, toy).units == 0
    assert (toy.root.retained / "toy_op_n" / "cpu" / "summary.json").exists()
    assert (
        open_campaign(toy.root, campaign.run.id, lambda *_: pytest.fail("measured"), print)
        .execute()
        .document()
        == expected
    )


def test_another_epoch_measures_an_interrupted_gate_anew(toy: Toy) -> None:
    """After a reboot the blocks of an unfinished comparison are not mixed with new ones."""
    campaign = toy.campaign()
    campaign.execute()
    path = campaign.run.journal_path
    records = read_journal(path)
    at = next(i for i, record in enumerate(records) if "/block/" in record.key) + 2
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:at]))
    device = toy.device._replace(epoch="rebooted")
    harness = SimulatedHarness("cpu", device)
    open_campaign(toy.root, campaign.run.id, lambda *_: harness, print).execute()
    (round_,) = view_run(campaign.run).rounds
    assert all(c.gate["comparison"]["epoch"] == "rebooted" for c in round_.candidates)
    blocks = sum("/rebooted/block/" in record.key for record in read_journal(path))
    representatives = len(toy.catalog.representatives(toy.catalog.resolve("toy")))
    gates_and_validation = (len(round_.candidates) + 1) * representatives
    assert blocks == (gates_and_validation + 4) * device.blocks


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_says_how_to_go_on(toy: Toy, number: signal.Signals) -> None:
    """Stopped politely, the run is saved and the hint has the command."""

    class Stopped(SimulatedHarness):
        def sweep(self, *_: object) -> Any:
            signal.raise_signal(number)
            raise AssertionError("the signal ends the run")

    campaign = toy.campaign()._replace(make_harness=lambda *_: Stopped("cpu", toy.device))
    with pytest.raises(InterruptedRunError) as caught:
        campaign.execute()
    assert caught.value.exit_code == 130
    assert f"kopt resume {campaign.run.id}" in caught.value.hint
    assert view_run(campaign.run).state == "interrupted"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_failing_machine_says_how_to_go_on(toy: Toy) -> None:
    """An infrastructure error keeps what was measured before it."""

    class Broken(SimulatedHarness):
        def sweep(self, *_: object) -> Any:
            raise InfraError("the driver is gone", hint="restart the machine")

    campaign = toy.campaign()._replace(make_harness=lambda *_: Broken("cpu", toy.device))
    with pytest.raises(InfraError) as caught:
        campaign.execute()
    assert "restart the machine" in caught.value.hint
    assert f"kopt resume {campaign.run.id}" in caught.value.hint


def test_candidates_are_prepared_together_once(toy: Toy) -> None:
    """All whose gate is still to come, before the first of them; none whose gate is recorded."""
    prepared: list[list[str]] = []
    gated: list[str] = []

    class Watched(SimulatedHarness):
        stop = True

        def prepare(self, solutions: Sequence[Solution]) -> None:
            prepared.append([solution.name for solution in solutions])
            gated.clear()

        def gate(self, candidate: Solution, *others: Any) -> Any:
            if self.stop and prepared and len(gated) == 1:
                raise InfraError("the driver is gone")
            gated.append(candidate.name)
            return super().gate(candidate, *others)

    harness = Watched("cpu", toy.device)
    campaign = toy.campaign(rounds=2, max_candidates=4)
    campaign = campaign._replace(make_harness=lambda *_: harness)
    with pytest.raises(InfraError):
        campaign.execute()
    harness.stop = False
    last = campaign.execute().rounds[-1]
    names = [candidate.name for candidate in last.candidates]
    assert len(names) > 2
    assert prepared == [names, names[1:]]
    assert gated == names[1:]


def test_two_processes_cannot_run_one_run(toy: Toy) -> None:
    """The second one is told, and status knows that the first is running."""
    campaign = toy.campaign()
    with Journal(campaign.run.journal_path):
        assert view_run(campaign.run).state == "running"
        with pytest.raises(UsageError, match="another process"):
            campaign.execute()


def test_resume_takes_the_latest_unfinished_run(toy: Toy) -> None:
    """Without a name the finished runs are passed over; with nothing left it says so."""
    first = toy.campaign()
    second = toy.campaign()
    second.execute()
    found = open_campaign(toy.root, None, first.make_harness, print)
    assert found.run.id == first.run.id
    found.execute()
    with pytest.raises(NotFoundError, match="no run is waiting"):
        open_campaign(toy.root, None, first.make_harness, print)


def test_a_harness_is_closed_whatever_happens(toy: Toy) -> None:
    """No worker outlives the run that started it."""
    closed: list[bool] = []

    class Watched(SimulatedHarness):
        def close(self) -> None:
            closed.append(True)

        def sweep(self, *_: object) -> Any:
            raise InfraError("the driver is gone")

    campaign = toy.campaign()._replace(make_harness=lambda *_: Watched("cpu", toy.device))
    with pytest.raises(InfraError):
        campaign.execute()
    assert closed == [True]
