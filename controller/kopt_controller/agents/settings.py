"""What the run configuration says of an agent that writes code: ``[agents.<name>]``."""

from __future__ import annotations

from kopt_harness.schema import Model
from pydantic import Field

__all__ = ["AgentSettings"]


class AgentSettings(Model):
    """One table; what is null is the agent's own default."""

    program: str | None = None
    """Of agents that are programs: a name on the path, or a path."""
    model: str | None = None
    base_url: str | None = None
    """Of agents that are endpoints: where; null: the package's own default."""
    key_env: str | None = None
    """Name of the environment variable that has the key. The key itself is never written."""
    max_turns: int = Field(default=40, ge=1)
    """Turns of a program in one call."""
    max_dollars: float | None = Field(default=None, gt=0)
    """Of one call; null: what is left of the campaign's limit."""
    timeout_s: float = Field(default=1800.0, gt=0)
    """Wall time of one call."""
    max_output_tokens: int = Field(default=32_000, ge=256)
    """Of one answer of an endpoint."""
    attempts: int = Field(default=4, ge=1)
    """How often a call is tried that failed for a reason that passes."""
    device_s: float = Field(default=120.0, ge=0)
    """Of the device, for the checks and measurements that a program asks for in one call."""
    languages: tuple[str, ...] = ()
    """That it may write in; empty: those of the direction that run on the target."""
    dollars_per_mtok_in: float | None = Field(default=None, ge=0)
    """Price of a million tokens read, for programs and endpoints that do not say what they cost."""
    dollars_per_mtok_cached: float | None = Field(default=None, ge=0)
    dollars_per_mtok_out: float | None = Field(default=None, ge=0)
    skills: bool = True
    """Whether a program finds the skills of the checkout in its worktree."""
