"""The folder that an agent's program works in: the task, and nothing that is not in the task.

``work/`` is its working directory and ``home/`` its home; both are its own and go when its drafts
were taken. Neither lies in the checkout. What it may read beyond them is said in
``docs/agents.md``; that it cannot write elsewhere is Landlock's, where the kernel has it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kopt_harness.ledger import Ledger

from ..protocol import AgentTask
from .prompt import Prompt

__all__ = ["Worktree", "open_worktree"]

_PREFIX = "kopt-agent-"
_HELPER = Path(__file__).resolve().parents[1] / "templates" / "helper.py.txt"
_MARK = "kopt-agent"
"""A file that says that a folder was made here, and by which call."""


def _helper() -> str:
    """The helper, run by this interpreter: what a shell finds may need more than it can reach."""
    text = _HELPER.read_text(encoding="utf-8")
    return f"#!{sys.executable}\n" + text.partition("\n")[2]


class Worktree:
    """One of them; ``fd`` stands for ``work/`` whatever becomes of its name."""

    def __init__(self, top: Path, fd: int) -> None:
        self.top = top
        self.fd = fd

    @property
    def work(self) -> Path:
        """The working directory."""
        return self.top / "work"

    @property
    def home(self) -> Path:
        """The home."""
        return self.top / "home"

    @property
    def budget(self) -> Path:
        """What its helpers have used; out of its reach."""
        return self.top / "budget"

    def remove(self) -> None:
        """All of it; what cannot be removed stays."""
        shutil.rmtree(self.top, ignore_errors=True)


@contextmanager
def open_worktree(
    ledger: Ledger, prompt: Prompt, task: AgentTask | None, skills: Path | None
) -> Iterator[Worktree]:
    """The worktree of a call: that which a killed process has left, else a new one.

    Args:
        ledger: Of the call; knows where it is.
        prompt: What the agent is told.
        task: What it works on; None: a question, for which the folder stays empty.
        skills: Folder of the skills; None: it gets none.
    """
    top = _known(ledger, prompt)
    if top is None:
        top = Path(tempfile.mkdtemp(prefix=_PREFIX))
        _fill(top, prompt, task, skills)
        number = sum(ledger.get(f"worktree/{n}") is not None for n in range(_MOST))
        ledger.put(f"worktree/{number}", {"path": str(top)})
    fd = os.open(top / "work", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield Worktree(top, fd)
    finally:
        os.close(fd)


_MOST = 64


def _known(ledger: Ledger, prompt: Prompt) -> Path | None:
    """The last one of this call, if it is still there and nobody else's."""
    found = [value for n in range(_MOST) if (value := ledger.get(f"worktree/{n}")) is not None]
    if not found:
        return None
    top = Path(found[-1]["path"])
    mark = top / _MARK
    try:
        is_ours = mark.read_text(encoding="utf-8") == prompt.sha256
        is_ours = is_ours and top.stat().st_uid == os.geteuid() and not top.is_symlink()
    except OSError:
        return None
    whole = all((top / name).is_dir() and not (top / name).is_symlink() for name in _FOLDERS)
    return top if is_ours and whole else None


_FOLDERS = ("work", "home")


def _fill(top: Path, prompt: Prompt, task: AgentTask | None, skills: Path | None) -> None:
    for name in _FOLDERS:
        (top / name).mkdir()
    if task is not None:
        work = top / "work"
        (work / "drafts").mkdir()
        _write(work / "TASK.md", prompt.text)
        _write(work / "contract.json", json.dumps(_contract(task), indent=2) + "\n")
        for file in task.incumbent:
            _write(work / "incumbent" / file.path, file.content)
        if task.tools:
            _write(work / "kopt", _helper(), mode=0o555)
        if skills is not None and task.skills and skills.is_dir():
            shutil.copytree(skills, work / "skills", symlinks=False)
    (top / _MARK).write_text(prompt.sha256, encoding="utf-8")


def _contract(task: AgentTask) -> Mapping[str, Any]:
    """What a program may want to read as data rather than as prose."""
    return {
        "definition": task.definition.model_dump(mode="json"),
        "target": task.target,
        "languages": list(task.languages),
        "drafts": task.drafts,
        "workloads": list(task.workloads),
        "layout": {
            "draft": "drafts/<name>/",
            "files": ["config.toml", "NOTE.md", "solution/<language>/..."],
        },
        "device_s": task.allowance.device_s if task.tools else 0,
    }


def _write(path: Path, text: str, *, mode: int = 0o444) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    path.chmod(mode)
