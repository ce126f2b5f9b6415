"""One command after the other, each in a process of its own and within the budget."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from kopt_harness import proc
from kopt_harness.errors import InfraError, KoptError

from ..budget import BudgetExhaustedError
from .allowance import Allowance
from .public import public

__all__ = ["Commands"]

_POLL_S = 0.02
_MAX_STDERR = 2000
_DONE = frozenset({0, 1})
"""Exit codes of commands that have a result; 1 is a negative verdict."""


class Commands:
    """Runs commands; measurements would disturb each other, so a second one waits."""

    def __init__(self, globals_: Sequence[str], folder: Path, allowance: Allowance) -> None:
        """Runs nothing yet.

        Args:
            globals_: Global options of every command.
            folder: Where commands run.
            allowance: What is left for all of them together.
        """
        self.allowance = allowance
        self._globals = list(globals_)
        self._folder = folder
        self._turn = anyio.Lock()

    async def look(self, *arguments: str) -> dict[str, Any]:
        """The document of a command that costs nothing."""
        return await self._document(arguments, None)

    async def spend(self, *arguments: str) -> dict[str, Any]:
        """The document of a command that counts as a call, and is charged for its time."""
        async with self._turn:
            with self.allowance.charged(arguments[0]) as limit_s:
                return await self._document(arguments, limit_s)

    async def _document(self, arguments: Sequence[str], limit_s: float | None) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="kopt-mcp-") as scratch:
            out, errors = Path(scratch, "out"), Path(scratch, "errors")
            code = await self._run(arguments, limit_s, out, errors)
            text = out.read_text(errors="replace")
            said = errors.read_text(errors="replace")[-_MAX_STDERR:].strip()
        if code is None:
            raise BudgetExhaustedError(
                f"{arguments[0]!r} was ended: all seconds of the device are used",
                hint="hand in what there is; kopt measures all drafts itself",
            )
        try:
            document = json.loads(text)
        except ValueError:
            raise InfraError(
                f"{arguments[0]} ended with code {code} and printed no result: {said!r}",
                hint="kopt doctor checks the machine",
            ) from None
        if code not in _DONE and "error" in document:
            raise KoptError(str(document["error"]), hint=str(document.get("hint", "")))
        return {**public(document), "exit_code": code}

    async def _run(
        self, arguments: Sequence[str], limit_s: float | None, out: Path, errors: Path
    ) -> int | None:
        """Its exit code; None where its time was over. It ends when the call is cancelled."""
        module = [sys.executable, "-m", "kopt_controller.cli._child", str(os.getpid())]
        worker = proc.start(
            [*module, *self._globals, "--json", "--quiet", *arguments],
            cwd=self._folder,
            env=os.environ,
            pass_fds=(),
            log=out,
            errors=errors,
        )
        ended = False
        try:
            with anyio.move_on_after(limit_s):
                while not worker.ended():
                    await anyio.sleep(_POLL_S)
            ended = worker.ended()
        finally:
            code = worker.end().returncode
        return code if ended else None
