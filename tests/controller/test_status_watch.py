"""``kopt status --watch``: a screen on a terminal, lines in a pipe, and an end of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from kopt_controller.cli._common import print_table
from kopt_controller.live import Follower, live_blocks
from kopt_harness.archive import Run
from kopt_harness.journal import Journal
from rich.console import Console

from .conftest import Toy, make_toy

COLUMNS = 80
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE_S = 60.0


class Watched:
    """A run that is being written, with its last records still to come."""

    def __init__(self, toy: Toy) -> None:
        campaign = toy.campaign(rounds=2)
        campaign.execute()
        self.run: Run = campaign.run
        self.root = toy.root.path
        lines = self.run.journal_path.read_text().splitlines(keepends=True)
        middle = next(n for n, line in enumerate(lines) if "r2/gate" in line and "/block/" in line)
        self._rest = "".join(lines[middle:])
        self.run.journal_path.write_text("".join(lines[:middle]))
        self._journal = Journal(self.run.journal_path)

    def command(self) -> list[str]:
        """``kopt status --watch`` of this run."""
        return [sys.executable, "-m", "kopt_controller", "--root", str(self.root), "status"]

    def end(self) -> None:
        """The run writes the rest, and its process ends."""
        with self.run.journal_path.open("a") as file:
            file.write(self._rest)
        self._journal.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """Closed at the end in any case."""
    found = Watched(make_toy(tmp_path))
    yield found
    found._journal.close()


def read_until(terminal: int, text: str) -> str:
    """What a terminal shows until a text appears in it."""
    seen, end = "", time.monotonic() + PATIENCE_S
    while text not in CONTROL.sub("", seen):
        assert time.monotonic() < end, f"{text!r} did not appear: {seen}"
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 65536).decode()
            except OSError:  # the other end is closed
                break
    return seen


def in_terminal(argv: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """A program that believes that somebody looks, at 80 columns."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        argv,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(theirs)
    return process, ours


def test_a_terminal_gets_a_screen_and_then_the_result(watched: Watched) -> None:
    """It ends by itself when the run does."""
    process, terminal = in_terminal([*watched.command(), "--watch"])
    try:
        screen = CONTROL.sub("", read_until(terminal, "Best so far"))
        assert "state > candidates > [gate] > sweep > validation > decision" in screen
        assert max(len(line.rstrip("\r")) for line in screen.split("\n")) <= COLUMNS
        watched.end()
        rest = CONTROL.sub("", read_until(terminal, "Incumbent now"))
        assert "finished" in rest
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        os.close(terminal)


def test_a_pipe_gets_a_line_for_each_change_and_no_control_codes(watched: Watched) -> None:
    """What is done goes to stderr; the result alone to stdout."""
    argv = [*watched.command(), "--watch"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        stamp, name, line = first.split(" ", 2)
        assert datetime.fromisoformat(stamp).utcoffset() == timedelta(0)
        assert name == watched.run.id
        assert line.startswith("Round 2, gate of ")
        watched.end()
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "\x1b" not in out + err
    assert out.startswith(f"Run {watched.run.id}: finished")
    said = [line.split(" ", 2)[-1] for line in err.splitlines()]
    assert len(set(said)) == len(said), "only when something changes"


def test_control_c_ends_the_look_alone(watched: Watched) -> None:
    """The state at that moment is printed, and the exit code is 0."""
    argv = [*watched.command(), "--watch"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out.startswith(f"Run {watched.run.id}: running")


def test_the_screen_loses_nothing_at_80_columns(watched: Watched) -> None:
    """Long names are folded, not cut."""
    follower = Follower(watched.run)
    follower.advance()
    (long,) = list(follower.board.named("candidate/2"))[:1]
    name = "ABCDEFGHIJ" * 9
    follower.board.put(f"candidate/2/{long['sha256'][:12]}", long | {"name": name})
    text = StringIO()
    console = Console(file=text, width=COLUMNS, markup=False, highlight=False)
    for block in live_blocks(follower.board):
        if isinstance(block, str):
            console.print(block)
        else:
            print_table(console, block.columns, block.rows, numeric=block.numeric)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert "\N{HORIZONTAL ELLIPSIS}" not in text.getvalue()
    table = text.getvalue().partition("time / incumbent")[2].partition("Best so far")[0]
    assert "".join(re.findall(r"[A-J]+", table)) == name
