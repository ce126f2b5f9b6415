"""How far a sweep is: counted by whoever works on it, shown by whoever asks.

A document of it lies beside the journal (``progress.json``), so that another terminal sees what
this one does. It is no evidence and not durable: the journal is.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from .schema import Verdict

__all__ = ["PROGRESS_FILE", "Watch", "progress_lines", "read_progress"]

PROGRESS_FILE = "progress.json"
_EVERY_S = 0.5
_NOT_FAILED = (Verdict.PASS, Verdict.INFRA, Verdict.INVALID)


class Watch:
    """Thread-safe."""

    def __init__(self, total: int, file: Path | None = None) -> None:
        """Starts to count.

        Args:
            total: Workloads, over all solutions.
            file: Where the document is kept; None: nowhere.
        """
        self._lock = threading.Lock()
        self._file = file
        self._total = total
        self._done = 0
        self._failed = 0
        self._retried = 0
        self._start = time.monotonic()
        self._written = -_EVERY_S
        self._workers: dict[str, tuple[str, float]] = {}

    def work(self, worker: str, text: str, *, now: bool = False) -> None:
        """What a worker does from now on.

        Args:
            worker: Its name.
            text: What it does; "" where it has nothing to do.
            now: Whether the file says so at once: for one who says little.
        """
        with self._lock:
            self._workers[worker] = (text, time.monotonic())
        self._write(now=now)

    def done(self, verdict: Verdict) -> None:
        """One more workload has a verdict."""
        with self._lock:
            self._done += 1
            self._failed += verdict not in _NOT_FAILED
        self._write()

    def retried(self) -> None:
        """The machine failed, and something is tried again."""
        with self._lock:
            self._retried += 1
        self._write(now=True)

    def end(self) -> None:
        """Nobody works any more."""
        with self._lock:
            self._workers = {name: ("", time.monotonic()) for name in self._workers}
        self._write(now=True)

    def document(self) -> dict[str, Any]:
        """Counts, seconds, and one entry for each worker."""
        with self._lock:
            now = time.monotonic()
            left = self._total - self._done
            elapsed_s = now - self._start
            return {
                "total": self._total,
                "done": self._done,
                "failed": self._failed,
                "left": left,
                "retried": self._retried,
                "elapsed_s": round(elapsed_s, 1),
                "left_s": round(elapsed_s / self._done * left, 1) if self._done else None,
                "workers": [
                    {"worker": name, "doing": text, "for_s": round(now - since, 1)}
                    for name, (text, since) in sorted(self._workers.items())
                ],
            }

    def _write(self, *, now: bool = False) -> None:
        if self._file is None:
            return
        with self._lock:
            if not now and time.monotonic() - self._written < _EVERY_S:
                return
            self._written = time.monotonic()
        temporary = self._file.with_name(
            f".{self._file.name}.{os.getpid()}.{threading.get_ident()}"
        )
        with contextlib.suppress(OSError):  # progress that cannot be written stops no sweep
            temporary.write_text(json.dumps(self.document()))
            temporary.replace(self._file)


def read_progress(folder: Path) -> dict[str, Any] | None:
    """The document beside a journal; None where there is none that can be read."""
    try:
        found = json.loads((folder / PROGRESS_FILE).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def progress_lines(document: dict[str, Any]) -> list[str]:
    """One line for each worker, then the counts."""
    lines = [
        f"{each['worker']}: {each['doing'] or 'idle'} ({each['for_s']:.0f} s)"
        for each in document["workers"]
    ]
    left = document["left_s"]
    rest = "" if left is None or not document["left"] else f", about {_duration(left)} left"
    counts = ", ".join(f"{document[name]} {name}" for name in ("done", "failed", "left"))
    again = f", {document['retried']} tried again" if document["retried"] else ""
    return [*lines, f"{counts} of {document['total']}{again}{rest}"]


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes} min"
