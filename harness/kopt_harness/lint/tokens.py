"""C++ and CUDA as tokens: enough to tell code from comments and strings.

Not a lexer of Pygments (2.21), whose C++ lexer takes time quadratic in the number of empty
lines (1.9 s for 8000 of them): what is read here may want to keep the reader busy. Each
character is looked at a bounded number of times.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal, NamedTuple

__all__ = ["Kind", "Token", "tokenize"]

Kind = Literal["name", "string", "number", "punctuation"]


class Token(NamedTuple):
    """One token that is no comment and no white space."""

    kind: Kind
    text: str
    """Of a string: what stands between the quotes, escapes as written."""
    line: int
    """In the file, from 1."""
    column: int
    """From 1."""
    row: int
    """Logical line: a directive that goes on after a backslash is one."""


_SPLICE = re.compile(r"\\[ \t]*\r?\n")

_TOKEN = re.compile(
    r"""
      (?P<skip> //[^\n]* | /\*.*?(?:\*/|\Z) | \s+
          | (?: [-+]?[0-9](?:[eEpP][-+]|[0-9A-Za-z_.'])*+ \s*+ , \s*+ ){8,}+ )
    | (?:u8|[uUL])?R"(?P<tag>[^()\\\s"]{0,16})\( (?P<raw>.*?) (?: \)(?P=tag)" | \Z )
    | (?:u8|[uUL])?"(?P<string> (?:[^"\\\n]|\\.)* ) "?
    | (?P<char> ' (?:[^'\\\n]|\\.)* '? )
    | (?P<number> \.?[0-9] (?:'?[0-9A-Za-z_.])* )
    | (?P<name> [^\W\d]\w* )
    | (?P<punctuation> <<< | >>> | :: | -> | \#\# | . )
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> Iterator[Token]:
    """Tokens of a source, in order.

    Lines that end in a backslash are joined first, as a compiler does, also in the middle of
    a name. Tables of numbers say nothing and are left out.
    """
    spliced, starts, shifts = _join_lines(text)
    line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
    row = 0
    for match in _TOKEN.finditer(spliced):
        kind = match.lastgroup
        if kind not in ("skip", "char"):
            start = match.start()
            offset = start + shifts[bisect_right(starts, start) - 1]
            line = bisect_right(line_starts, offset)
            column = offset - line_starts[line - 1] + 1
            yield Token(*_content(match), line, column, row)
        row += match.group().count("\n")


def _content(match: re.Match[str]) -> tuple[Kind, str]:
    kind = match.lastgroup
    if kind in ("raw", "tag", "string"):
        raw = match.group("raw")
        return "string", match.group("string") if raw is None else raw
    if kind == "number":
        return "number", match.group()
    return ("name" if kind == "name" else "punctuation"), match.group()


def _join_lines(text: str) -> tuple[str, list[int], list[int]]:
    """The text without spliced line ends; from which offset on it is shifted, by how much."""
    pieces, starts, shifts = [], [0], [0]
    end = length = 0
    for match in _SPLICE.finditer(text):
        pieces.append(text[end : match.start()])
        length += match.start() - end
        end = match.end()
        starts.append(length)
        shifts.append(end - length)
    pieces.append(text[end:])
    return "".join(pieces), starts, shifts
