"""Is an output right: the contest's rule and kopt's own, side by side.

``compare_all`` is what a judge calls. The rest serves the ``check.py`` of a definition
whose outputs need another rule than element-wise tolerance. Importing this package does
not load torch; calling it does, so it is called in worker processes only.
"""

from __future__ import annotations

from .api import (
    Comparator,
    check_outputs,
    compare_all,
    compare_contest,
    compare_strict,
    null_kernel_reason,
)
from .coarse import coarse_outputs
from .contest import contest_output
from .strict import strict_output
from .verdict import OutputFinding, first_wrong, tier_result

__all__ = [
    "Comparator",
    "OutputFinding",
    "check_outputs",
    "coarse_outputs",
    "compare_all",
    "compare_contest",
    "compare_strict",
    "contest_output",
    "first_wrong",
    "null_kernel_reason",
    "strict_output",
    "tier_result",
]
