"""Prints the size of modules and functions, largest first.

Run by ``make check``. It warns and never fails: a long module is a question, not an error.

    python scripts/sizes.py [LIMIT]
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

ROOTS = ("harness", "controller", "kernels", "emulator", "scripts", "tests")
MODULE_LINES = 400
FUNCTION_LINES = 50


class Size(NamedTuple):
    """Lines of one module or function."""

    lines: int
    where: str


def measure(path: Path, top: Path) -> tuple[Size, list[Size]]:
    """The module, and each function in it."""
    text = path.read_text()
    name = str(path.relative_to(top))
    functions = [
        Size(_lines(node), f"{name}:{node.lineno} {node.name}")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return Size(len(text.splitlines()), name), functions


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def show(title: str, sizes: list[Size], limit: int, top: int) -> None:
    """A table of the largest."""
    over = sum(size.lines > limit for size in sizes)
    print(f"{title}: {len(sizes)}, {over} over {limit} lines")
    for size in sorted(sizes, reverse=True)[:top]:
        print(f"  {size.lines:5d}  {size.where}")


def main() -> None:
    """Measures every Python file of the project."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    top = Path(__file__).resolve().parents[1]
    found = [measure(path, top) for root in ROOTS for path in sorted((top / root).rglob("*.py"))]
    show("modules", [module for module, _ in found], MODULE_LINES, count)
    show("functions", [size for _, each in found for size in each], FUNCTION_LINES, count)


if __name__ == "__main__":
    main()
