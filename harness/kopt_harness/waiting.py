"""Processes of solutions that nobody calls yet: started, or opened ahead and stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kopt_harness.schema import Solution
from kopt_harness.worker.spawn import WorkerClient

__all__ = ["Waiting"]


class Waiting:
    """By the SHA-256 of their solution; none of them has candidate code."""

    def __init__(self, make: Callable[[str, str], WorkerClient]) -> None:
        """Has none.

        Args:
            make: Starts one, given the solution's SHA-256 and the place of its build.
        """
        self._make = make
        self._started: dict[str, WorkerClient] = {}
        self._spare: dict[str, WorkerClient] = {}
        self._ready: dict[str, list[WorkerClient]] = {}

    @property
    def ready(self) -> list[WorkerClient]:
        """Those that were opened ahead."""
        return [client for clients in self._ready.values() for client in clients]

    @property
    def clients(self) -> list[WorkerClient]:
        """All of them."""
        return [*self._started.values(), *self._spare.values(), *self.ready]

    def start(self, sha256: str, build_path: str) -> None:
        """Starts one that is opened next."""
        if sha256 not in self._started:
            spare = self._spare.pop(sha256, None)
            self._started[sha256] = spare or self._make(sha256, build_path)

    def prepare(self, sha256: str, build_path: str) -> None:
        """Starts one that takes the place of the next."""
        if sha256 not in self._spare:
            self._spare[sha256] = self._make(sha256, build_path)

    def lacks(self, sha256: str) -> bool:
        """Whether none of a solution was opened ahead."""
        return not self._ready.get(sha256)

    def fill(
        self, solutions: Sequence[tuple[Solution, str]], count: int
    ) -> list[tuple[Solution, WorkerClient]]:
        """Brings each to so many that count as opened; gives those that are to be opened now."""
        fresh: list[tuple[Solution, WorkerClient]] = []
        for solution, build_path in solutions:
            waiting = self._ready.setdefault(solution.sha256, [])
            for _ in range(count - len(waiting)):
                self.start(solution.sha256, build_path)
                waiting.append(self._started.pop(solution.sha256))
                fresh.append((solution, waiting[-1]))
        return fresh

    def take(self, sha256: str) -> WorkerClient:
        """The next of those that were opened ahead."""
        return self._ready[sha256].pop(0)

    def take_started(self, sha256: str) -> WorkerClient | None:
        """The one that was started, if any."""
        return self._started.pop(sha256, None)

    def take_ready(self) -> list[WorkerClient]:
        """All that were opened ahead, which are not wanted any more."""
        taken = self.ready
        self._ready.clear()
        return taken

    def take_all(self) -> list[WorkerClient]:
        """All of them."""
        taken = self.clients
        for kept in (self._started, self._spare, self._ready):
            kept.clear()
        return taken
