"""Other people's results: read, kept apart from our own, and held against what is known.

Read ``record.py`` first: what one result is. ``readers/`` has one module per file format,
``read.py`` walks files and folders, ``store.py`` keeps what was imported, ``runs.py`` puts
results together that belong together, ``checks/`` has one module per kind of doubt, and
``audit.py`` asks them all. Nothing here was measured by kopt, and nothing that decides about
a promotion reads it.
"""

from __future__ import annotations

from .audit import Finding, FindingCode, Severity, audit
from .knowledge import Knowledge
from .read import FileSummary, Reading, read_results
from .record import ForeignResult, Place, Problem
from .store import Imported, import_results, imported_results

__all__ = [
    "FileSummary",
    "Finding",
    "FindingCode",
    "ForeignResult",
    "Imported",
    "Knowledge",
    "Place",
    "Problem",
    "Reading",
    "Severity",
    "audit",
    "import_results",
    "imported_results",
    "read_results",
]
