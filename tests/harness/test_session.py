"""One warm judge and its candidates: processes, input sets, and what a worker can see."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.errors import UnavailableError
from kopt_harness.evaluate import build
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.schema import Definition, Solution, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """B = 1 and B = 4."""
    return [catalog.workloads(gdn_decode)[index] for index in (0, 10)]


@pytest.fixture(scope="module")
def warm(setting: Setting, gdn_decode: Definition, workloads: list[Workload]) -> Iterator[Session]:
    """One judge for the tests of this module."""
    with Session(setting, gdn_decode, workloads) as session:
        yield session


@pytest.fixture
def good(warm: Session, setting: Setting, workloads: list[Workload], make_solution, honest) -> str:
    """A correct solution, warm on the first workload; its hash."""
    solution: Solution = make_solution(honest)
    warm.bind(workloads[0])
    warm.open(solution, build(setting, solution).path)
    return solution.sha256


def workers() -> dict[int, Path]:
    """HOME of the judges and candidates below this process, by process id."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        try:
            title = child.cmdline()[0]
        except (psutil.Error, IndexError):
            continue
        if title.startswith("kopt worker "):
            found[child.pid] = Path(title.removeprefix("kopt worker "))
    return found


def test_nothing_is_started_before_it_is_needed(setting, gdn_decode, workloads) -> None:
    """A session over recorded results costs no process."""
    before = workers()
    with Session(setting, gdn_decode, workloads) as session:
        assert workers() == before
        assert session.phases_ns == {}
        assert session.isolation == {}


def test_closing_ends_every_worker_and_removes_its_folder(
    setting, gdn_decode, workloads, make_solution, honest
) -> None:
    """Judge and candidate are two processes with folders of their own; none is left."""
    before = workers()
    solution = make_solution(honest)
    with Session(setting, gdn_decode, workloads) as session:
        session.bind(workloads[0])
        session.open(solution, build(setting, solution).path)
        homes = {pid: home for pid, home in workers().items() if pid not in before}
        kinds = sorted(home.parent.name.split("-")[2] for home in homes.values())
        assert kinds == ["candidate", "judge"]
        assert all(home.is_dir() for home in homes.values())
    assert workers() == before
    assert not any(psutil.pid_exists(pid) for pid in homes)
    assert not any(home.exists() for home in homes.values())
    session.close()


def test_a_worker_sees_neither_the_callers_secrets_nor_files(
    warm, setting, workloads, make_solution, honest, monkeypatch, tmp_path
) -> None:
    """Environment from an allow-list, no descriptor but channel and arena, a HOME of its own."""
    monkeypatch.setenv("KOPT_TEST_TOKEN", "hush")
    path = tmp_path / "open-file-of-the-caller"
    path.write_text("hush")
    fd = os.open(path, os.O_RDONLY)
    os.set_inheritable(fd, True)
    nosy = (
        "import os\n"
        "from pathlib import Path\n"
        "assert 'hush' not in os.environ.values()\n"
        f"assert os.environ['HOME'] != {os.environ.get('HOME', '')!r}\n"
        "assert os.environ['TMPDIR'].startswith(os.environ['HOME'])\n"
        "for link in Path('/proc/self/fd').iterdir():\n"
        f"    assert not (link.exists() and link.resolve().name == {path.name!r})\n"
    )
    solution = make_solution(nosy + honest, name="nosy")
    try:
        warm.bind(workloads[0])
        warm.open(solution, build(setting, solution).path)
    finally:
        os.close(fd)
        warm.discard(solution.sha256)


def test_sets_are_kept_for_a_workload_and_fresh_ones_are_new(warm, good, workloads) -> None:
    """A pool is shared by all candidates; an unused set is handed out once a visit."""
    warm.bind(workloads[0])
    first = next(iter(warm.generators))
    pool = warm.sets(first, 3)
    assert len(set(pool)) == 3
    assert warm.sets(first, 2) == pool[:2]
    fresh = warm.fresh_set(first)
    assert fresh not in pool
    assert warm.sets(first, 3) == pool
    warm.bind(workloads[1])
    unused = warm.unused_set(first)
    assert unused is not None
    assert warm.unused_set(first) is None
    assert unused not in warm.sets(first, 2)


def test_every_set_passes_timed_or_not_and_wherever_it_lies(warm, good, workloads) -> None:
    """The claim lies within the orchestrator's own span; untimed calls have no number."""
    warm.bind(workloads[0])
    for generator in warm.generators:
        (number,) = warm.sets(generator, 1)
        outcome = warm.call(good, number, phase="check", timed=False, full=True)
        assert outcome.ns is None
        assert outcome.tiers["strict"].verdict == "pass"
        kind = warm.generators[generator]
        assert outcome.tiers["contest"].verdict == ("pass" if kind == "contest" else "n/a")
        moved = warm.random_shifts(some=True)
        outcome = warm.call(good, number, phase="bench", timed=True, full=True, shifts=moved)
        assert 0 < outcome.ns <= outcome.wall_ns
    assert warm.flush_bytes > 0


def test_pointer_moves(warm, workloads) -> None:
    """All tensors move, or a part of them; never out of their slots."""
    everything = warm.random_shifts(some=False)
    assert set(everything) >= {"q", "state", "output", "new_state"}
    assert all(1 <= shift <= 16 for shift in everything.values())
    part = warm.random_shifts(some=True)
    assert 0 < sum(shift > 0 for shift in part.values()) < len(part)


def test_choosing_spreads_over_the_pool(warm) -> None:
    """No set is used twice before every other was used once, in an order that varies."""
    for count in (1, 3, 7, 30):
        chosen = warm.choose([4, 5, 6], count)
        assert len(chosen) == count
        uses = Counter(chosen)
        assert max(uses.values()) - min(uses.get(n, 0) for n in (4, 5, 6)) <= 1
    orders = {tuple(warm.choose([4, 5, 6], 3)) for _ in range(200)}
    assert len(orders) == 6


def test_time_is_booked_by_phase(warm, good, workloads) -> None:
    """What the overhead of orchestration is computed from; it only grows."""
    warm.bind(workloads[0])
    (number,) = warm.sets(next(iter(warm.generators)), 1)
    before = warm.phases_ns
    warm.call(good, number, phase="bench", timed=True, full=True)
    after = warm.phases_ns
    assert {"start", "load", "inputs", "reference"} <= set(after)
    for phase in ("refill", "poison", "flush", "call", "compare", "hash"):
        assert after[phase] > before.get(phase, 0)
    assert all(after[phase] >= ns for phase, ns in before.items())


def test_a_faulty_process_is_replaced(warm, setting, workloads, make_solution, honest) -> None:
    """After a crash the solution can be opened again, in a process that has seen nothing."""
    source = honest.replace("def run(", "calls = 0\n\ndef run(") + (
        "    global calls\n    calls += 1\n    if calls == 2:\n        import os; os._exit(9)\n"
    )
    solution = make_solution(source, name="faulty")
    built = build(setting, solution)
    warm.bind(workloads[0])
    (number,) = warm.sets(next(iter(warm.generators)), 1)
    for _ in range(2):
        warm.open(solution, built.path)
        warm.call(solution.sha256, number, phase="check", timed=False, full=False)
        with pytest.raises(CandidateFailedError) as caught:
            warm.call(solution.sha256, number, phase="check", timed=False, full=False)
        assert (caught.value.verdict, caught.value.phase) == (Verdict.CRASH, "check")
        assert "exited with code 9" in caught.value.reason.detail


def test_replacing_the_clock_does_not_make_a_call_shorter(
    warm, setting, workloads, make_solution, honest
) -> None:
    """The timer has bound its clock before the solution is loaded."""
    briefly = (
        "import time\n"
        "def call(*arguments):\n"
        "    real, time.perf_counter_ns = time.perf_counter_ns, lambda: 0\n"
        "    time.sleep(0.005)\n"
        "    run(*arguments)\n"
        "    time.perf_counter_ns = real\n"
    )
    solution = make_solution(honest + briefly, name="stopped", entry="call")
    warm.bind(workloads[0])
    warm.open(solution, build(setting, solution).path)
    (number,) = warm.sets(next(iter(warm.generators)), 1)
    outcome = warm.call(solution.sha256, number, phase="bench", timed=True, full=False)
    warm.discard(solution.sha256)
    assert outcome.ns >= 5_000_000


def test_a_replaced_clock_is_found_when_the_solution_is_loaded(
    warm, setting, workloads, make_solution, honest
) -> None:
    """It would not have helped; whoever does it is not scored."""
    solution = make_solution("import time\ntime.perf_counter_ns = lambda: 0\n" + honest)
    warm.bind(workloads[0])
    with pytest.raises(CandidateFailedError, match="perf_counter_ns") as caught:
        warm.open(solution, build(setting, solution).path)
    assert caught.value.verdict == Verdict.REJECT
    assert caught.value.reason.code == "patched-function"


def test_a_cache_state_that_cannot_be_made_is_unavailable(
    setting, gdn_decode, workloads, make_solution, honest
) -> None:
    """Bad input, not a failure of the machine or of the candidate."""
    options = setting.options.model_copy(update={"cache": "cold-clean"})
    other = Setting(setting.catalog, setting.target, options)
    solution = make_solution(honest)
    before = workers()
    with Session(other, gdn_decode, workloads) as session:
        session.bind(workloads[0])
        with pytest.raises(UnavailableError, match="cold-clean"):
            session.open(solution, build(other, solution).path)
    assert workers() == before


def test_a_public_seed_draws_the_same_inputs_again(
    catalog, warm, setting, gdn_decode, workloads, make_solution, honest
) -> None:
    """With a seed, two judges ask the same questions; without, others."""
    told = "    raise ValueError('drawn', v.float().sum().item())\n"
    solution = make_solution(honest + told, name="teller")
    options = setting.options.model_copy(update={"seed": 11})
    public = Setting(catalog, setting.target, options)

    def drawn(session: Session) -> str:
        session.bind(workloads[0])
        session.open(solution, build(setting, solution).path)
        (number,) = session.sets(next(iter(session.generators)), 1)
        with pytest.raises(CandidateFailedError) as caught:
            session.call(solution.sha256, number, phase="check", timed=False, full=False)
        return caught.value.reason.detail

    with (
        Session(public, gdn_decode, workloads) as first,
        Session(public, gdn_decode, workloads) as second,
    ):
        told_once = drawn(first)
        assert "drawn" in told_once
        assert drawn(second) == told_once
    assert drawn(warm) != told_once
