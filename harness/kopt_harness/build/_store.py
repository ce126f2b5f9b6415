"""The build cache: one folder per key, complete or absent.

A build is made in a staging folder and renamed into place, so a reader never sees half of
one. Two processes that build the same key both compile; the first to finish is kept.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from kopt_harness import __version__
from kopt_harness.errors import InfraError
from kopt_harness.schema import BuildResult, SolutionRef

from .protocol import SOURCE_FOLDER, BuildRequest, Plan

__all__ = ["BuildStore", "Staging", "build_key"]

_FORMAT = "1"
"""Part of every key; raised when the layout of a built folder changes."""

_RESULT = "result.json"


def build_key(request: BuildRequest, plan: Plan) -> str:
    """SHA-256 over length-prefixed sources, flags, toolchain, Python and target."""
    parts = [
        _FORMAT,
        __version__,
        request.target,
        request.host_arch,
        str(request.arch),
        ".".join(map(str, sys.version_info[:3])),
        request.solution.sha256,
        str(len(plan.flags)),
        *plan.flags,
        json.dumps(plan.toolchain, sort_keys=True),
        json.dumps(plan.environment, sort_keys=True),
    ]
    if plan.ahead:
        parts.append(json.dumps(request.axes, sort_keys=True))
        parts.append(request.definition.model_dump_json() if request.definition else "")
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


class Staging:
    """A folder to build in, which nobody else uses."""

    def __init__(self, path: Path) -> None:
        self.home = path / "home"
        """Of the builder process; never published."""
        self.build = path / "build"
        """What becomes the built folder."""

    def write_sources(self, request: BuildRequest) -> None:
        """Lay the solution's sources out."""
        (self.build / SOURCE_FOLDER).mkdir(parents=True)
        self.home.mkdir()
        for source in request.solution.sources:
            path = self.build / SOURCE_FOLDER / source.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source.content, encoding="utf-8", newline="")


class BuildStore:
    """Built folders below one cache folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def folder(self, key: str) -> Path:
        """Where the build of a key is, or would be."""
        return self._root / key[:2] / key

    def get(self, key: str, solution: SolutionRef) -> BuildResult | None:
        """A complete build, under the name that the solution has now; None if there is none."""
        folder = self.folder(key)
        try:
            text = (folder / _RESULT).read_text(encoding="utf-8")
            result = BuildResult.model_validate_json(text)
        except (OSError, ValidationError):
            return None
        changes = {"solution": solution, "cached": True, "path": str(folder)}
        return result.model_copy(update=changes)

    @contextmanager
    def stage(self) -> Iterator[Staging]:
        """A staging folder, removed afterwards with whatever was not published.

        Raises:
            InfraError: The cache cannot be written.
        """
        path = self._root / "staging" / uuid.uuid4().hex
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise InfraError(
                f"cannot write the build cache {str(self._root)!r}: {error.strerror}",
                hint="make its folder writable, with room on its disk",
            ) from error
        try:
            yield Staging(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def publish(self, staging: Staging, result: BuildResult) -> BuildResult:
        """Move a staged build into place."""
        text = result.model_dump_json(indent=1) + "\n"
        (staging.build / _RESULT).write_text(text, encoding="utf-8")
        folder = self.folder(result.key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if self.get(result.key, result.solution) is None:
            with suppress(OSError):  # a concurrent build of the same key was faster
                if folder.exists():  # left damaged: its result cannot be read
                    shutil.rmtree(folder)
                staging.build.rename(folder)
        return result.model_copy(update={"path": str(folder)})
