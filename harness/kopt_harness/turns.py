"""Waiting for a lock in the order of arrival.

Who waits stands in a row of places, each a lock of its own. It enters at the last place, moves up
when the next one is free, and from the first it takes the lock itself. Nobody passes a place that
is taken, so nobody overtakes, and whoever has just released the lock stands behind all who wait.

The row says who is next and never who is inside: that is the lock's to say. The kernel empties
the place of a process that has died. One that is stopped keeps its place, so a lock that stays
free for a while goes to whoever sees it. With more waiting than there are places, those at the
door enter in any order.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PLACES", "SharedLock", "acquire_in_turn"]

PLACES = 16
"""So many wait in order."""
_POLL_S = 0.02
_LOOK_S = 0.25
"""How often those behind the first look whether the lock is free."""
_UNCLAIMED_S = 1.0
"""A lock that is free for so long is claimed by nobody, although somebody is first."""


class SharedLock:
    """A lock of all users of a machine: a locked file that any of them may have made.

    The lock of a package is not used here: those that are careful refuse a file of another user
    in a folder for all, which is what this is. Nothing is read out of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def try_acquire(self) -> bool:
        """Takes it unless somebody has it, this process included.

        Raises:
            OSError: The file cannot be opened, or its file system has no locks.
        """
        if self._file is not None:
            return False
        file = _opened(self._path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._file = file
        return True

    def release(self) -> None:
        """Gives it back."""
        if self._file is not None:
            _leave(self._file)
            os.close(self._file)
            self._file = None


def acquire_in_turn(lock: SharedLock, row: Path, timeout_s: float) -> bool:
    """Acquires a lock after everybody who waits for it already.

    Args:
        lock: The lock; whoever has acquired it releases it.
        row: Its places are the files of this name with a number behind it.
        timeout_s: How long to wait in all; 0 tries once.

    Returns:
        Whether it was to be had in that time.

    Raises:
        OSError: The lock's file cannot be opened, or its file system has no locks.
    """
    deadline = time.monotonic() + timeout_s
    with _places(row) as places:
        unclaimed = _Unclaimed(lock)
        behind: int | None = None
        for place in places:
            while not _taken(place):
                if unclaimed.taken():
                    return True
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_S)
            if behind is not None:
                _leave(behind)
            behind = place
        while not lock.try_acquire():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


class _Unclaimed:
    """A lock seen by those who are not first."""

    def __init__(self, lock: SharedLock) -> None:
        self._lock = lock
        self._free_since: float | None = None
        self._looked = time.monotonic()

    def taken(self) -> bool:
        """Takes the lock if it was free at every look for long enough."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return False
        self._looked = now
        if not self._lock.try_acquire():
            self._free_since = None
            return False
        if self._free_since is None:
            self._free_since = now
        if now - self._free_since >= _UNCLAIMED_S:
            return True
        self._lock.release()
        return False


@contextlib.contextmanager
def _places(row: Path) -> Iterator[list[int]]:
    """Descriptors of the places, last first; those that cannot be had here are left out."""
    places: list[int] = []
    try:
        for number in reversed(range(PLACES)):
            with contextlib.suppress(OSError):
                places.append(_opened(row.with_name(f"{row.name}-{number:02d}")))
        yield places
    finally:
        for place in places:
            _leave(place)
            os.close(place)


def _opened(path: Path) -> int:
    """Reading is enough for a lock, so that other users' files serve as well.

    Raises:
        OSError: It is a link, or cannot be read or made.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    # In a folder with the sticky bit the kernel may refuse to create what another user has.
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    place = os.open(path, flags | os.O_CREAT, 0o444)
    with contextlib.suppress(OSError):
        os.fchmod(place, 0o444)  # whatever the umask is
    return place


def _taken(place: int) -> bool:
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without such locks has no order
    return True


def _leave(place: int) -> None:
    """Not by closing it: a child that was forked meanwhile would keep it open."""
    with contextlib.suppress(OSError):
        fcntl.flock(place, fcntl.LOCK_UN)
