"""Which workloads' input sets the judge keeps: the last used ones, within a cap of memory."""

from __future__ import annotations

from collections import OrderedDict

import psutil

__all__ = ["PoolMemory"]

_SHARE_OF_FREE = 0.25
_MAX_BYTES = 8 << 30


class PoolMemory:
    """Bookkeeping of the orchestrator; the sets themselves are in the judge alone.

    The cap is a quarter of the memory that is free at the start, at most 8 GiB. It counts
    bytes of the host for a GPU as well, whose memory is as large or larger.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        free = int(psutil.virtual_memory().available * _SHARE_OF_FREE)
        self._max_bytes = min(free, _MAX_BYTES) if max_bytes is None else max_bytes
        self._bytes: OrderedDict[str, int] = OrderedDict()

    def known(self) -> list[str]:
        """Workloads that have sets, longest unused first."""
        return list(self._bytes)

    def enter(self, uuid: str) -> list[str]:
        """Makes a workload the last used one; returns those that must be forgotten."""
        self._bytes[uuid] = self._bytes.pop(uuid, 0)
        total, gone = sum(self._bytes.values()), []
        for other in self.known()[:-1]:
            if total <= self._max_bytes:
                break
            total -= self._bytes[other]
            gone.append(other)
        return gone

    def add(self, uuid: str, nbytes: int) -> None:
        """Counts one more set of a workload."""
        self._bytes[uuid] = self._bytes.get(uuid, 0) + nbytes

    def drop(self, uuid: str) -> None:
        """The judge has forgotten a workload."""
        self._bytes.pop(uuid, None)
