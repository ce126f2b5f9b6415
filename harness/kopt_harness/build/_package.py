"""Python sources as one package under a private name, so that relative imports work."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kopt_harness.schema import Solution
from kopt_harness.syntax import parse

from .protocol import SOURCE_FOLDER, Outcome

__all__ = ["check_sources", "import_entry", "load_entry", "top_level_names"]


def load_entry(folder: Path, solution: Solution) -> Callable[..., Any]:
    """Import the entry module of a built folder and return its entry function."""
    function: Callable[..., Any] = getattr(
        import_entry(folder, solution), solution.spec.entry_function
    )
    return function


def import_entry(folder: Path, solution: Solution) -> ModuleType:
    """Import the entry module; the same build is imported once per process."""
    package = f"_kopt_solution_{solution.sha256[:16]}"
    if package not in sys.modules:
        _install(package, folder / SOURCE_FOLDER)
    parts = Path(solution.spec.entry_file).with_suffix("").parts
    if parts == ("__init__",):
        return sys.modules[package]
    return importlib.import_module(".".join((package, *parts)))


def _install(package: str, sources: Path) -> None:
    """Make the source folder a package; its ``__init__.py``, if it has one, is executed."""
    init = sources / "__init__.py"
    if not init.is_file():
        module = ModuleType(package)
        module.__path__ = [str(sources)]
        sys.modules[package] = module
        return
    spec = importlib.util.spec_from_file_location(
        package, init, submodule_search_locations=[str(sources)]
    )
    assert spec is not None, init
    assert spec.loader is not None, init
    module = importlib.util.module_from_spec(spec)
    sys.modules[package] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[package]
        raise


def check_sources(solution: Solution) -> Outcome:
    """Parse every Python source and look for the entry function; nothing is executed."""
    for source in solution.sources:
        if not source.path.endswith(".py"):
            continue
        try:
            tree = parse(source.content, source.path)
        except SyntaxError as error:
            place = source.path if error.lineno is None else f"{source.path}:{error.lineno}"
            return Outcome(ok=False, log=f"{place}: {error.msg}")
        if source.path == solution.spec.entry_file:
            names = top_level_names(tree)
            function = solution.spec.entry_function
            if function not in names and "*" not in names:
                log = f"the entry function {function!r} is not defined in {source.path!r}"
                return Outcome(ok=False, log=log)
    return Outcome(ok=True)


def top_level_names(tree: ast.Module) -> frozenset[str]:
    """Names that a module binds when imported; ``*`` where that cannot be told."""
    return frozenset(_bound(tree.body))


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            # A module-level __getattr__ answers for any name.
            yield "*" if node.name == "__getattr__" else node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        else:
            for child in ast.walk(node):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    yield child.id
            for block in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)
