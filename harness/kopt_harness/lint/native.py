"""Reads C++ and CUDA sources by token: identifiers, calls, headers, strings, macros."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from .native_table import CALLS, HEADERS, JOINERS, STRINGS, rule_of_word
from .python_table import CLOCKS
from .report import Place
from .tokens import Token, tokenize

__all__ = ["NativeFile"]

_API_PREFIXES = ("cu", "cuda", "cupti", "cublas", "cudnn", "dl", "nvrtc", "pthread_", "process_vm_")
_NOT_A_NAME = frozenset({"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__"})
_NOT_A_NAME |= {"alignas", "__attribute__", "decltype", "template", "__align__"}


class _Macro(NamedTuple):
    """A macro with arguments that pastes names."""

    parameters: tuple[str, ...]
    body: tuple[Token, ...]


class NativeFile:
    """One source; ``found`` gives rule and place of everything that a rule names.

    Args:
        path: of the source, or of the Python source that holds it as a string.
        text: what is read.
        first_line: of the text in that file.
    """

    def __init__(self, path: str, text: str, *, first_line: int = 1) -> None:
        self.path = path
        self._lines = text.split("\n")
        self._first_line = first_line
        self.tokens = list(tokenize(text))

    def place(self, token: Token) -> Place:
        """Where a token stands."""
        line = min(token.line, len(self._lines))
        shown = self._lines[line - 1]
        return Place(self.path, line + self._first_line - 1, token.column, shown)

    @cached_property
    def names(self) -> frozenset[str]:
        """All identifiers."""
        return frozenset(token.text for token in self.tokens if token.kind == "name")

    def found(self) -> Iterator[tuple[str, Place]]:
        """Every rule with every place, in no order."""
        hits = list(self._hits())
        dropped = {rule for rule, joiners in JOINERS.items() if self.names & joiners}
        if "detach" in self.names:
            dropped.discard("thread")
        yield from ((rule, self.place(token)) for rule, token in hits if rule not in dropped)
        if "mprotect" in self.names:
            clocks = (t for t in self.tokens if t.text in CLOCKS)
            yield from (("clock-hook", self.place(token)) for token in clocks)

    def _hits(self) -> Iterator[tuple[str, Token]]:
        for index, token in enumerate(self.tokens):
            if token.kind == "name":
                yield from self._name(index, token)
            elif token.kind == "string":
                yield from self._string(index, token)
            elif token.text == "#":
                yield from self._directive(index, token)
        yield from self._pasted()

    def _name(self, index: int, token: Token) -> Iterator[tuple[str, Token]]:
        rule = rule_of_word(token.text)
        if rule is not None:
            yield rule, token
        if self._text(index + 1) == "(":
            if token.text in CALLS and self._is_free(index):
                yield CALLS[token.text], token
            if token.text in CLOCKS and self._is_definition(index):
                yield "clock-hook", token
        if token.text == "environ" and self._is_free(index):
            yield "environment", token
        if token.text in ("thread", "jthread", "async") and self._qualifier(index) == "std":
            yield "thread", token
        if token.text in ("import", "exec", "eval") and self._qualifier(index) in ("py", "module_"):
            yield "python-api", token

    def _string(self, index: int, token: Token) -> Iterator[tuple[str, Token]]:
        if index and self.tokens[index - 1].kind == "string":
            return  # adjacent strings are one, and read with the first
        text = token.text
        for follower in self.tokens[index + 1 : index + 64]:
            if follower.kind != "string":
                break
            text += follower.text
        for pattern, rule in STRINGS:
            if pattern.fullmatch(text[:400]):
                yield rule, token
                return

    def _directive(self, index: int, token: Token) -> Iterator[tuple[str, Token]]:
        if self._text(index + 1) not in ("include", "embed"):
            return
        parts = []
        for follower in self.tokens[index + 2 : index + 66]:
            if follower.row != token.row:
                break
            parts.append(follower.text)
        name = "".join(parts).strip("<>")
        rule = next((rule for pattern, rule in HEADERS if pattern.fullmatch(name)), None)
        if rule is not None:
            yield rule, token

    def _text(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def _is_free(self, index: int) -> bool:
        """Whether a name is no member, and of no namespace but ``std`` and the global one."""
        before = self._text(index - 1)
        if before in (".", "->"):
            return False
        if before == "::":
            owner = self.tokens[index - 2] if index > 1 else None
            return owner is None or owner.kind != "name" or owner.text in ("std", "return")
        # After another name it is being declared, unless that name is a keyword.
        previous = self.tokens[index - 1] if index else None
        is_type = previous is not None and previous.kind == "name"
        return not is_type or before in ("return", "else", "do", "throw", "case")

    def _qualifier(self, index: int) -> str:
        return self._text(index - 2) if self._text(index - 1) == "::" else ""

    def _is_definition(self, index: int) -> bool:
        """Whether a type stands before the name and a body after its arguments."""
        before = self.tokens[index - 1] if index else None
        if before is None or not (before.kind == "name" or before.text in ("*", "&")):
            return False
        end = self._closing(index + 1)
        return "{" in {self._text(end + 1), self._text(end + 2)} and before.text != "return"

    @cached_property
    def _closings(self) -> dict[int, int]:
        """Index of the parenthesis or brace that closes the one at an index, where one does."""
        found: dict[int, int] = {}
        open_: dict[str, list[int]] = {")": [], "}": []}
        for index, token in enumerate(self.tokens):
            if token.kind != "punctuation":
                continue
            if token.text in "({":
                open_[")" if token.text == "(" else "}"].append(index)
            elif open_.get(token.text):
                found[open_[token.text].pop()] = index
        return found

    def _closing(self, index: int) -> int:
        return self._closings.get(index, len(self.tokens))

    def _pasted(self) -> Iterator[tuple[str, Token]]:
        macros: dict[str, _Macro] = {}
        for index, token in enumerate(self.tokens):
            if token.text == "#" and self._text(index + 1) == "define":
                row = [t for t in self.tokens[index + 2 : index + 514] if t.row == token.row]
                if not any(t.text == "##" for t in row):
                    continue
                yield from self._paste(row, {})
                if len(row) > 2 and row[1].text == "(":
                    names = [t.text for t in row[2:] if t.kind == "name"]
                    close = next((i for i, t in enumerate(row) if t.text == ")"), 2)
                    count = sum(t.kind == "name" for t in row[2:close])
                    macros[row[0].text] = _Macro(tuple(names[:count]), tuple(row[close + 1 :]))
            elif token.text in macros and self._text(index + 1) == "(":
                end = min(self._closing(index + 1), index + 64)
                given = [t.text for t in self.tokens[index + 2 : end] if t.text != ","]
                macro = macros[token.text]
                arguments = dict(zip(macro.parameters, given, strict=False))
                for rule, _ in self._paste(list(macro.body), arguments):
                    yield rule, token

    def _paste(self, row: list[Token], arguments: dict[str, str]) -> Iterator[tuple[str, Token]]:
        """Names that ``##`` makes in the body of a macro, with these arguments."""
        words = [arguments.get(token.text, token.text) for token in row]
        position = 0
        while position < len(words):
            end, made = position, words[position]
            while end + 2 < len(words) and row[end + 1].text == "##":
                end += 2
                made += words[end]
            if end > position:
                rule = rule_of_word(made) or CALLS.get(made)
                if rule is not None:
                    yield rule, row[position]
                literal = {w for w, t in zip(words, row, strict=True) if t.kind == "name"}
                if rule is not None or _is_api(made, words[position : end + 1 : 2], literal):
                    yield "pasted-name", row[position]
            position = end + 1

    def kernels(self) -> Iterator[tuple[str, Token, range]]:
        """Name, place and extent in ``tokens`` of every ``__global__`` function."""
        for index, token in enumerate(self.tokens):
            if token.text != "__global__":
                continue
            for position in range(index + 1, min(index + 256, len(self.tokens))):
                at = self.tokens[position]
                if at.text in (";", "{"):
                    break
                if at.kind == "name" and self._text(position + 1) == "(":
                    if at.text in _NOT_A_NAME:
                        continue
                    end = self._closing(position + 1) + 1
                    if self._text(end) == "{":
                        end = self._closing(end)
                    yield at.text, at, range(index, end + 1)
                    break


def _is_api(made: str, parts: list[str], literal: set[str]) -> bool:
    """Whether a pasted name is one of CUDA or of the system, as far as it is known."""
    del literal
    return parts[0] in _API_PREFIXES or (
        parts[0].startswith(("cuda", "cupti")) and made != parts[0]
    )
