"""What flags of noisy counters weigh: how much of one look, and in how many of them."""

from __future__ import annotations

import pytest
from kopt_harness.conduct import late_activity, weighed
from kopt_harness.schema import Flag


@pytest.mark.parametrize(
    ("used_us", "interval_us", "flagged"),
    [(450, 1000, False), (550, 2000, True), (550, 2400, False), (700, 2400, True)],
)
def test_late_activity_is_half_a_millisecond_and_a_quarter_of_the_look(
    used_us: int, interval_us: int, flagged: bool
) -> None:
    """A thread that never rests has most of two milliseconds, and a return a few microseconds."""
    found = late_activity(used_us * 1000, interval_us * 1000)
    assert [flag.code for flag in found] == (["late-activity"] if flagged else [])


@pytest.mark.parametrize(
    ("code", "times", "kept"),
    [
        ("late-activity", 4, False),
        ("late-activity", 5, True),
        ("early-activity", 6, False),
        ("early-activity", 7, True),
        ("global-state", 1, True),
    ],
)
def test_what_noise_can_raise_must_be_seen_in_many_calls(code: str, times: int, kept: bool) -> None:
    """Of twelve: more than a third after calls, more than half before them, else once."""
    flag = Flag(code=code, detail="seen")
    assert weighed([flag] * times, 12) == ((flag,) if kept else ())
