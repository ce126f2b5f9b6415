"""Many runs of one driver, for tests: builds are kept, and each run is a process of its own."""

import json
import shutil
import subprocess
import sys
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple, Self

from .building import Solution, build

__all__ = ["Done", "Runs"]

_SERVER = Path(__file__).resolve().parent / "serving.py"
_SECONDS = 600


class Done(NamedTuple):
    """How a run ended."""

    returncode: int
    """Negative for a signal."""
    output: str
    """What it printed, errors too."""


class Runs:
    """Builds and runs of the solution that a driver calls."""

    def __init__(self, driver: Path, kept: Path) -> None:
        self._driver = driver
        self._kept = kept
        self._server: subprocess.Popen[str] | None = None

    @cached_property
    def driver(self) -> ModuleType:
        """The driver as a module."""
        spec = spec_from_file_location(f"driver_of_{self._driver.parents[2].name}", self._driver)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        before = sys.path[:]  # where drivers add this package's folder
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path[:] = before
        return module

    @property
    def solution(self) -> Solution:
        """What the driver runs unless options say otherwise."""
        found: Solution = self.driver.SOLUTION
        return found

    def library(self, solution: Solution | None = None) -> Path:
        """The build of a solution, or of the driver's own."""
        return build(solution or self.solution, self._kept)

    def edited(
        self, place: Path, file: str, code: str, instead: str = "", times: int = 1
    ) -> Solution:
        """A copy of the solution below `place` in which a text is another.

        Args:
            place: An empty folder.
            file: Which source.
            code: The text.
            instead: What stands for it.
            times: How often it must be there.
        """
        copy = self.solution._replace(folder=place / "solution")
        shutil.copytree(self.solution.folder, copy.folder)
        source = copy.folder / "solution" / "cuda" / file
        text = source.read_text()
        assert text.count(code) == times, f"{file} has {code!r} {text.count(code)} times"
        source.write_text(text.replace(code, instead))
        return copy

    def run(self, *options: str, solution: Solution | None = None) -> Done:
        """Runs the driver with a solution, or with the one that it runs anyway."""
        words = ["--library", str(self.library(solution)), *options]
        output = self._kept / f"{self._driver.parents[2].name}.{id(self)}.out"
        server = self._started()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([words, str(output), _SECONDS]) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, f"the server of {str(self._driver)!r} has ended, see what it printed"
        return Done(int(answer), output.read_text(errors="replace"))

    def _started(self) -> "subprocess.Popen[str]":
        if self._server is None:
            argv = [sys.executable, str(_SERVER), str(self._driver)]
            pipe = subprocess.PIPE
            self._server = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
        return self._server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the server."""
        if self._server is not None:
            self._server.communicate()
            self._server = None
