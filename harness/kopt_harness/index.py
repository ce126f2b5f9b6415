"""An index of all journals of an archive: derived, and made again whenever it is in doubt.

The journals are the truth (``journal.py``). The index has one row for each run, one for each
evaluated workload, and what a reader of the archive wants of single records (``Digester``), so
that questions about thousands of runs open no journal. ``refresh`` reads what was appended since
the last look. Several processes may do that at once: each run is read in one transaction.

It loads neither the models nor numpy, so that a question is answered in the time that Python
takes to start.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ._index_rows import Stamp, evaluation_of, has_grown, moment_of, read_manifest, stamp_of
from .errors import KoptError
from .journal import is_being_written, read_records, tail_bytes
from .version import SCHEMA_VERSION

__all__ = ["FILE_NAME", "Digester", "EvaluationRow", "Index", "IndexedRun"]

FILE_NAME = "index.sqlite"
"""Below ``artifacts/local``."""

_FOLDERS = ("runs", "sweeps")
_LAYOUT = 1
"""Of the tables; an index of another layout is made again."""
_BUSY_S = 30.0
_TABLES = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, folder TEXT NOT NULL, moment TEXT NOT NULL, kind TEXT NOT NULL,
    definition TEXT NOT NULL, target TEXT NOT NULL, manifest TEXT NOT NULL,
    inode INTEGER NOT NULL, manifest_ns INTEGER NOT NULL, written_ns INTEGER NOT NULL,
    size INTEGER NOT NULL,
    records INTEGER NOT NULL, last TEXT, finished INTEGER NOT NULL, problem TEXT NOT NULL
);
CREATE INDEX runs_by_moment ON runs (moment, id);
CREATE TABLE digests (
    run TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE evaluations (
    run TEXT NOT NULL, seq INTEGER NOT NULL, time TEXT NOT NULL, key TEXT NOT NULL,
    solution TEXT NOT NULL, uuid TEXT NOT NULL, verdict TEXT NOT NULL, phase TEXT NOT NULL,
    median_us REAL, PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE INDEX evaluations_by_solution ON evaluations (solution, uuid);
"""


class Digester(Protocol):
    """What a reader of the archive wants to find again of manifests and records."""

    version: str
    """An index that was made with another one is made again."""

    def manifest(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """What is kept of a manifest.

        Raises:
            KoptError: It is damaged; the run is listed with this problem.
        """
        ...

    def record(self, key: str, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Kind and content of what is kept of a record; None: nothing.

        Raises:
            KoptError: It is damaged; the run is listed with this problem.
        """
        ...

    def finishes(self, key: str) -> bool:
        """Whether a record of this key is the last of its run."""
        ...


class IndexedRun(NamedTuple):
    """One run."""

    id: str
    folder: Path
    kind: str
    """Of its manifest."""
    definition: str
    target: str
    manifest: dict[str, Any]
    """What the digester has kept of it."""
    records: int
    last: dict[str, str] | None
    """Time and key of the last record."""
    finished: bool
    problem: str
    """Why it cannot be read, or what was found at its end; empty where all is well."""

    @property
    def state(self) -> str:
        """``running``, ``finished`` or ``interrupted``, now."""
        if self.finished:
            return "finished"
        running = is_being_written(self.folder / "journal.jsonl")
        return "running" if running else "interrupted"


class EvaluationRow(NamedTuple):
    """One workload that was checked or timed."""

    run: str
    time: str
    key: str
    solution: str
    """First digits of its hash."""
    uuid: str
    verdict: str
    phase: str
    median_us: float | None


class Index:
    """Use as a context manager; ``refresh`` before asking."""

    def __init__(self, local: Path, digester: Digester) -> None:
        """Opens the index of an archive; in memory where its folder cannot be written.

        Args:
            local: ``Root.local``.
            digester: Of the records.
        """
        self._local = local.resolve()  # however it was spelled
        self._digester = digester
        self._path = self._local / FILE_NAME
        self._database = self._open()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the file back."""
        self._database.close()

    def refresh(self) -> int:
        """Takes in what was written since the last look; how many records that was."""
        try:
            return self._take_in()
        except sqlite3.OperationalError:
            # The disk is full, or another process does not let go: the journals are there.
            self._database.close()
            self._database = self._in_memory()
        except sqlite3.DatabaseError:
            self._database.close()
            self._remove()
            self._database = self._open()
        return self._take_in()

    def _take_in(self) -> int:
        # Asked first: what another process adds meanwhile is not taken for gone.
        known = dict(self._database.execute("SELECT id, folder FROM runs").fetchall())
        found = dict(self._folders())
        gone = [run for run, folder in known.items() if str(found.get(run)) != folder]
        if gone:
            self._forget(gone)
        return sum(self._refresh_run(run, folder) for run, folder in sorted(found.items()))

    def rebuild(self) -> int:
        """Makes it again from nothing; how many records there are."""
        with self._transaction():
            for table in ("runs", "digests", "evaluations"):
                self._database.execute(f"DELETE FROM {table}")
        return self.refresh()

    def runs(
        self,
        *kinds: str,
        definition: str | None = None,
        target: str | None = None,
        last: int | None = None,
    ) -> list[IndexedRun]:
        """Runs, oldest first.

        Args:
            kinds: Of their manifests; none: all.
            definition: Full id.
            target: Name.
            last: Only so many, the latest.
        """
        where, values = _where({"definition": definition, "target": target}, kinds)
        limit = -1 if last is None else last
        query = f"SELECT * FROM runs WHERE {where} ORDER BY moment DESC, id DESC LIMIT ?"
        rows = self._database.execute(query, (*values, limit)).fetchall()
        return [_run(row) for row in reversed(rows)]

    def count(self, *kinds: str, definition: str | None = None, target: str | None = None) -> int:
        """How many runs ``runs`` would return that can be read."""
        where, values = _where({"definition": definition, "target": target}, kinds)
        query = f"SELECT COUNT(*) FROM runs WHERE {where} AND manifest != '{{}}'"
        (found,) = self._database.execute(query, values).fetchone()
        return int(found)

    def digests(self, run: str, kind: str) -> list[dict[str, Any]]:
        """What was kept of the records of a run, in their order."""
        query = "SELECT document FROM digests WHERE run = ? AND kind = ? ORDER BY seq"
        return [json.loads(text) for (text,) in self._database.execute(query, (run, kind))]

    def evaluations(
        self, run: str | None = None, *, solution: str | None = None
    ) -> list[EvaluationRow]:
        """Of a run, or of a solution in any of them (by the first 12 digits of its hash)."""
        where, values = _where({"run": run, "solution": solution})
        columns = ", ".join(EvaluationRow._fields)
        query = f"SELECT {columns} FROM evaluations WHERE {where} ORDER BY run, seq"
        return [EvaluationRow(*row) for row in self._database.execute(query, values)]

    def counts(self) -> dict[str, int]:
        """How many runs, records and evaluations there are."""
        runs, records = self._database.execute(
            "SELECT COUNT(*), TOTAL(records) FROM runs"
        ).fetchone()
        (evaluations,) = self._database.execute("SELECT COUNT(*) FROM evaluations").fetchone()
        return {"runs": runs, "records": int(records), "evaluations": evaluations}

    def problems(self) -> list[str]:
        """One line for each run that has one."""
        query = "SELECT id, problem FROM runs WHERE problem != '' ORDER BY id"
        return [f"{run}: {problem}" for run, problem in self._database.execute(query)]

    def _open(self) -> sqlite3.Connection:
        """The file; made again where it is damaged, in memory where it cannot be written."""
        if not self._local.is_dir():
            return self._in_memory()
        try:
            return self._prepared(self._path)
        except sqlite3.OperationalError:
            return self._in_memory()
        except sqlite3.DatabaseError:
            self._remove()
        try:
            return self._prepared(self._path)
        except sqlite3.DatabaseError:
            return self._in_memory()

    def _in_memory(self) -> sqlite3.Connection:
        return self._prepared(Path(":memory:"))

    def _prepared(self, path: Path) -> sqlite3.Connection:
        database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")  # what a power cut takes is read again
        wanted = f"{_LAYOUT}/{SCHEMA_VERSION}/{self._digester.version}"
        database.execute("BEGIN IMMEDIATE")
        database.execute("CREATE TABLE IF NOT EXISTS layout (version TEXT)")
        found = database.execute("SELECT version FROM layout").fetchone()
        if found != (wanted,):
            for table in ("runs", "digests", "evaluations"):
                database.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _TABLES.split(";"):
                database.execute(statement)
            database.execute("DELETE FROM layout")
            database.execute("INSERT INTO layout VALUES (?)", (wanted,))
        database.execute("COMMIT")

    def _remove(self) -> None:
        """It is no database any more; nothing is lost with it."""
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                self._path.with_name(FILE_NAME + suffix).unlink()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _folders(self) -> Iterator[tuple[str, Path]]:
        for name in _FOLDERS:
            with contextlib.suppress(FileNotFoundError):
                for folder in (self._local / name).iterdir():
                    if (folder / "manifest.json").is_file():
                        yield folder.name, folder

    def _forget(self, runs: Sequence[str]) -> None:
        with self._transaction():
            for run in runs:
                self._clear(run)

    def _clear(self, run: str) -> None:
        self._database.execute("DELETE FROM runs WHERE id = ?", (run,))
        self._database.execute("DELETE FROM digests WHERE run = ?", (run,))
        self._database.execute("DELETE FROM evaluations WHERE run = ?", (run,))

    def _refresh_run(self, run: str, folder: Path) -> int:
        now = stamp_of(folder)
        if self._seen(run) == now:
            return 0
        with self._transaction():
            seen = self._seen(run)  # another process may have read it meanwhile
            if seen == now:
                return 0
            if seen is not None and has_grown(seen, now) and not self._has_problem(run):
                count = self._append(run, folder / "journal.jsonl", now)
                if not self._has_problem(run):
                    return count
            self._clear(run)  # it is not what it was with something added
            self._add(run, folder, now)
            return self._append(run, folder / "journal.jsonl", now)

    def _seen(self, run: str) -> Stamp | None:
        query = "SELECT inode, manifest_ns, written_ns, size FROM runs WHERE id = ?"
        found = self._database.execute(query, (run,)).fetchone()
        return None if found is None else Stamp(*found)

    def _has_problem(self, run: str) -> bool:
        query = "SELECT problem != '' FROM runs WHERE id = ?"
        return bool(self._database.execute(query, (run,)).fetchone()[0])

    def _add(self, run: str, folder: Path, now: Stamp) -> None:
        problem, manifest, kept = "", {}, {}
        try:
            manifest = read_manifest(run, folder)
            kept = self._digester.manifest(manifest)
        except KoptError as error:
            problem = error.message
        row = (
            run,
            str(folder),
            moment_of(run),
            str(manifest.get("kind", "")),
            str(manifest.get("definition", "")),
            str(manifest.get("target", "")),
            json.dumps(kept),
            *now._replace(size=0),
            0,
            None,
            0,
            problem,
        )
        self._database.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", row)

    def _append(self, run: str, path: Path, now: Stamp) -> int:
        """Reads the journal from where it was left."""
        query = "SELECT size, records, last, finished, problem FROM runs WHERE id = ?"
        end, before, last, finished, problem = self._database.execute(query, (run,)).fetchone()
        count: int = before
        damaged = False
        try:
            for record, here in read_records(path, start=end, seq=before) if now.inode else ():
                self._keep(run, record.seq, record.key, record.time, record.value)
                finished = finished or self._digester.finishes(record.key)
                last = json.dumps({"time": record.time, "key": record.key})
                end, count = here, count + 1
            if now.inode and (tail := tail_bytes(path, end)) and not is_being_written(path):
                problem = (
                    f"the last {tail} bytes of its journal are no whole record; they are kept "
                    "aside when it is continued"
                )
        except KoptError as error:
            problem, damaged = error.message, True
        # With a problem all of it counts as read: it is read again when it changes.
        size = now.size if problem else end
        self._database.execute(
            "UPDATE runs SET written_ns = ?, size = ?, records = ?, last = ?, finished = ?, "
            "problem = ? WHERE id = ?",
            (now.written_ns, size, count, last, finished, problem, run),
        )
        if damaged:  # it is named, and not shown as if it were whole
            self._database.execute("UPDATE runs SET manifest = '{}' WHERE id = ?", (run,))
        return count - int(before)

    def _keep(self, run: str, seq: int, key: str, time: str, value: dict[str, Any]) -> None:
        if (row := evaluation_of(key, value)) is not None:
            self._database.execute(
                "INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (run, seq, time, key, *row),
            )
        kept = self._digester.record(key, value)
        if kept is not None:
            kind, document = kept
            self._database.execute(
                "INSERT INTO digests VALUES (?, ?, ?, ?)", (run, seq, kind, json.dumps(document))
            )


def _where(
    columns: Mapping[str, str | None], kinds: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]]:
    given = {name: value for name, value in columns.items() if value is not None}
    terms = ["1", *(f"{name} = ?" for name in given)]
    if kinds:
        terms.append(f"kind IN ({', '.join('?' * len(kinds))})")
    return " AND ".join(terms), (*given.values(), *kinds)


def _run(row: Sequence[Any]) -> IndexedRun:
    run, folder, _, kind, definition, target, manifest, *_, records, last, end, problem = row
    return IndexedRun(
        id=run,
        folder=Path(folder),
        kind=kind,
        definition=definition,
        target=target,
        manifest=json.loads(manifest),
        records=records,
        last=None if last is None else json.loads(last),
        finished=bool(end),
        problem=problem,
    )
