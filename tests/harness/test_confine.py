"""A program with a network that writes in its own folder alone."""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import kopt_harness
import pytest
from kopt_harness.proc import run
from kopt_harness.sandbox import confine, landlock_abi

pytestmark = pytest.mark.skipif(landlock_abi() is None, reason="this kernel has no Landlock")

_PROGRAM = """
import json, os, socket, sys

def attempt(what):
    try:
        what()
    except OSError as error:
        return error.strerror
    return "done"

own, outside, readable, port = sys.argv[1:]
print(json.dumps({
    "own": attempt(lambda: open(own + "/x", "w").close()),
    "outside": attempt(lambda: open(outside + "/x", "w").close()),
    "read": attempt(lambda: open(outside + "/secret").read()),
    "named": attempt(lambda: open(readable).read()),
    "list": attempt(lambda: os.listdir(outside)),
    "network": attempt(lambda: socket.create_connection(("127.0.0.1", int(port)), 5).close()),
    "folder": os.getcwd(),
    "python": os.environ.get("PYTHONPATH"),
}))
"""


def _run(tmp_path: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    own, outside = tmp_path / "own", tmp_path / "outside"
    for folder in (own, outside):
        folder.mkdir()
    (outside / "secret").write_text("x")
    named = tmp_path / "named"
    named.write_text("y")
    spec = confine.Confinement(writable=(str(own),), readable=(str(named),))._replace(**changes)
    spec_fd, status_fd = spec.to_file(), os.memfd_create("status")
    environment = {"PATH": os.defpath, "PYTHONPATH": str(Path(kopt_harness.__file__).parents[1])}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        argv = [sys.executable, "-c", _PROGRAM, str(own), str(outside), str(named), port]
        done = run(
            confine.command(spec_fd, status_fd, argv),
            timeout_s=60,
            env=environment,
            pass_fds=(spec_fd, status_fd),
        )
    status = confine.read_status(status_fd)
    os.close(spec_fd)
    os.close(status_fd)
    assert done.ok, done.output
    return json.loads(done.stdout), status


def test_it_writes_in_its_own_folder_and_reaches_the_network(tmp_path: Path) -> None:
    """What is not named is neither written nor read; a connection is made."""
    said, status = _run(tmp_path)
    assert status["landlock"] is True
    assert status["landlock_refuses_tcp"] is False
    assert said["own"] == said["named"] == said["network"] == "done"
    assert said["outside"] in ("Permission denied", "Read-only file system")
    for what in ("read", "list"):
        assert said[what] == "Permission denied"
    assert said["folder"] == str(tmp_path / "own")
    assert said["python"] is None


def test_a_wider_path_does_not_grant_what_is_protected(tmp_path: Path) -> None:
    """A folder on the search path that contains the archive stands for its other children."""
    outside = str(tmp_path / "outside")
    said, _ = _run(tmp_path, search=(str(tmp_path),), protected=(outside,))
    assert said["read"] == "Permission denied"
    assert said["named"] == "done"
