"""Of commands for agents that write code."""

from __future__ import annotations

from typing import Literal

from kopt_harness.schema import Model
from pydantic import Field

from ..agents import AgentTask
from ..agents.protocol import TaskMode

__all__ = [
    "InstalledSkill",
    "PromptDocument",
    "SkillRow",
    "SkillsInstallDocument",
    "SkillsListDocument",
]


class PromptDocument(Model):
    """What an agent would be told now."""

    definition: str
    target: str
    agent: str
    mode: TaskMode
    direction: str | None
    """Null of a goal-only prompt."""
    prompt: str
    """The words."""
    sha256: str
    """Of the words."""
    task: AgentTask
    """What they were made of."""


class SkillRow(Model):
    """One skill that came with kopt."""

    name: str
    description: str
    """By which an agent decides whether to read it."""
    folder: str


class SkillsListDocument(Model):
    """The skills that can be installed."""

    skills: tuple[SkillRow, ...]


class InstalledSkill(Model):
    """What became of one skill."""

    name: str
    action: Literal["installed", "updated", "unchanged"]


class SkillsInstallDocument(Model):
    """Where skills were put."""

    for_: Literal["claude", "codex"] = Field(alias="for")
    """Whose folder of skills."""
    folder: str
    skills: tuple[InstalledSkill, ...]
