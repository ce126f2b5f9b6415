"""Switches every defence of the judge off, one after the other, and prints what happens.

Run it after a change to the judge, the shim or the sandbox, and put its table into the docs:

    python scripts/mutate_defences.py [--only WORDS]

Each row is one entry of ``tests/exploits/test_defences_are_needed.py``: an attack that must
succeed without the defence, and must not with it. Takes about four seconds a row on two processors.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEST = ROOT / "tests" / "exploits" / "test_defences_are_needed.py"
OFF, ON = "test_without_the_defence_the_attack_succeeds", "test_with_the_defence_it_does_not"


class Results:
    """A pytest plugin: what each test of the table came to."""

    def __init__(self) -> None:
        self.defences: dict[str, Any] = {}
        self.passed: dict[tuple[str, str], bool] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Remembers the rows of the table."""
        for item in items:
            if getattr(item, "callspec", None) is not None:
                self.defences[item.callspec.id] = item.callspec.params["defence"]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remembers a result; a failure before the test itself counts too."""
        if report.when == "call" or report.failed:
            name, _, row = report.nodeid.rpartition("::")[2].partition("[")
            self.passed[name, row.removesuffix("]")] = report.passed


def table(results: Results) -> list[str]:
    """Markdown."""
    lines = [
        "| defence | attack | switched off | switched on | why several at once |",
        "|---|---|---|---|---|",
    ]
    for row, defence in results.defences.items():
        off, on = (results.passed.get((name, row)) for name in (OFF, ON))
        if off is None and on is None:
            continue
        words = {True: ("succeeds", "fails"), False: ("FAILS", "SUCCEEDS"), None: ("-", "-")}
        lines.append(
            f"| {row} | `{defence.attack}` | {words[off][0]} | {words[on][1]} "
            f"| {defence.together or ''} |"
        )
    return lines


def main() -> int:
    """Runs all rows, or those whose name has the words of ``--only``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="rows whose name matches this pytest expression")
    words = parser.parse_args().only
    results = Results()
    chosen = ["-k", words] if words else ["-k", f"{OFF} or {ON}"]
    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), str(TEST), *chosen],
        plugins=[results],
    )
    today = datetime.now(UTC).date()
    print(f"\n{today}, {_machine()}, Python {platform.python_version()}\n")
    print("\n".join(table(results)))
    return int(code)


def _machine() -> str:
    """Processor and cores."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main())
