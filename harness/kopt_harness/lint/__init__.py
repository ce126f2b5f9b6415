"""A first reading of the sources of a solution, before anything of it is built or run.

Triage: it tells a person where to look. Whoever wants to can hide from it, so nothing rests
on it alone; what a solution does is found out by the judge. A finding is a flag with file and
line, and bars a promotion until a person has looked; a few that no kernel can need reject.

``rules`` names the rules; ``python_table`` and ``native_table`` hold their patterns. Python
is read as a syntax tree with its names resolved, C++ and CUDA as tokens, also where they are
strings of a Python source. Not covered: what code does with what it was given, files that
are neither, and code that is hidden well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath

from kopt_harness.schema import Solution, SourceFile

from .kernels import dead_kernels
from .native import NativeFile
from .python import PythonFile, parse_python
from .report import Finding, LintReport, Place, report
from .rules import RULES, Rule

__all__ = ["RULES", "Finding", "LintReport", "Rule", "lint"]

MAX_PYTHON_CHARS = 1 << 20
"""A longer Python source is not read, and flagged: a tree takes a second for each 100 kB."""

_NATIVE = frozenset(
    {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".inc", ".inl", ".ptx"}
)
_NATIVE_MARKS = ("#include", "__global__", 'extern "C"')


def lint(solution: Solution) -> LintReport:
    """What the sources of a solution show; the same content is read once."""
    return _read(solution.sha256, _Unhashed(solution))


class _Unhashed:
    """Carries a solution past the cache, whose key is its hash."""

    def __init__(self, solution: Solution) -> None:
        self.solution = solution

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unhashed)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=64)
def _read(sha256: str, carried: _Unhashed) -> LintReport:
    del sha256
    solution = carried.solution
    own = {PurePosixPath(source.path).parts[0].removesuffix(".py") for source in solution.sources}
    python: list[PythonFile] = []
    native: list[NativeFile] = []
    unread: list[tuple[str, Place]] = []
    for source in solution.sources:
        suffix = PurePosixPath(source.path).suffix.lower()
        if suffix == ".py" and len(source.content) > MAX_PYTHON_CHARS:
            unread.append(("unread", Place(source.path, 1, 1, source.content[:80])))
        elif suffix == ".py":
            parsed = parse_python(source, own)
            if parsed is not None:
                python.append(parsed)
                native += _inside_strings(source, parsed)
        elif suffix in _NATIVE:
            native.append(NativeFile(source.path, source.content))
    return report((*unread, *_all(python, native, solution.spec.entry_function)))


def _all(
    python: list[PythonFile], native: list[NativeFile], entry: str
) -> Iterator[tuple[str, Place]]:
    for parsed in python:
        yield from parsed.found()
    for file in native:
        yield from file.found()
    yield from dead_kernels(python, native, entry)


def _inside_strings(source: SourceFile, parsed: PythonFile) -> Iterator[NativeFile]:
    """C++ and CUDA that a Python source compiles at run time."""
    for node in ast.walk(parsed.tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and any(mark in node.value for mark in _NATIVE_MARKS)
        ):
            yield NativeFile(source.path, node.value, first_line=node.lineno)
