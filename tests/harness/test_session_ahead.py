"""Processes that are opened ahead: ready, stopped, without candidate code, and gone in the end."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.errors import UnavailableError
from kopt_harness.evaluate import build
from kopt_harness.options import MeasureOptions
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.pack import load
from kopt_harness.schema import Definition, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting

pytestmark = pytest.mark.alone
HONEST = Path(__file__).parents[1] / "controls" / "solutions" / "k01-full-graph-key"


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """B = 1."""
    return [catalog.workloads(gdn_decode)[0]]


@pytest.fixture
def session(
    setting: Setting, gdn_decode: Definition, workloads: list[Workload]
) -> Iterator[Session]:
    """One with a judge."""
    with Session(setting, gdn_decode, workloads) as found:
        found.bind(workloads[0])
        yield found


def workers() -> set[int]:
    """Process ids of the judges and candidates below this process."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            title = child.cmdline()[0]
        except (psutil.Error, IndexError):
            continue
        if title.startswith("kopt worker "):
            found.add(child.pid)
    return found


def stopped(pids: set[int]) -> set[int]:
    """Those that stand still."""
    return {pid for pid in pids if psutil.Process(pid).status() == psutil.STATUS_STOPPED}


def settles(pids: set[int], wanted: int) -> set[int]:
    """Those of them that stand still once so many do; a stop takes a moment to show."""
    deadline = time.monotonic() + 5
    while len(found := stopped(pids)) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_processes_wait_until_they_are_next(session, setting, make_solution, honest) -> None:
    """Two more of each stand still, take their turns, and are followed by new ones."""
    first, second = (make_solution(honest + end, name="made") for end in ("", "\n"))
    opened = [(each, build(setting, each).path) for each in (first, second)]
    before = workers()
    session.open_all(opened, ahead=2)
    new = workers() - before
    assert len(new) == 6
    assert len(settles(new, 5)) == 5
    for left in (4, 2, 0):
        session.discard(first.sha256, second.sha256)
        kept = workers() - before
        assert kept < new
        assert len(kept) == left
        if left:
            session.open_all(opened, ahead=2)
            assert workers() - before == kept
    number = session.sets(next(iter(session.generators)), 1)[0]
    session.open_all(opened)
    for each in (first, second):
        session.call(each.sha256, number, phase="check", timed=False, full=True)


def test_what_is_not_needed_is_ended(session, setting, make_solution, honest) -> None:
    """Those that wait are gone; the one that is at work stays."""
    solution = make_solution(honest)
    before = workers()
    session.open_all([(solution, build(setting, solution).path)], ahead=3)
    assert len(workers() - before) == 4
    session.discard_ready()
    assert len(workers() - before) == 1
    number = session.sets(next(iter(session.generators)), 1)[0]
    session.call(solution.sha256, number, phase="check", timed=False, full=True)


def test_nothing_is_left_where_a_process_cannot_be_opened(
    setting, gdn_decode, workloads, make_solution, honest
) -> None:
    """All of them find at once that a cache state cannot be made."""
    options = setting.options.model_copy(update={"cache": "cold-clean"})
    other = Setting(setting.catalog, setting.target, options)
    solution = make_solution(honest)
    before = workers()
    with Session(other, gdn_decode, workloads) as session:
        session.bind(workloads[0])
        with pytest.raises(UnavailableError, match="cold-clean"):
            session.open_all([(solution, build(other, solution).path)], ahead=2)
        assert len(workers() - before) == 1
    assert workers() == before


def test_a_solution_that_cannot_be_loaded_leaves_the_rest_to_be_ended(
    session, setting, make_solution, honest
) -> None:
    """Its failure is its own verdict, and those that wait are ended with the comparison."""
    solution = make_solution(honest + "\nraise OSError('no')\n")
    before = workers()
    with pytest.raises(CandidateFailedError):
        session.open_all([(solution, build(setting, solution).path)], ahead=2)
    assert len(workers() - before) == 2
    session.discard_ready()
    assert workers() == before


@pytest.fixture
def simulated(catalog: Catalog) -> Setting:
    """A device that has memory of its own."""
    return Setting.here(catalog, "simulated", MeasureOptions(trials=1, pool=1))


def test_processes_of_a_round_that_is_over_stand_still_until_others_are_opened(
    simulated, gdn_decode, workloads
) -> None:
    """They take no part in anything, and are gone with the next opening and in the end."""
    solution = load(HONEST, known=simulated.catalog).solution
    opened = [(solution, build(simulated, solution).path)]
    nobody = workers()
    with Session(simulated, gdn_decode, workloads) as session:
        session.bind(workloads[0])
        session.open_all(opened, ahead=1)
        first = workers() - nobody
        session.set_aside(solution.sha256)
        assert workers() - nobody == first
        session.open_all(opened, ahead=1)
        number = session.sets(next(iter(session.generators)), 1)[0]
        session.call(solution.sha256, number, phase="check", timed=False, full=True)
        assert workers() - nobody == first
        session.set_aside(solution.sha256)
        session.open_all(opened, ahead=1)
        # The judge alone was there before.
        assert len(first & workers()) == 1
        session.set_aside(solution.sha256)
        session.discard_ready()
        assert len(workers() - nobody) == 1
        session.open_all(opened)
        session.set_aside(solution.sha256)
    assert workers() == nobody


def test_a_processor_has_no_memory_to_wait_for(session, setting, make_solution, honest) -> None:
    """There, and where a device is short of it, a process that is set aside is ended at once."""
    solution = make_solution(honest)
    before = workers()
    session.open_all([(solution, build(setting, solution).path)])
    session.set_aside(solution.sha256)
    assert workers() == before


def test_a_device_that_is_short_of_memory_waits_for_nothing(
    simulated, gdn_decode, workloads, monkeypatch
) -> None:
    """Half of what was free must be left."""
    solution = load(HONEST, known=simulated.catalog).solution
    nobody = workers()
    with Session(simulated, gdn_decode, workloads) as session:
        session.bind(workloads[0])
        session.open_all([(solution, build(simulated, solution).path)])
        ask = session._workers.ask_judge
        free = ask("canary")["free_bytes"]
        for left, kept in ((free // 2 + 1, 2), (free // 2 - 1, 1)):
            answer = {"ok": True, "free_bytes": left}
            with monkeypatch.context() as patched:
                patched.setattr(session._workers, "ask_judge", lambda _, answer=answer: answer)
                session.set_aside(solution.sha256)
            assert len(workers() - nobody) == kept
            if kept == 2:
                session.open_all([(solution, build(simulated, solution).path)])


COUNTS = """
import os
from pathlib import Path

folder = Path(os.environ["TRITON_CACHE_DIR"])
known = len(list(folder.iterdir()))
(folder / f"kernel-{known}").write_text("compiled")
if known == 2:
    raise OSError("two have been here before")
"""


def test_processes_of_a_trusted_solution_share_what_was_compiled(
    session, setting, make_solution, honest
) -> None:
    """The third finds what two have left, also where they were opened at once; nobody else does."""
    trusted, other = (make_solution(honest + COUNTS + end, name="made") for end in ("", "\n"))
    session.keep_caches([trusted.sha256])
    for solution, fails in ((trusted, True), (other, False)):
        opened = [(solution, build(setting, solution).path)]
        for number in range(3):
            if fails and number == 2:
                with pytest.raises(CandidateFailedError, match="two have been here before"):
                    session.open_all(opened, ahead=2)
            else:
                session.open_all(opened, ahead=2)
            session.discard(solution.sha256)
        session.discard_ready()


def test_what_was_compiled_is_gone_with_the_session(
    setting, gdn_decode, workloads, make_solution, honest
) -> None:
    """And its folder belongs to a user that nobody else is, where one is granted."""
    solution = make_solution(honest)
    folders = Path(tempfile.gettempdir())
    before = set(folders.glob("kopt-worker-caches-*"))
    with Session(setting, gdn_decode, workloads) as session:
        session.keep_caches([solution.sha256])
        (made,) = set(folders.glob("kopt-worker-caches-*")) - before
        if os.geteuid() == 0:
            assert made.stat().st_uid >= 20000
    assert set(folders.glob("kopt-worker-caches-*")) == before
