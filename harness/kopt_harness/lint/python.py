"""Reads Python sources: names that are used, attributes that are assigned, strings."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from kopt_harness.schema import SourceFile
from kopt_harness.syntax import parse

from .python_names import SPELLINGS, Names, walk_scoped
from .python_table import (
    ATTRIBUTES,
    CLOCKS,
    JOINERS,
    OWN_STATE,
    STRINGS,
    TENSOR_METHODS,
    rules_of,
)
from .report import Place

__all__ = ["PythonFile", "parse_python"]

_CHANNEL_CALLS = ("os.write", "os.writev", "os.fdopen", "os.dup2", "socket.socket", "os.open")
_WRITE_MODES = frozenset("wax+")


def parse_python(source: SourceFile, own_modules: Collection[str]) -> PythonFile | None:
    """The file as a tree; None where it cannot be parsed, which its build will say."""
    try:
        tree = parse(source.content, source.path)
    except SyntaxError:
        return None
    return PythonFile(source, tree, own_modules)


class PythonFile:
    """One parsed source; ``found`` gives rule and place of everything that a rule names."""

    def __init__(self, source: SourceFile, tree: ast.Module, own_modules: Collection[str]) -> None:
        self.path = source.path
        self.tree = tree
        self.names = Names(tree, own_modules)
        self._lines = source.content.splitlines() or [""]
        self._nodes = list(walk_scoped(tree))
        self._docstrings = {
            id(node.value)
            for node, _ in self._nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }

    def place(self, node: ast.AST) -> Place:
        """Where a node begins."""
        line = max(1, min(getattr(node, "lineno", 1), len(self._lines)))
        return Place(self.path, line, getattr(node, "col_offset", 0) + 1, self._lines[line - 1])

    @cached_property
    def strings(self) -> list[tuple[ast.AST, str]]:
        """Strings that the file spells, with where; docstrings and comments are no strings."""
        return [
            (node, text)
            for node, _ in self._nodes
            if isinstance(node, SPELLINGS) and id(node) not in self._docstrings
            if (text := self.names.string(node))
        ]

    def found(self) -> Iterator[tuple[str, Place]]:
        """Every rule with every place, in no order."""
        hits = list(self._hits())
        rules = {rule for rule, _ in hits}
        called = {
            node.func.attr
            for node, _ in self._nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        dropped = {rule for rule, joiners in JOINERS.items() if called & joiners}
        dropped |= {"thread"} if self._joins_threads() else set()
        yield from ((rule, self.place(node)) for rule, node in hits if rule not in dropped)
        if rules & {"frames", "module-table", "collector"}:
            yield from (
                ("harness-frames", self.place(node))
                for node in self._words("_channel", "kopt_harness")
            )
        mprotect = list(self._words("mprotect"))
        if mprotect and (clocks := list(self._words(*CLOCKS))):
            yield "clock-hook", self.place(clocks[0])

    def _words(self, *words: str, strings: bool = False) -> Iterator[ast.AST]:
        """Strings that are one of these words, and attributes unless only ``strings`` count."""
        for node, _ in self._nodes:
            if isinstance(node, ast.Attribute) and node.attr in words and not strings:
                yield node
        for node, text in self.strings:
            if text in words or text.partition(".")[0] in words:
                yield node

    def _hits(self) -> Iterator[tuple[str, ast.AST]]:
        for scoped in self._nodes:
            node, arguments = scoped
            match node:
                case ast.alias() if id(node) in self.names.imported:
                    yield from self._named(node, {self.names.imported[id(node)]})
                case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                    yield from self._named(node, self.names.dotted(node, arguments))
                case ast.Call():
                    yield from self._named(node, self.names.dotted(node, arguments))
                    yield from self._call(node, arguments)
                case ast.Attribute() | ast.Subscript():
                    yield from self._stored(node, arguments)
                case ast.ClassDef():
                    yield from self._class(node)
                case ast.FunctionDef(
                    name="__torch_function__" | "__torch_dispatch__" | "__class__" | "__del__"
                ):
                    yield "lazy-output", node
                case ast.FunctionDef(name="__reduce__" | "__reduce_ex__"):
                    yield "pickle", node
            if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
                yield ATTRIBUTES[node.attr], node
        yield from self._counted()
        yield from self._string_hits()

    def _named(self, node: ast.AST, names: Collection[str]) -> Iterator[tuple[str, ast.AST]]:
        for name in names:
            yield from ((rule, node) for rule in rules_of(name))

    def _string_hits(self) -> Iterator[tuple[str, ast.AST]]:
        for node, text in self.strings:
            if text in ATTRIBUTES and ATTRIBUTES[text] in ("process-memory", "frames"):
                yield ATTRIBUTES[text], node
            for pattern, rule in STRINGS:
                if pattern.fullmatch(text[:400]):
                    yield rule, node
                    break

    def _call(self, node: ast.Call, arguments: Collection[str]) -> Iterator[tuple[str, ast.AST]]:
        function = self.names.dotted(node.func, arguments)
        if function & {"builtins.getattr", "builtins.setattr", "builtins.delattr"}:
            yield from self._attribute_call(node, function, arguments)
        if function & {"builtins.open", "io.open"} and self._writes(node):
            yield "files", node
        if function & {"builtins.vars", "builtins.globals", "builtins.locals"} and node.args:
            yield from (("hidden-name", node) for _ in self.names.dotted(node.args[0], arguments))
        if function & set(_CHANNEL_CALLS):
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            inside = [each for value in values for each in ast.walk(value)]
            if any("sys.argv" in self.names.dotted(each, arguments) for each in inside):
                yield "worker-channel", node
        if function & {"importlib.import_module"} and self._is_assembled(node.args[:1]):
            yield "dynamic-code", node
        match node.func:
            case ast.Attribute(attr="__setattr__" | "__delattr__", value=value):
                owners = [value, *node.args[:1]]
                if any(self._foreign(self.names.dotted(each, arguments)) for each in owners):
                    yield "patch", node
            case ast.Attribute(attr="get" | "setdefault" | "pop") if node.args:
                if _is_address(node.args[0]):
                    yield "pointer-key", node

    def _attribute_call(
        self, node: ast.Call, function: Collection[str], arguments: Collection[str]
    ) -> Iterator[tuple[str, ast.AST]]:
        if len(node.args) < 2:
            return
        owner = self.names.dotted(node.args[0], arguments)
        if "builtins.getattr" not in function:
            if self._foreign(owner):
                yield "patch", node
            elif not _is_self(node.args[0]) and any(self._words(*TENSOR_METHODS, strings=True)):
                yield "lazy-output", node
        elif not owner:
            return
        elif self._is_assembled(node.args[1:2]):
            yield "hidden-name", node

    def _is_assembled(self, values: list[ast.expr]) -> bool:
        """Whether a name is computed from strings, not written and not an argument."""
        match values:
            case [ast.Constant() | ast.Attribute()] | []:
                return False
            case [ast.Name(id=name)]:
                return name in self.names.assigned and name not in self.names.constants
        return True

    def _writes(self, node: ast.Call) -> bool:
        modes = [node.args[1]] if len(node.args) > 1 else []
        modes += [keyword.value for keyword in node.keywords if keyword.arg == "mode"]
        return any(_WRITE_MODES & set(self.names.string(mode) or "w") for mode in modes)

    def _stored(
        self, node: ast.Attribute | ast.Subscript, arguments: Collection[str]
    ) -> Iterator[tuple[str, ast.AST]]:
        if isinstance(node, ast.Subscript):
            if _is_address(node.slice):
                yield "pointer-key", node
            inside = node.value
            is_table = isinstance(inside, ast.Attribute) and inside.attr == "__dict__"
            if not is_table or not isinstance(inside, ast.Attribute):
                return
            owner = self.names.dotted(inside.value, arguments)
            if self._foreign(owner):
                yield ("hidden-name" if isinstance(node.ctx, ast.Load) else "patch"), node
            return
        owner = self.names.dotted(node.value, arguments)
        whole = self.names.dotted(node, arguments)
        if any(_below(name, OWN_STATE) for name in whole):
            yield "global-state", node
        elif self._foreign(owner):
            yield "patch", node
        elif node.attr in TENSOR_METHODS and not _is_self(node.value):
            yield "lazy-output", node

    def _foreign(self, names: Collection[str]) -> bool:
        """Whether it is a module of somebody else, or something in one."""
        return any(not name.startswith("builtins.") or "." in name[9:] for name in names) or any(
            name in ("builtins.print", "builtins.open") for name in names
        )

    def _class(self, node: ast.ClassDef) -> Iterator[tuple[str, ast.AST]]:
        bases = {name for base in node.bases for name in self.names.dotted(base)}
        if bases & {"torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"}:
            yield "lazy-output", node

    def _joins_threads(self) -> bool:
        """Whether something is joined without an argument, which no string is."""
        return any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "join"
            and not node.args
            for node, _ in self._nodes
        )

    def _counted(self) -> Iterator[tuple[str, ast.AST]]:
        """State of the module that goes up by a constant and is compared."""
        counters = self._counters()
        if not counters:
            return
        for node, _ in self._nodes:
            if isinstance(node, ast.Compare):
                for each in ast.walk(node):
                    if isinstance(each, ast.expr) and _key(each) in counters:
                        yield "call-count", node

    def _counters(self) -> Mapping[str, ast.AST]:
        found: dict[str, ast.AST] = {}
        shared = {
            name
            for node, _ in self._nodes
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        top = {
            target.id
            for statement in self.tree.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        for statement in self.tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                    if "itertools.count" in self.names.dotted(call.func):
                        found[f"next({name})"] = statement
        top |= {s.name for s in self.tree.body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
        for node, _ in self._nodes:
            match node:
                case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.Constant()):
                    if name in shared:
                        found[name] = node
                case ast.AugAssign(
                    target=ast.Attribute(value=ast.Name(id=name))
                    | ast.Subscript(value=ast.Name(id=name), slice=ast.Constant()) as target,
                    op=ast.Add(),
                    value=ast.Constant(),
                ):
                    if name in top:
                        found[_key(target)] = node
        return found


def _key(node: ast.expr) -> str:
    """Text of a name, of an attribute or element of one, of its next; empty for all else."""
    match node:
        case ast.Call(func=ast.Name(id="next"), args=[ast.Name(id=name)]):
            return f"next({name})"
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return f"{name}.{attribute}"
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)):
            return f"{name}[{key!r}]"
    return ""


def _is_address(node: ast.AST) -> bool:
    """Whether an expression has ``x.data_ptr()`` or ``id(x)`` in it."""
    return any(
        isinstance(each, ast.Call)
        and (
            (isinstance(each.func, ast.Attribute) and each.func.attr == "data_ptr")
            or (isinstance(each.func, ast.Name) and each.func.id == "id")
        )
        for each in ast.walk(node)
    )


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _below(name: str, prefixes: Collection[str]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)
