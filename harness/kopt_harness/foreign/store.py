"""Where imported results are kept: a journal of its own, apart from all runs.

``artifacts/local/foreign/journal.jsonl`` is append-only; a record has what one import found new
in one file. A result's key is its content without the name of its file, and which of equals in
its import it is: importing a file again, a longer version of it, or a copy from elsewhere, adds
only what is new. Nothing that judges, compares or promotes opens this journal.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ..errors import InvalidInputError
from ..journal import Journal, read_journal
from ..ledger import dumps
from .record import ForeignResult

__all__ = ["Imported", "import_results", "imported_results", "journal_path"]


class Imported(NamedTuple):
    """What an import changed."""

    added: int
    known: int
    """Results that were there already."""


def journal_path(local: Path) -> Path:
    """The journal below the local data of a root."""
    return local / "foreign" / "journal.jsonl"


def import_results(local: Path, results: Iterable[ForeignResult]) -> Imported:
    """Adds the results that are not there yet; those of a file are durable together.

    Args:
        local: ``Root.local``.
        results: In the order in which they are kept.

    Raises:
        UsageError: If another process is importing.
        InfraError: If the disk refuses; what was added before stays.
        InvalidInputError: If the journal is damaged.
    """
    occurrences: Counter[str] = Counter()
    new: dict[str, dict[str, Any]] = {}
    known = 0
    with Journal(journal_path(local)) as journal:
        there = {key for unit in journal.completed() for key in journal.get(unit) or ()}
        for result in results:
            content = _digest(result)
            key = f"{content}/{occurrences[content]}"
            occurrences[content] += 1
            if key in there:
                known += 1
            else:
                new.setdefault(result.place.file, {})[key] = result.model_dump(mode="json")
        for found in new.values():
            journal.put(f"foreign/{next(iter(found))}", found)
    return Imported(sum(map(len, new.values())), known)


def imported_results(local: Path) -> tuple[ForeignResult, ...]:
    """All results that were imported, in the order of their import.

    Raises:
        InvalidInputError: If the journal is damaged or of another version.
    """
    path = journal_path(local)
    records = read_journal(path)
    try:
        return tuple(
            ForeignResult.model_validate(value)
            for record in records
            for value in record.value.values()
        )
    except ValidationError as error:
        raise InvalidInputError(
            f"{str(path)!r} has a record that is no foreign result",
            hint="move it away and import the files again",
        ) from error


def _digest(result: ForeignResult) -> str:
    content = result.model_dump(mode="json", exclude={"place": {"file"}})
    return hashlib.sha256(dumps(content).encode()).hexdigest()
