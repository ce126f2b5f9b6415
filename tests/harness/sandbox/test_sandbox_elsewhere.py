"""Machines that grant less: an ordinary user, no namespaces, no Landlock, a closed interpreter."""

from __future__ import annotations

import json
import os

import pytest

from .conftest import NAMESPACES, RunProgram

_NESTED = """
import os, subprocess, sys
from pathlib import Path
from kopt_harness.environ import worker_environment
from kopt_harness.sandbox import Policy
from kopt_harness.sandbox.launch import command

home, code = Path.home() / "inner-home", Path.home() / "inner-code"
home.mkdir()
code.mkdir()
(code / "inner.py").write_text(f"OUTER = {__file__!r}" + INNER)
policy_fd = Policy(home=str(home), readable=(str(code),), without=WITHOUT).to_file()
done = subprocess.run(
    command(policy_fd, "inner"), env=worker_environment(home) | {"PYTHONPATH": str(code)},
    pass_fds=(policy_fd,), capture_output=True, text=True, cwd=home, start_new_session=True,
)
print(done.stderr, file=sys.stderr)
print(done.stdout)
"""

_INNER = """
import json, os
from pathlib import Path
from kopt_harness.sandbox import in_force

def refused(act):
    try:
        act()
    except OSError:
        return True
    return False

print(json.dumps({
    "record": in_force(),
    "uid": os.getuid(),
    "hides": refused(lambda: open(OUTER)),
    "read-only": refused(lambda: open(Path(__file__).parent / "planted.py", "w")),
    "untraced": refused(lambda: open(f"/proc/{os.getppid()}/mem", "rb")),
}))
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def _as_user(run_program: RunProgram, *without: str) -> dict[str, object]:
    """What a sandbox says that was entered by a user without any privilege."""
    source = f"INNER, WITHOUT = {_INNER!r}, {without!r}\n{_NESTED}"
    # Landlock of the outer one would refuse the mounts of the inner one.
    ran = run_program(source, mode="namespaces")
    lines = [line for line in ran.done.stdout.splitlines() if line.strip()]
    assert lines, ran.done.output
    said: dict[str, object] = json.loads(lines[-1])
    return said


@needs_root
def test_an_ordinary_user_gets_nearly_all_of_it(run_program: RunProgram) -> None:
    """In a user namespace of its own; only another user id is not to be had."""
    said = _as_user(run_program)
    record = said["record"]
    assert isinstance(record, dict)
    if not record["user_namespace"]:
        pytest.skip(f"no user namespaces here: {record['user_namespace_reason']}")
    assert record["other_uid"] is False
    assert record["other_uid_reason"] == "only root can become another user"
    for name in (*NAMESPACES, "own_root", "own_proc", "no_capabilities", "no_new_privileges"):
        assert record[name], record
    assert said["uid"] != 0
    assert all(said[name] for name in ("hides", "read-only", "untraced"))


@needs_root
def test_an_ordinary_user_without_namespaces_has_landlock(run_program: RunProgram) -> None:
    """As in a container that grants no namespaces."""
    said = _as_user(run_program, *NAMESPACES)
    record = said["record"]
    assert isinstance(record, dict)
    if not record["landlock"]:
        pytest.skip(f"no Landlock here: {record['landlock_reason']}")
    assert not record["own_root"]
    assert record["own_root_reason"] == "it needs a mount namespace"
    assert all(said[name] for name in ("hides", "read-only", "untraced"))


@pytest.mark.parametrize(
    "missing",
    [
        ("mount_namespace",),
        ("pid_namespace",),
        ("mount_namespace", "pid_namespace", "landlock"),
        ("network_namespace", "ipc_namespace", "uts_namespace"),
        ("other_uid", "no_capabilities"),
        ("no_new_privileges", "landlock"),
    ],
    ids="+".join,
)
def test_a_program_runs_whatever_is_missing(
    run_program: RunProgram, missing: tuple[str, ...]
) -> None:
    """What is granted is in force, what is not has its reason; the program runs either way."""
    source = """
import json, os, socket, tempfile
from kopt_harness.sandbox import in_force
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
print(json.dumps(in_force()))
"""
    record = run_program(source, without=missing).said
    for name in missing:
        assert record[name] is False
        assert record[f"{name}_reason"]
    assert all(record[n] or record[f"{n}_reason"] for n in (*NAMESPACES, "landlock", "own_root"))


@needs_root
def test_an_interpreter_that_another_user_cannot_read_keeps_the_user(
    run_program: RunProgram, tmp_path: object
) -> None:
    """Better the same user than a program that does not start; the reason is in the record."""
    source = (
        "import json\nfrom kopt_harness.sandbox import in_force\nprint(json.dumps(in_force()))\n"
    )
    closed = f"{tmp_path}/closed"
    os.mkdir(closed, 0o700)  # noqa: PTH102
    record = run_program(source, readable=(closed,)).said
    assert record["other_uid"] is False
    assert record["other_uid_reason"] == f"another user cannot read {closed}"
    assert record["own_root"]
    assert record["no_capabilities"]
