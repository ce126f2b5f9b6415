"""Kernels that are written and never reached: text that looks like work.

Over-approximated: a name that is mentioned counts as used. Whether a kernel runs is for the
census of a timed call to say; this names those that cannot.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .native import NativeFile
from .python import PythonFile
from .python_table import KERNEL_DECORATORS
from .report import Place

__all__ = ["dead_kernels"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def dead_kernels(
    python: Sequence[PythonFile], native: Sequence[NativeFile], entry: str
) -> Iterator[tuple[str, Place]]:
    """Kernels of all files that nothing which runs mentions.

    Args:
        python: Parsed sources.
        native: C++ and CUDA sources, and those inside strings of Python sources.
        entry: Name of the entry function.
    """
    mentioned = _reached(python, entry)
    yield from _dead_python(python, mentioned)
    yield from _dead_native(native, mentioned)


def _dead_python(files: Sequence[PythonFile], reached: set[str]) -> Iterator[tuple[str, Place]]:
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, _Function) and node.name not in reached:
                decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
                names = {name for d in decorators for name in file.names.dotted(d)}
                if names & set(KERNEL_DECORATORS):
                    yield "dead-kernel", file.place(node)


def _reached(files: Sequence[PythonFile], entry: str) -> set[str]:
    """Names mentioned by what runs: modules when they are loaded, then the entry function."""
    bodies: dict[str, list[set[str]]] = {}
    reached = {entry}
    for file in files:
        for statement in file.tree.body:
            if isinstance(statement, _Function | ast.ClassDef):
                bodies.setdefault(statement.name, []).append(_mentions(statement))
                for decorator in statement.decorator_list:
                    reached |= _mentions(decorator)
            elif isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    if alias.asname:
                        bodies.setdefault(alias.asname, []).append({alias.name})
            else:
                reached |= _mentions(statement)
    waiting = list(reached)
    while waiting:
        for names in bodies.pop(waiting.pop(), ()):
            waiting += names - reached
            reached |= names
    return reached


def _mentions(node: ast.AST) -> set[str]:
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value)
    return found


def _dead_native(files: Sequence[NativeFile], mentioned: set[str]) -> Iterator[tuple[str, Place]]:
    declared: dict[str, Place] = {}
    inside: list[dict[str, list[range]]] = []
    for file in files:
        extents: dict[str, list[range]] = {}
        for name, token, extent in file.kernels():
            declared.setdefault(name, file.place(token))
            extents.setdefault(name, []).append(extent)
        inside.append(extents)
    used = set(mentioned)
    for file, extents in zip(files, inside, strict=True):
        ends: dict[str, int] = {}  # of the kernel's own text, which begins in order
        waiting = {name: list(reversed(each)) for name, each in extents.items()}
        for index, token in enumerate(file.tokens):
            name = token.text
            if name not in declared:
                continue
            while waiting.get(name) and waiting[name][-1].start <= index:
                ends[name] = max(ends.get(name, 0), waiting[name].pop().stop)
            if index >= ends.get(name, 0):
                used.add(name)
    yield from (("dead-kernel", place) for name, place in declared.items() if name not in used)
