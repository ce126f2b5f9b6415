"""Verdicts, timings and hashes."""

from __future__ import annotations

import pytest
from kopt_harness.schema import BuildSpec, Solution, SourceFile, Timing, Verdict
from pydantic import ValidationError


def test_the_first_verdict_in_the_order_decides() -> None:
    """reject, crash, timeout, fail, invalid, infra, pass."""
    order = [Verdict(v) for v in ["reject", "crash", "timeout", "fail", "invalid", "infra", "pass"]]
    for position, verdict in enumerate(order):
        assert Verdict.combine(reversed(order[position:])) == verdict
    assert Verdict.combine([]) == Verdict.INFRA


@pytest.mark.parametrize(
    ("n", "median", "p95"), [(2, False, False), (3, True, False), (20, True, True)]
)
def test_too_few_samples_give_no_number(n: int, median: bool, p95: bool) -> None:
    """Null with a reason, never a number."""
    timing = Timing(timer="cpu", cache="cold", samples_ns=tuple(range(1000, 1000 + n)))
    assert (timing.median_us is not None) == median
    assert (timing.p95_us is not None) == p95
    assert ("reason" in timing.document()) == (not median)


def test_p95_is_the_nearest_rank() -> None:
    """Of 1 to 100 microseconds it is 95."""
    timing = Timing(timer="cpu", cache="cold", samples_ns=tuple(n * 1000 for n in range(1, 101)))
    assert timing.p95_us == 95
    assert timing.median_us == 50.5


def solution(**sources: str) -> Solution:
    """A solution with these sources, ``x_py`` standing for ``x.py``."""
    return Solution(
        name="n",
        definition="d",
        author="a",
        spec=BuildSpec(language="python", entry_point="k.py::run"),
        sources=tuple(SourceFile(path=p.replace("_", "."), content=c) for p, c in sources.items()),
    )


def test_the_hash_depends_on_content_and_not_on_order() -> None:
    """Sources are length-prefixed: moving text between files changes the hash."""
    assert solution(k_py="ab", m_py="c").sha256 == solution(m_py="c", k_py="ab").sha256
    assert solution(k_py="ab", m_py="c").sha256 != solution(k_py="a", m_py="bc").sha256


@pytest.mark.parametrize("path", ["../k.py", "/k.py", "a/../k.py", "a\\k.py", "", "./k.py"])
def test_a_source_stays_inside(path: str) -> None:
    """No path leaves the solution."""
    with pytest.raises(ValidationError):
        SourceFile(path=path, content="x")
