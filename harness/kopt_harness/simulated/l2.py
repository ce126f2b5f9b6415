"""The last-level cache: which pages are resident, which of them persist."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["L2", "Range", "Traffic"]

PAGE_BYTES = 4096


class Range(NamedTuple):
    """Bytes that a kernel touches."""

    start: int
    nbytes: int


class Traffic(NamedTuple):
    """Where the bytes of a kernel came from."""

    hit_bytes: int
    miss_bytes: int


class L2:
    """Least recently used pages leave first; persisting ones stay until they are reset."""

    def __init__(self, nbytes: int, *, persisting_limit: int = 0) -> None:
        self.nbytes = nbytes
        self.persisting_limit = persisting_limit
        """Bytes that may be set aside; a window beyond it has no effect."""
        self._pages: OrderedDict[int, None] = OrderedDict()
        self._persisting: set[int] = set()

    def touch(self, ranges: Iterable[Range]) -> Traffic:
        """Reads or writes ranges; what was not resident is, afterwards."""
        hit = miss = 0
        for page in self._pages_of(ranges):
            if page in self._persisting or page in self._pages:
                hit += PAGE_BYTES
            else:
                miss += PAGE_BYTES
            if page not in self._persisting:
                self._pages[page] = None
                self._pages.move_to_end(page)
                self._evict()
        return Traffic(hit, miss)

    def persist(self, ranges: Iterable[Range]) -> None:
        """Puts ranges into the set-aside, as far as its limit goes."""
        for page in self._pages_of(ranges):
            if (len(self._persisting) + 1) * PAGE_BYTES <= self.persisting_limit:
                self._persisting.add(page)
                self._pages.pop(page, None)

    def reset_persisting(self) -> None:
        """Makes persisting pages ordinary ones."""
        for page in self._persisting:
            self._pages[page] = None
        self._persisting.clear()
        self._evict()

    def write_scratch(self, nbytes: int) -> None:
        """Writes a buffer that nobody else uses: the flush."""
        room = (self.nbytes - len(self._persisting) * PAGE_BYTES) // PAGE_BYTES
        if nbytes // PAGE_BYTES >= room:
            self._pages.clear()
            return
        keep = room - nbytes // PAGE_BYTES
        while len(self._pages) > keep:
            self._pages.popitem(last=False)

    def resident_bytes(self, ranges: Iterable[Range]) -> int:
        """How much of the ranges is in the cache."""
        pages = self._pages_of(ranges)
        return sum(PAGE_BYTES for p in pages if p in self._pages or p in self._persisting)

    def _pages_of(self, ranges: Iterable[Range]) -> list[int]:
        pages: dict[int, None] = {}
        for start, nbytes in ranges:
            if nbytes:
                first, last = start // PAGE_BYTES, (start + nbytes - 1) // PAGE_BYTES
                pages |= dict.fromkeys(range(first, last + 1))
        return list(pages)

    def _evict(self) -> None:
        room = (self.nbytes - len(self._persisting) * PAGE_BYTES) // PAGE_BYTES
        while len(self._pages) > room:
            self._pages.popitem(last=False)
