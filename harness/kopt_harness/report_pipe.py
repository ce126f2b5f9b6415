"""The pipe over which an external profiler reports."""

from __future__ import annotations

import os
import threading

from .external import UnreadableError

__all__ = ["ReportPipe"]

_MAX_REPORT_BYTES = 32 << 20


class ReportPipe:
    """Reads what the profiler prints, in a thread: a full pipe would stop it."""

    def __init__(self) -> None:
        self._near, self.fd = os.pipe()
        self._parts: list[bytes] = []
        self._size = 0
        self._thread: threading.Thread | None = None

    def listen(self) -> None:
        """Once the profiler has been started, which has the other end then."""
        if self._thread is None:
            os.close(self.fd)
            self._thread = threading.Thread(target=self._drain, daemon=True)
            self._thread.start()

    def text(self) -> str:
        """All of it; every process that could print has ended.

        Raises:
            UnreadableError: it is too long.
        """
        self.listen()
        assert self._thread is not None
        self._thread.join()
        if self._size > _MAX_REPORT_BYTES:
            raise UnreadableError(f"its report has {self._size} bytes")
        return b"".join(self._parts).decode(errors="replace")

    def _drain(self) -> None:
        while data := os.read(self._near, 1 << 16):
            self._size += len(data)
            if self._size <= _MAX_REPORT_BYTES:
                self._parts.append(data)
        os.close(self._near)
