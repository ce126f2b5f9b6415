"""Runs ``check``, ``bench``, ``profile`` and ``diagnose`` for an agent, within its budget.

The agent's program puts a request into ``.kopt/in/`` of its worktree and finds the answer in
``.kopt/out/``; the work is done by another process outside of its confinement, on a copy of
the draft that was taken as any draft is. A request names a draft and a few numbers, and nothing
that would be run or read as it stands. No result of it counts for a decision.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kopt_harness.errors import KoptError
from kopt_harness.proc import run

from ...budget import Budget
from ..protocol import Draft
from .drafts import MOST_DRAFTS, gather_drafts
from .prompt import MOST_TRIALS
from .worktree import Worktree

__all__ = ["Broker", "Request", "RunTool", "serving", "tool_command"]

_POLL_S = 0.05
_MOST_REQUEST_BYTES = 4096
_MOST_ANSWER_BYTES = 4 << 20
_MOST_REQUESTS = 500
_REQUEST = re.compile(r"[0-9a-f]{32}\.json")
_WORKLOAD = re.compile(r"[A-Za-z0-9-]{1,64}")
_KINDS = ("check", "bench", "profile", "diagnose")
_COMMAND = {"check": "check", "bench": "bench", "profile": "profile", "diagnose": "profile"}


class Request(NamedTuple):
    """What is asked for."""

    kind: str
    folder: Path
    """Copy of the draft."""
    workload: str
    trials: int


RunTool = Callable[[Request, float], tuple[int, dict[str, Any]]]
"""Does it within so many seconds: exit code and document."""


def tool_command(root: Path, target: str) -> RunTool:
    """Does it with the command line of kopt, in a process of its own.

    Args:
        root: Where the definitions are.
        target: To build for.
    """

    def do(request: Request, left_s: float) -> tuple[int, dict[str, Any]]:
        head = [sys.executable, "-P", "-m", "kopt_controller", "--json", "--root", str(root)]
        words = [_COMMAND[request.kind], str(request.folder), "--target", target]
        words += ["--workload", request.workload]
        if request.kind in ("check", "bench"):
            words += ["--trials", str(request.trials)]
        done = run([*head, *words], timeout_s=left_s, max_output_bytes=_MOST_ANSWER_BYTES)
        if done.timed_out:
            return 2, {"error": f"{request.kind} took longer than the {left_s:.0f} s that are left"}
        try:
            document = json.loads(done.stdout)
        except ValueError:
            return 2, {"error": f"{request.kind} ended with exit code {done.returncode}"}
        return done.returncode, document if isinstance(document, dict) else {}

    return do


class Broker:
    """Answers the requests of one worktree."""

    def __init__(self, tree: Worktree, budget: Budget, do: RunTool) -> None:
        self._tree = tree
        self._budget = budget
        self._do = do
        self._count = 0
        # Descriptors, since the agent may put something else where the folders are.
        middle = _folder(tree.fd, ".kopt")
        try:
            self._in = _folder(middle, "in")
            self._out = _folder(middle, "out")
        finally:
            os.close(middle)

    def close(self) -> None:
        """Gives the folders back."""
        os.close(self._in)
        os.close(self._out)

    def poll(self) -> int:
        """Answers what is there; returns how many."""
        with os.scandir(self._in) as entries:
            names = sorted(entry.name for entry in entries if _REQUEST.fullmatch(entry.name))
        for name in names:
            text = self._take(name)
            self._count += 1
            code, document = self._answer(text)
            self._give(name, {"exit_code": code, "document": document})
        return len(names)

    def _take(self, name: str) -> str:
        text = _read(name, self._in)
        try:
            os.unlink(name, dir_fd=self._in)
        except IsADirectoryError:
            # No longer the name of a request.
            os.rename(name, f"{name}.folder", src_dir_fd=self._in, dst_dir_fd=self._in)
        return text

    def _answer(self, text: str) -> tuple[int, dict[str, Any]]:
        if self._count > _MOST_REQUESTS:
            return 2, {"error": f"more than {_MOST_REQUESTS} requests"}
        try:
            asked = json.loads(text)
            kind, name = str(asked["kind"]), str(asked["draft"])
            workload, trials = str(asked.get("workload", "rep")), int(asked.get("trials", 3))
        except (ValueError, TypeError, KeyError, AttributeError):
            return 2, {"error": "the request cannot be read"}
        if kind == "budget":
            left = {"left_s": round(self._budget.left_s(), 1), "limit_s": self._budget.limit_s}
            return 0, left
        if kind not in _KINDS or not _WORKLOAD.fullmatch(workload):
            return 2, {"error": f"there is no {kind!r} on workload {workload!r}"}
        gathered = gather_drafts(self._tree.fd, MOST_DRAFTS)
        draft = next((each for each in gathered.drafts if each.name == name), None)
        if draft is None:
            return 2, {"error": f"no draft {name!r}", "notes": list(gathered.notes)}
        return self._run(draft, kind, workload, min(max(trials, 1), MOST_TRIALS))

    def _run(
        self, draft: Draft, kind: str, workload: str, trials: int
    ) -> tuple[int, dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="kopt-draft-") as folder:
            for file in draft.files:
                path = Path(folder) / draft.name / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(file.content, encoding="utf-8", newline="")
            request = Request(kind, Path(folder) / draft.name, workload, trials)
            try:
                with self._budget.charged(kind) as left_s:
                    return self._do(request, left_s)
            except KoptError as error:
                return error.exit_code, {"error": error.message, "hint": error.hint}

    def _give(self, name: str, answer: dict[str, Any]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        part = f"{name}.part"
        try:
            file = os.open(part, flags, 0o644, dir_fd=self._out)
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                json.dump(answer, stream)
            os.rename(part, name, src_dir_fd=self._out, dst_dir_fd=self._out)
        except OSError:
            # The agent has put something in the way, and gets no answer.
            return


def _read(name: str, parent: int) -> str:
    """The beginning of a regular file; nothing of what is something else."""
    try:
        file = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent
        )
    except OSError:
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(file).st_mode)
        return os.read(file, _MOST_REQUEST_BYTES).decode(errors="replace") if is_file else ""
    finally:
        os.close(file)


def _folder(parent: int, name: str) -> int:
    """Descriptor of a folder that is made where it is not there, and is no link."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=parent)


@contextmanager
def serving(tree: Worktree, budget: Budget, do: RunTool) -> Iterator[Sequence[BaseException]]:
    """Answers requests while the body runs; gives what went wrong with the answering."""
    broker = Broker(tree, budget, do)
    stop = threading.Event()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.wait(_POLL_S):
                broker.poll()
        except OSError as error:
            # Without a disk nobody is answered; the call itself goes on.
            problems.append(error)

    thread = threading.Thread(target=work, name="kopt-broker", daemon=True)
    thread.start()
    try:
        yield problems
    finally:
        stop.set()
        thread.join()
        broker.close()
