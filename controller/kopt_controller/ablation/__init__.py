"""What each mechanism is worth: the same agent and budget with more and less of kopt around it."""

from __future__ import annotations

from .design import Arm, Cell, Plan, Scope
from .estimate import Effect, Result, effects_of, interval
from .report import document_of, markdown_of
from .runner import Ablation
from .starting import Wish, open_ablation, start_ablation

__all__ = [
    "Ablation",
    "Arm",
    "Cell",
    "Effect",
    "Plan",
    "Result",
    "Scope",
    "Wish",
    "document_of",
    "effects_of",
    "interval",
    "markdown_of",
    "open_ablation",
    "start_ablation",
]
