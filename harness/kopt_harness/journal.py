"""The journal of a run: append-only JSON lines, the truth from which all else is derived.

One record is one completed unit: ``{"schema", "seq", "time", "key", "value"}``. A record is
on disk (``fsync``) before ``put`` returns. What a crash or a bad disk has left behind the last
whole record is kept aside in a file of its own when the journal is opened again; damage that
whole records follow is an error, never skipped. One process writes at a time, held by a file
lock that the kernel drops when the process dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock
from filelock import Timeout as LockTimeout

from .atomic import sync_folder, write_atomic
from .errors import InfraError, InvalidInputError, UsageError
from .ledger import Ledger, ScopedLedger, dumps
from .version import SCHEMA_VERSION

__all__ = [
    "Journal",
    "JournalRecord",
    "PlacedRecord",
    "is_being_written",
    "read_journal",
    "read_records",
    "read_selected",
    "tail_bytes",
]


_HEAD = re.compile(
    rb'\{"schema":%d,"seq":\d+,"time":"[^"\\]*","key":"([^"\\]*)","value":' % SCHEMA_VERSION
)
"""How a line begins that ``Journal`` has written."""


class JournalRecord(NamedTuple):
    """One completed unit as it is on disk."""

    seq: int
    """Position in the file, from 0."""
    time: str
    """UTC, ISO 8601."""
    key: str
    value: dict[str, Any]


class PlacedRecord(NamedTuple):
    """A record, and where it ends."""

    record: JournalRecord
    end: int
    """Byte after its line."""


class Journal:
    """An open journal; satisfies ``Ledger``. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Opens for writing; creates the file where there is none.

        Raises:
            UsageError: If another process is writing it.
            InvalidInputError: If a record that others follow cannot be read.
            InfraError: If its folder cannot be made or written to.
        """
        self.path = path
        self.kept_aside: Path | None = None
        """Where that is which was no whole record at the end; None where there was nothing."""
        self._lock = _lock_of(path)
        # Worker pairs of one sweep complete units in threads of their own.
        self._one_at_a_time = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Long enough to outlast somebody who only looks whether it is being written.
            self._lock.acquire(timeout=0.5)
            try:
                self._open()
            except BaseException:
                self._lock.release()
                raise
        except LockTimeout as error:
            raise UsageError(
                f"the run {path.parent.name!r} is being written by another process",
                hint="wait until it ends, or look at it with: kopt status",
            ) from error
        except OSError as error:
            raise InfraError(
                f"cannot write the journal {str(path)!r}: {error.strerror}",
                hint="name a folder that can be written",
            ) from error

    def _open(self) -> None:
        is_new = not self.path.exists()
        self._values: dict[str, str] = {}
        self._end_bytes = 0
        for record, end in () if is_new else read_records(self.path):
            self._values[record.key] = dumps(record.value)
            self._end_bytes = end
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._broken = False
        try:
            if is_new:
                sync_folder(self.path.parent)
            elif os.fstat(self._file).st_size != self._end_bytes:
                self._keep_aside()
        except BaseException:
            os.close(self._file)
            raise

    def _keep_aside(self) -> None:
        """Moves what is no whole record to a file of its own, which is on disk first."""
        with self.path.open("rb") as file:
            file.seek(self._end_bytes)
            tail = file.read()
        number = 1
        while (place := self.path.with_name(f"{self.path.name}.aside-{number}")).exists():
            number += 1
        write_atomic(place, tail)
        os.ftruncate(self._file, self._end_bytes)
        os.fsync(self._file)
        self.kept_aside = place

    def get(self, key: str) -> dict[str, Any] | None:
        """The value of a completed unit; None if it is not complete."""
        text = self._values.get(key)
        return None if text is None else json.loads(text)

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Appends one record; it is durable when this returns.

        Raises:
            ValueError: If the key is taken already, or the value is not JSON.
            InfraError: If the disk refuses it; the journal stays readable.
        """
        with self._one_at_a_time:
            self._append(key, value)

    def _append(self, key: str, value: dict[str, Any]) -> None:
        if key in self._values:
            raise ValueError(f"the unit {key!r} was completed already")
        if self._broken:
            raise InfraError(
                f"the journal {str(self.path)!r} failed before and takes no more records",
                hint="continue with: kopt resume",
            )
        text = dumps(value)
        head = {
            "schema": SCHEMA_VERSION,
            "seq": len(self._values),
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "key": key,
        }
        line = f'{dumps(head)[:-1]},"value":{text}}}\n'.encode()
        # Set until the record is whole: a signal in between must not let another one follow.
        self._broken = True
        try:
            self._write(line)
        except OSError as error:
            raise InfraError(
                f"cannot write the journal {str(self.path)!r}: {error.strerror}",
                hint="make room on the disk, then continue with: kopt resume",
            ) from error
        self._end_bytes += len(line)
        self._values[key] = text
        self._broken = False

    def _write(self, line: bytes) -> None:
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._end_bytes)
            raise

    def scoped(self, prefix: str) -> Ledger:
        """A view with ``prefix/`` before every key."""
        return ScopedLedger(self, prefix)

    def completed(self) -> tuple[str, ...]:
        """Keys of all completed units, in the order of completion."""
        return tuple(self._values)

    def close(self) -> None:
        """Gives the file and the lock back; may be called twice."""
        if self._lock.is_locked:
            os.close(self._file)
            self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_journal(path: Path) -> tuple[JournalRecord, ...]:
    """All whole records, without the lock: also of a run that is being written.

    Raises:
        InvalidInputError: If a record that others follow cannot be read.
    """
    return tuple(record for record, _ in read_records(path)) if path.exists() else ()


def read_records(path: Path, *, start: int = 0, seq: int = 0) -> Iterator[PlacedRecord]:
    """Whole records one after the other, which takes the memory of one.

    Args:
        path: Of a journal.
        start: Byte at which a record begins.
        seq: Number of that record.

    Raises:
        InvalidInputError: If a record that others follow cannot be read.
    """
    with path.open("rb") as file:
        file.seek(start)
        end = start
        for line in file:
            record = _parse_line(line[:-1], seq) if line.endswith(b"\n") else None
            if record is None:
                rest = list(file)
                # A tail belongs to a journal: lines of which the first is no record are none.
                if any(map(_is_record, rest)) or (seq == 0 and rest):
                    raise InvalidInputError(
                        f"record {seq} of the journal {str(path)!r} is damaged",
                        hint="restore the file from a backup, or start a new run",
                    )
                return
            end += len(line)
            seq += 1
            yield PlacedRecord(record, end)


def read_selected(path: Path, wanted: Callable[[str], bool]) -> tuple[JournalRecord, ...]:
    """Records by their keys; the lines of all others are passed over without being parsed.

    So damage in those is not noticed: ask ``read_journal``, or the index, whether there is any.

    Args:
        path: Of a journal; none of a file that is not there.
        wanted: Whether a key is.

    Raises:
        InvalidInputError: If a wanted record that others follow cannot be read.
    """
    if not path.exists():
        return ()
    found = []
    with path.open("rb") as file:
        for seq, line in enumerate(file):
            head = _HEAD.match(line)
            if head is not None and not wanted(head[1].decode()):
                continue
            record = _parse_line(line[:-1], seq) if line.endswith(b"\n") else None
            if record is None:
                return tuple(each for each in read_journal(path) if wanted(each.key))
            if wanted(record.key):
                found.append(record)
    return tuple(found)


def tail_bytes(path: Path, end: int) -> int:
    """How much there is behind the last whole record, which ends at ``end``."""
    return path.stat().st_size - end


def is_being_written(path: Path) -> bool:
    """Whether a process has the journal open for writing now."""
    try:
        descriptor = os.open(_lock_path(path), os.O_RDONLY)
    except OSError:
        return False
    try:
        # Shared, so that two who look do not take each other for a writer.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lock_of(path: Path) -> FileLock:
    return FileLock(_lock_path(path), timeout=0, thread_local=False)


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _is_record(line: bytes) -> bool:
    """Whether a line has the form of a record, at whatever place."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and {"schema", "seq", "key", "value"} <= data.keys()


def _parse_line(line: bytes, seq: int) -> JournalRecord | None:
    """The record, or None where the line is not a whole record at its place."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    if data.get("schema") != SCHEMA_VERSION:
        raise InvalidInputError(
            f"the journal has a record of schema {data.get('schema')!r}, this is schema "
            f"{SCHEMA_VERSION}",
            hint="read it with the version of kopt that wrote it",
        )
    key, value = data.get("key"), data.get("value")
    if data.get("seq") != seq or not isinstance(key, str) or not isinstance(value, dict):
        return None
    return JournalRecord(seq=seq, time=str(data.get("time")), key=key, value=value)
