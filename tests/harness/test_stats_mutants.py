"""The tests of the statistics notice when the statistics are broken."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def test_broken_statistics_are_noticed(checkout: Path) -> None:
    """A handful of mutants; ``scripts/mutate_stats.py`` makes all of them."""
    script = runpy.run_path(str(checkout / "scripts" / "mutate_stats.py"))
    chosen = script["fixed_mutants"]()
    assert len({mutant.source for mutant in chosen}) == len(chosen) == 6
    with ThreadPoolExecutor(2) as pool:
        survived = list(pool.map(script["survives"], chosen))
    assert [mutant.what for mutant, alive in zip(chosen, survived, strict=True) if alive] == []
