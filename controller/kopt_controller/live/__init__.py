"""A run while it goes on: its journal read piece by piece, folded into what people look at.

What the dashboard and ``kopt status --watch`` show comes from here, so that both say the same.
Reading costs as much as what was appended since the last look, whatever the run has measured.
"""

from __future__ import annotations

from .blocks import live_blocks, summary_line
from .board import Board
from .follow import Follower

__all__ = ["Board", "Follower", "live_blocks", "summary_line"]
