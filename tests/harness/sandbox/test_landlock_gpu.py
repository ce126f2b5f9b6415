"""Landlock beside a GPU: the driver may name its threads, and nothing else is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kopt_harness.sandbox import _linux

PROGRAM = """
import os, sys, threading
from kopt_harness.sandbox import _identity, _landlock

_identity.refuse_new_privileges()
own, other, names = sys.argv[1:]
shown = [path for path in sys.path if os.path.isdir(path)]
readable = [*shown, sys.prefix, "/usr", "/lib"]
_landlock.restrict(readable, [own], ["/dev/null"], name_threads=bool(int(names)))
open(f"{own}/note", "w").write("mine")
open("/dev/null", "w").write("nothing")
for attempt in (
    lambda: open(f"{other}/note"),
    lambda: open(f"{other}/note", "w"),
    lambda: open(f"{other}/new", "w"),
    lambda: os.remove(f"{other}/note"),
    lambda: os.rename(f"{own}/note", f"{other}/moved"),
    lambda: os.mkdir(f"{other}/folder"),
    lambda: open(f"/proc/{os.getppid()}/mem", "r+b"),
):
    try:
        attempt()
    except OSError:
        continue
    raise SystemExit("it was granted")
try:
    open(f"/proc/self/task/{threading.get_native_id()}/comm", "w").write("driver")
except OSError:
    named = False
else:
    named = True
assert named is bool(int(names)), named
"""


@pytest.mark.parametrize("names", ["0", "1"])
def test_only_where_it_is_asked_for_a_thread_is_named_and_nothing_else_granted(
    tmp_path: Path, names: str
) -> None:
    """What the CUDA driver needs to start opens neither files elsewhere nor the parent's memory."""
    if _linux.landlock_abi() is None:
        pytest.skip("this kernel has no Landlock")
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (other / "note").write_text("kept")
    command = [sys.executable, "-c", PROGRAM, str(own), str(other), names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert (other / "note").read_text() == "kept"
    assert [path.name for path in other.iterdir()] == ["note"]
