"""The parts of a campaign that can be switched off one by one, to see what each is worth.

A goal-only campaign has none of them; the assisted one has all. Some are the loop's own and work
with any agent; the others only change what a prompt says, and mean nothing to an agent that reads
none.
"""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["ALL", "PROMPT_SIDE", "Mechanism", "applicable"]

Mechanism = Literal["directions", "memory", "dispatch", "state", "skills", "tools"]
"""``directions``: one direction at a time, chosen for the state, with its playbook, and the
supervisor's blocks; ``memory``: what earlier rounds have shown, for and against, and that what
was rejected is not measured again; ``dispatch``: several solutions behind a rule over the size;
``state``: profile, regimes and floors; ``skills``; ``tools``: kopt's own check, bench and
profile at the agent's disposal."""

ALL: tuple[Mechanism, ...] = get_args(Mechanism)
PROMPT_SIDE: frozenset[Mechanism] = frozenset({"state", "skills", "tools"})
"""That only change what a prompt says or what a program finds."""


def applicable(mechanism: Mechanism, *, writes_code: bool) -> bool:
    """Whether a mechanism can make a difference to an agent.

    Args:
        mechanism: Which.
        writes_code: Whether the agent is one that is given a prompt.
    """
    return writes_code or mechanism not in PROMPT_SIDE
