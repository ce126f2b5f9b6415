"""Claims held against clocks and bytes that a solution does not control."""

from __future__ import annotations

from kopt_harness.crosscheck import (
    BATCH_FIXED_NS,
    Batch,
    batch_calls,
    batch_disagrees,
    below_floor,
    impossible_time,
    kernels_missing,
    pointer_bound,
    wall_disagrees,
)

MS = 1_000_000


def test_a_clock_outside_sees_a_long_call() -> None:
    """Every call took 101 ms and claims a microsecond."""
    flag = wall_disagrees([1_000] * 4, [101 * MS] * 4, timer="simulated")
    assert flag is not None
    assert flag.code == "timer-disagrees"


def test_a_busy_machine_is_no_evidence() -> None:
    """One quick call among four shows that the others waited for a core; so do a few in twenty."""
    walls = [400 * MS, 16 * MS, 70 * MS, 250 * MS]
    assert wall_disagrees([5_000] * 4, walls, timer="cupti") is None
    assert wall_disagrees([5_000] * 20, walls * 5, timer="cupti") is None
    assert wall_disagrees([], [], timer="cupti") is None


def test_a_clock_that_started_late_once_acquits_nobody() -> None:
    """One call in twenty seems to have taken no time at all."""
    walls = [30_000, *[101 * MS] * 19]
    assert wall_disagrees([1_000] * 20, walls, timer="cupti") is not None


def test_the_processors_own_timer_has_less_slack() -> None:
    """It waits for no device."""
    claims, walls = [1_000] * 4, [4 * MS] * 4
    assert wall_disagrees(claims, walls, timer="cpu") is not None
    assert wall_disagrees(claims, walls, timer="cupti") is None


def batch(mean_us: float, *, host_us: float = 0.0, calls: int = 500) -> Batch:
    """Calls that take so long each, by the clock outside and by what the candidate tells."""
    wall_ns = BATCH_FIXED_NS + round(mean_us * 1e3 * calls)
    return Batch(calls, wall_ns, round(host_us * 1e3 * calls))


def test_calls_back_to_back_show_a_lie_of_a_few_dozen_microseconds() -> None:
    """10 us of host time: a call of 10 us that takes 55 is seen, and one that takes 40 is not."""
    claims = [10_000] * 5
    flag = batch_disagrees(claims, [batch(55, host_us=10)], timer="cupti")
    assert flag is not None
    assert flag.code == "batch-disagrees"
    assert "10.0 us" in flag.detail
    assert "55.0 us" in flag.detail
    assert batch_disagrees(claims, [batch(40, host_us=10)], timer="cupti") is None


def test_host_time_is_believed_up_to_a_millisecond() -> None:
    """A solution that waits for the host is honest; one that says so to hide more is not."""
    claims = [10_000] * 5
    assert batch_disagrees(claims, [batch(900, host_us=900)], timer="cupti") is None
    assert batch_disagrees(claims, [batch(1_100, host_us=1_100)], timer="cupti") is not None


def test_the_quickest_batch_counts_and_none_says_nothing() -> None:
    """A machine that was busy for a while is no evidence."""
    slow, quick = batch(400), batch(12)
    assert batch_disagrees([10_000], [slow, quick, slow], timer="cupti") is None
    assert batch_disagrees([10_000], [slow, slow], timer="cupti") is not None
    assert batch_disagrees([10_000], [], timer="cupti") is None
    assert batch_disagrees([], [slow], timer="cupti") is None


def test_a_processors_batch_may_be_twice_the_claim_or_a_third_of_a_millisecond_more() -> None:
    """There is no host time beside the claim, and other work on the same cores."""
    assert batch_disagrees([10_000], [batch(300)], timer="cpu") is None
    assert batch_disagrees([10_000], [batch(320)], timer="cpu") is not None
    assert batch_disagrees([4 * MS], [batch(7_900)], timer="cpu") is None
    assert batch_disagrees([4 * MS], [batch(8_100)], timer="cpu") is not None


def test_a_batch_is_long_by_the_claims_and_not_too_long_by_the_clock() -> None:
    """Twenty milliseconds, five hundred launches, two seconds; a second is not repeated."""
    assert batch_calls(100_000, 3 * MS, 1) == 200
    assert batch_calls(2_000, 3 * MS, 1) == 500
    assert batch_calls(2_000, 3 * MS, 10) == 50
    assert batch_calls(2_000, 100 * MS, 1) == 20
    assert batch_calls(50 * MS, 50 * MS, 1) == 2
    assert batch_calls(1_000 * MS, 1_000 * MS, 1) == 0


def test_bytes_take_their_time() -> None:
    """A megabyte at 100 GB/s cannot be moved in 5 us; a little less than 10 us is believed."""
    flag = below_floor([5_000, 5_000, 9_900], nbytes=1_000_000, gbps=100)
    assert flag is not None
    assert flag.code == "below-floor"
    assert below_floor([9_000], nbytes=1_000_000, gbps=100) is None


def test_one_witness_is_a_flag_and_two_are_tampering() -> None:
    """Clock and bandwidth know nothing of each other."""
    wall = wall_disagrees([1_000] * 4, [101 * MS] * 4, timer="cupti")
    floor = below_floor([1_000], nbytes=1_000_000, gbps=100)
    assert impossible_time(wall, None) is None
    assert impossible_time(None, floor) is None
    reason = impossible_time(wall, floor)
    assert reason is not None
    assert reason.code == "impossible-time"


def test_slower_at_every_new_address_is_bound_to_pointers() -> None:
    """Both numbers are in the flag; one quick call at a new address acquits."""
    flag = pointer_bound([10_000] * 5, [90_000, 80_000], timer="cupti")
    assert flag is not None
    assert flag.code == "pointer-bound"
    assert "10.0 us" in flag.detail
    assert "80.0 us" in flag.detail
    assert pointer_bound([10_000] * 5, [90_000, 11_000], timer="cupti") is None
    assert pointer_bound([10_000] * 5, [90_000, 80_000], timer="cpu") is None
    assert pointer_bound([], [90_000], timer="cupti") is None


def test_kernels_that_only_untimed_calls_have_are_named() -> None:
    """Varying names in the same number are not missing."""
    flag = kernels_missing([{"read": 1, "update": 1}], [{"read": 1}])
    assert flag is not None
    assert "update" in flag.detail
    assert kernels_missing([{"ping": 1}], [{"pong": 1}]) is None
