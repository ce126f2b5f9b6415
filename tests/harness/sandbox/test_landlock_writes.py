"""Landlock as it is used beside a GPU: it holds writes, and leaves the rest alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kopt_harness.sandbox import _linux

PROGRAM = """
import os, sys
from kopt_harness.sandbox import _identity, _landlock

_identity.refuse_new_privileges()
own, other = sys.argv[1:]
found = _landlock.restrict([], [own], ["/dev/null"], writes_only=True)
assert found["landlock_refuses_reads"] is False
assert open(f"{other}/note").read() == "kept"
open(f"{own}/note", "w").write("mine")
open("/dev/null", "w").write("nothing")
for attempt in (
    lambda: open(f"{other}/note", "w"),
    lambda: open(f"{other}/new", "w"),
    lambda: os.remove(f"{other}/note"),
    lambda: os.rename(f"{own}/note", f"{other}/moved"),
    lambda: os.mkdir(f"{other}/folder"),
):
    try:
        attempt()
    except OSError:
        continue
    raise SystemExit("it was granted")
"""


def test_writes_are_held_and_reads_are_not(tmp_path: Path) -> None:
    """A file elsewhere can be read, and nothing there can be changed."""
    if _linux.landlock_abi() is None:
        pytest.skip("this kernel has no Landlock")
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (other / "note").write_text("kept")
    command = [sys.executable, "-c", PROGRAM, str(own), str(other)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert (other / "note").read_text() == "kept"
    assert [path.name for path in other.iterdir()] == ["note"]
