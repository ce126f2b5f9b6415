"""The words of a task: templates in files, data from the task, and the hash of what came out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..protocol import AgentTask

__all__ = ["MOST_TRIALS", "Delivery", "Prompt", "render", "render_question"]

Delivery = Literal["files", "json"]
"""How drafts come back: files in a worktree, or an answer in JSON."""

MOST_TRIALS = 20
"""Input sets of each workload that an agent may ask a check for."""
_KEPT = "\0"
"""Stands for a line break of a source until the prompt is whole."""
_TICKS = re.compile(r"`{3,}")
_TEMPLATES = {"full": "task.md.j2", "goal-only": "goal.md.j2"}


class Prompt(NamedTuple):
    """What an agent is told."""

    text: str
    sha256: str

    def document(self) -> dict[str, str]:
        """For the journal."""
        return self._asdict()


def render(task: AgentTask, delivery: Delivery) -> Prompt:
    """The prompt of a task.

    Args:
        task: What is wanted.
        delivery: How the drafts come back.
    """
    template = _environment().get_template(_TEMPLATES[task.mode])
    return _prompt(template.render(task=task, delivery=delivery, most_trials=MOST_TRIALS))


def render_question(name: str, **values: Any) -> Prompt:
    """The prompt of a question to an agent, out of a template of this folder.

    Args:
        name: Of the template, without its endings.
        values: What it shows.
    """
    return _prompt(_environment().get_template(f"{name}.md.j2").render(**values))


def _prompt(text: str) -> Prompt:
    # Blank lines that a template leaves behind, but none of a source.
    plain = re.sub(r"\n{3,}", "\n\n", text).strip().replace(_KEPT, "\n") + "\n"
    return Prompt(plain, hashlib.sha256(plain.encode()).hexdigest())


@cache
def _environment() -> Environment:
    folder = Path(__file__).resolve().parents[1] / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=False,  # the result is Markdown, and no browser shows it
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"fenced": _fenced, "shape": _shape, "number": _number, "axes": _axes}
    return environment


def _fenced(text: str, language: str = "") -> str:
    """A block that no text within can end."""
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    kept = text.rstrip().replace(_KEPT, "").replace("\n", _KEPT)
    return f"{fence}{language}\n{kept}\n{fence}"


def _shape(shape: Sequence[str] | None) -> str:
    return "scalar" if shape is None else f"[{', '.join(shape)}]"


def _number(value: float | None, form: str = ".3g") -> str:
    return "not measured" if value is None else format(value, form)


def _axes(workloads: Sequence[dict[str, int]]) -> str:
    """Each axis with the values that it takes, and how many workloads have each."""
    lines = []
    for axis in sorted({name for each in workloads for name in each}):
        values = [each[axis] for each in workloads if axis in each]
        parts = [f"{value} ({values.count(value)})" for value in sorted(set(values))]
        lines.append(f"- `{axis}`: {', '.join(parts[:24])}{', ...' if len(parts) > 24 else ''}")
    return "\n".join(lines)
