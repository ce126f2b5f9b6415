"""What the names of a Python source stand for: imports, aliases, constant strings.

An over-approximation of one file, without running it: a name that could be a module's
attribute is taken for it. Arguments of functions are nobody's attribute.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from typing import NamedTuple

__all__ = ["SPELLINGS", "Names", "Scoped", "fold", "walk_scoped"]

_MAX_PARTS = 24
_MAX_FOLDED = 4096
_BUILTINS = frozenset(dir(builtins))
_IMPORTERS = frozenset({"builtins.__import__", "importlib.import_module"})
SPELLINGS = (ast.BinOp, ast.Call, ast.Constant, ast.JoinedStr, ast.Subscript)
"""Expressions that can spell a string."""
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Scoped(NamedTuple):
    """A node, and the arguments of the functions that it is in."""

    node: ast.AST
    arguments: frozenset[str]


def walk_scoped(tree: ast.AST) -> Iterator[Scoped]:
    """Every node, without recursion: sources may be nested as deeply as the parser allows."""
    stack = [Scoped(tree, frozenset())]
    while stack:
        here = stack.pop()
        yield here
        arguments = here.arguments
        if isinstance(here.node, _FUNCTIONS):
            arguments |= {arg.arg for arg in _arguments(here.node.args)}
        stack += [Scoped(child, arguments) for child in ast.iter_child_nodes(here.node)]


def _arguments(args: ast.arguments) -> list[ast.arg]:
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return found + [arg for arg in (args.vararg, args.kwarg) if arg is not None]


class Names:
    """Resolves expressions of one file to dotted names of modules that are not its own."""

    def __init__(self, tree: ast.Module, own_modules: Collection[str]) -> None:
        self.constants: dict[str, str] = {}
        """Strings that a name was assigned once."""
        self.imported: dict[int, str] = {}
        """Dotted name by ``id`` of an import's alias node."""
        self._own = own_modules
        self._aliases: dict[str, set[str]] = {}
        self._stars: list[str] = []
        self._defined: set[str] = set()
        assigned: list[tuple[str, ast.expr]] = []
        for node in ast.walk(tree):
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._import(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self._defined.add(node.name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    assigned.append((name, value))
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    assigned.append((name, value))
                case ast.NamedExpr(target=ast.Name(id=name), value=value):
                    assigned.append((name, value))
        self.assigned = {name for name, _ in assigned}
        for _ in range(3):  # an alias of an alias of an alias
            for name, value in assigned:
                self._assign(name, value)

    def dotted(self, node: ast.AST, arguments: Collection[str] = ()) -> frozenset[str]:
        """What an expression may be, as ``torch.cuda.Event``; empty where it is the file's own."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
            if len(parts) > _MAX_PARTS:
                return frozenset()
        roots: Collection[str] = ()
        if isinstance(node, ast.Name):
            roots = self._name(node.id, arguments)
        elif isinstance(node, ast.Call):
            roots = self._called(node, arguments)
        return frozenset(".".join((root, *reversed(parts))) for root in roots)

    def string(self, node: ast.AST) -> str | None:
        """The constant string that an expression spells; None where it cannot be told."""
        return fold(node, self.constants)

    def _name(self, name: str, arguments: Collection[str]) -> Collection[str]:
        if name in arguments:
            return ()
        if name in self._aliases:
            return self._aliases[name]
        if name in self._defined or name in self.assigned:
            return ()
        if name in _BUILTINS:
            return (f"builtins.{name}",)
        return [f"{module}.{name}" for module in self._stars]

    def _called(self, node: ast.Call, arguments: Collection[str]) -> Collection[str]:
        """``getattr(module, "name")`` and ``__import__("module")``."""
        if not node.args:
            return ()
        function = self.dotted(node.func, arguments) if _is_short(node.func) else frozenset()
        if "builtins.getattr" in function and len(node.args) > 1:
            name = self.string(node.args[1])
            bases = self.dotted(node.args[0], arguments) if _is_short(node.args[0]) else ()
            return [f"{base}.{name}" for base in bases] if name else ()
        if function & _IMPORTERS:
            name = self.string(node.args[0])
            return (name,) if name and not name.startswith(".") else ()
        return ()

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            if node.level or (node.module or "").partition(".")[0] in self._own:
                self._defined |= {alias.asname or alias.name for alias in node.names}
                return
            for alias in node.names:
                self.imported[id(alias)] = f"{node.module}.{alias.name}"
                if alias.name == "*":
                    self._stars.append(str(node.module))
                else:
                    name = alias.asname or alias.name
                    self._aliases.setdefault(name, set()).add(f"{node.module}.{alias.name}")
            return
        for alias in node.names:
            top = alias.name.partition(".")[0]
            if top in self._own:
                continue
            self.imported[id(alias)] = alias.name
            bound = alias.name if alias.asname else top
            self._aliases.setdefault(alias.asname or top, set()).add(bound)

    def _assign(self, name: str, value: ast.expr) -> None:
        text = self.string(value)
        if text is not None:
            self.constants.setdefault(name, text)
        if isinstance(value, ast.Name | ast.Attribute | ast.Call):
            found = {each for each in self.dotted(value) if each != f"builtins.{name}"}
            if found and len(self._aliases.get(name, ())) < _MAX_PARTS:
                self._aliases.setdefault(name, set()).update(found)


def _is_short(node: ast.AST) -> bool:
    """Whether resolving it cannot go deep: calls of calls of calls are nobody's name."""
    depth = 0
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
        depth += 1
    return depth <= _MAX_PARTS


def fold(node: ast.AST, constants: dict[str, str]) -> str | None:
    """The string that constants, ``+``, f-strings, ``join``, ``decode`` and ``[::-1]`` make.

    What an f-string puts in from elsewhere is written ``*``.
    """
    return _fold(node, constants, 0)


def _fold(node: ast.AST, constants: dict[str, str], depth: int) -> str | None:
    def inner(part: ast.AST) -> str | None:
        return _fold(part, constants, depth + 1)

    if depth > 40:  # of a sum of more strings only its parts are looked at
        return None
    text: str | None = None
    match node:
        case ast.Constant(value=str(value)):
            text = value
        case ast.Constant(value=bytes(data)):
            text = data.decode("latin-1")
        case ast.Name(id=name):
            text = constants.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = inner(left), inner(right)
            text = None if first is None or second is None else first + second
        case ast.JoinedStr(values=values):
            text = "".join(inner(v) or "*" for v in values)
        case ast.FormattedValue(value=value):
            text = inner(value)
        case ast.Call(func=ast.Attribute(value=value, attr="decode")):
            text = inner(value)
        case ast.Call(
            func=ast.Attribute(value=separator, attr="join"),
            args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
        ):
            glue, found = inner(separator), [inner(part) for part in parts]
            texts = [part for part in found if part is not None]
            text = glue.join(texts) if glue is not None and len(texts) == len(found) else None
        case ast.Subscript(
            value=value,
            slice=ast.Slice(
                lower=None,
                upper=None,
                step=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)),
            ),
        ):
            inside = inner(value)
            text = None if inside is None else inside[::-1]
    return text if text is None or len(text) <= _MAX_FOLDED else None
