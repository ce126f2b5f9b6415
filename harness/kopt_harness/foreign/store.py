"""Where imported results are kept: a journal of its own, apart from all runs.

``artifacts/local/foreign/journal.jsonl`` is append-only. A result's key is its content without
the name of its file, and which of equals in its file it is: importing a file again, or a copy
of it from elsewhere, adds nothing. Nothing that judges, compares or promotes opens this
journal, and no key in it is one that they ask for.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

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
    """Adds the results that are not there yet; each is durable once it is written.

    Args:
        local: ``Root.local``.
        results: In the order in which they are kept.

    Raises:
        UsageError: If another process is importing.
        InfraError: If the disk refuses; what was added before stays.
    """
    added = known = 0
    occurrences: Counter[tuple[str, str]] = Counter()
    with Journal(journal_path(local)) as journal:
        for result in results:
            content = _digest(result)
            number = occurrences[result.place.file, content]
            occurrences[result.place.file, content] += 1
            key = f"foreign/{content}/{number}"
            if journal.get(key) is None:
                journal.put(key, result.model_dump(mode="json"))
                added += 1
            else:
                known += 1
    return Imported(added, known)


def imported_results(local: Path) -> tuple[ForeignResult, ...]:
    """All results that were imported, in the order of their import.

    Raises:
        InvalidInputError: If the journal is damaged or of another version.
    """
    path = journal_path(local)
    try:
        return tuple(ForeignResult.model_validate(record.value) for record in read_journal(path))
    except ValidationError as error:
        raise InvalidInputError(
            f"{str(path)!r} has a record that is no foreign result",
            hint="move it away and import the files again",
        ) from error


def _digest(result: ForeignResult) -> str:
    content = result.model_dump(mode="json", exclude={"place": {"file"}})
    return hashlib.sha256(dumps(content).encode()).hexdigest()
