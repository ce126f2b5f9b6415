"""A process in the place of a candidate says anything: the check ends with a verdict."""

from __future__ import annotations

import runpy
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_whatever_a_candidate_process_says_ends_in_a_verdict() -> None:
    """Real judge, real sandbox, fixed seeds: no hang, no traceback, and never a pass."""
    script = runpy.run_path(str(CHECKOUT / "scripts" / "fuzz.py"))
    try:
        assert script["fuzz"]("candidate", 8, fixed=True) >= 8
    finally:
        script["judged"]().session.close()
