"""Kinds of runs, and the keys by which a reader of an archive finds its way in a journal."""

from __future__ import annotations

__all__ = ["CAMPAIGN", "FINISHED_KEY", "PROMOTE", "PROMOTE_KEY", "SWEEP"]

CAMPAIGN = "campaign"
"""Kind of the run of a ``kopt round``, in its manifest."""

PROMOTE = "promote"
"""Kind of the run of a ``kopt promote``."""

SWEEP = "sweep"
"""Kind of the run of a ``kopt sweep``."""

FINISHED_KEY = "finished"
"""Journal key of the last record of a run that came to its end."""

PROMOTE_KEY = "promote"
"""Journal key of what ``kopt promote`` found and did, in a run of its own."""
