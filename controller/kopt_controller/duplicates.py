"""Candidates that were rejected before, in other words: refused before they cost device time.

Two rules, both over what a source means rather than how it is written. Comments, layout and
the names that a source gives to its own variables and functions are left out of a normalised
hash; what has the hash of a rejected candidate is that candidate. Where only the order of
statements differs (the same numbers, operators and foreign names, nearly the same runs of
tokens), what was surely slower is refused too. Another number, operator or intrinsic is another
probe, and a wrong candidate may always be put right.
"""

from __future__ import annotations

import ast
import hashlib
import io
import keyword
import re
import token
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kopt_harness.errors import NotFoundError
from kopt_harness.schema import Solution
from kopt_harness.syntax import parse

from .memory import Memory, RoundMemory, Trial
from .result import CandidateRef, Refusal

__all__ = ["Print", "fingerprint", "refusal_of", "similarity"]

NEAR = 0.9
"""Share of common runs of tokens from which two sources of equal substance are one probe."""
RUN = 5
"""Tokens in a run."""
OWN = "$"
"""Begins what a source's own names are replaced with: no token of C or Python does."""

_C_TOKEN = re.compile(
    r"""(?P<drop>//[^\n]*|/\*.*?\*/|\s+)|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"|(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)|(?P<name>[A-Za-z_]\w*)|(?P<other><<<|>>>|.)",
    re.DOTALL,
)
_NO_TYPE = frozenset({"case", "co_return", "delete", "else", "goto", "new", "return", "throw"})
_DECLARES = frozenset("=;,)[({:")
_LAYOUT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, token.ENDMARKER})


class _Token(NamedTuple):
    text: str
    kind: str
    """``name``, ``number``, ``text`` or ``other``."""


class Print(NamedTuple):
    """What is compared of a solution."""

    normal: str
    """SHA-256 of the normalised sources and the way they are built."""
    substance: frozenset[tuple[str, int]]
    """Every token with how often it stands there; all names of its own are one."""
    runs: frozenset[tuple[str, ...]]


def refusal_of(
    solution: Solution,
    memory: Memory,
    get: Callable[[str], Solution],
    *,
    family: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Refusal | None:
    """The refusal of a candidate that a rejected one stands for; None where it is new.

    Args:
        solution: The candidate.
        memory: Of its definition on its target.
        get: Archived solutions by SHA-256.
        family: Solution folder that it is a setting of.
        settings: Which; another one of the same folder is another probe, even where the same
            numbers stand at other knobs.
    """
    mine = fingerprint(solution)
    for past, trial in _rejected(memory):
        try:
            theirs = fingerprint(get(trial.sha256))
        except NotFoundError:
            # An archive may be cleaned; what is gone cannot be compared with.
            continue
        likeness = similarity(mine, theirs)
        is_same = mine.normal == theirs.normal
        is_near = likeness >= NEAR and mine.substance == theirs.substance
        is_setting = family is not None and family == trial.family
        is_near = is_near and not (is_setting and settings != trial.settings)
        if is_same or (is_near and _is_slower(trial)):
            return _refusal(solution, past, trial, 1.0 if is_same else likeness)
    return None


def _rejected(memory: Memory) -> Iterator[tuple[RoundMemory, Trial]]:
    """Trials that were the candidate's fault, or slower; the last evidence first."""
    for past in reversed(memory.rounds):
        for trial in past.trials:
            lost_sweep = past.label == "reject" and past.swept == trial.sha256
            if lost_sweep or trial.is_rejected:
                yield past, trial


def _is_slower(trial: Trial) -> bool:
    return trial.verdict == "pass" and trial.ci is not None and trial.ci[0] > 1


def _refusal(solution: Solution, past: RoundMemory, trial: Trial, likeness: float) -> Refusal:
    same = "is the same but for names and layout as" if likeness == 1 else "hardly differs from"
    return Refusal(
        name=solution.name,
        sha256=solution.sha256,
        of=CandidateRef(name=trial.name, sha256=trial.sha256),
        run=past.run,
        round=past.round,
        similarity=likeness,
        detail=f"{solution.name} {same} {trial.name} of round {past.round} of {past.run}, "
        f"which {trial.outcome}",
    )


def similarity(a: Print, b: Print) -> float:
    """Common runs of tokens as a share of all runs, 0 to 1."""
    if not a.runs and not b.runs:
        return float(a.normal == b.normal)
    return len(a.runs & b.runs) / len(a.runs | b.runs)


def fingerprint(solution: Solution) -> Print:
    """What is compared of a solution."""
    return _cached(_Keyed(solution.sha256, solution))


class _Keyed(NamedTuple):
    """Equal by content hash, so that a cache need not compare sources."""

    sha256: str
    solution: Solution

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)


@lru_cache(maxsize=512)
def _cached(keyed: _Keyed) -> Print:
    spec = keyed.solution.spec.model_dump(mode="json", exclude={"entry_point", "target_hardware"})
    words: list[str] = []
    substance: Counter[str] = Counter({repr(sorted(spec.items())): 1})
    for source in sorted(keyed.solution.sources, key=lambda s: s.path):
        tokens, own = _read(source.content, is_python=source.path.endswith((".py", ".pyi")))
        normal = list(_renamed(tokens, own))
        words += [*(each.text for each in normal), "\f"]
        substance.update(OWN if each.text.startswith(OWN) else each.text for each in normal)
    digest = hashlib.sha256("\0".join([repr(sorted(spec.items())), *words]).encode())
    runs = frozenset(zip(*(words[at:] for at in range(RUN)), strict=False))
    return Print(digest.hexdigest(), frozenset(substance.items()), runs)


def _renamed(tokens: Sequence[_Token], own: frozenset[str]) -> Iterator[_Token]:
    """A source's own names numbered in the order in which they first stand there."""
    numbers: dict[str, str] = {}
    before = ""
    for each in tokens:
        if each.kind == "name" and each.text in own and before not in (".", "->", "::"):
            yield _Token(numbers.setdefault(each.text, f"{OWN}{len(numbers)}"), "name")
        else:
            yield each
        before = each.text


def _read(content: str, *, is_python: bool) -> tuple[list[_Token], frozenset[str]]:
    """Tokens without comments and layout, and the names that the source declares."""
    if is_python:
        try:
            tree = parse(content)
            return list(_python_tokens(content, tree)), _python_names(tree)
        except (SyntaxError, tokenize.TokenError, ValueError):
            # No Python after all: it will not build, and is compared as text.
            pass
    tokens = list(_c_tokens(content))
    return tokens, _c_names(tokens)


def _c_tokens(content: str) -> Iterator[_Token]:
    for found in _C_TOKEN.finditer(content):
        kind = found.lastgroup or "other"
        if kind != "drop":
            yield _Token(found.group(), kind)


def _c_names(tokens: Sequence[_Token]) -> frozenset[str]:
    """Names after a type and before what ends or begins a declaration."""
    declared = set()
    for before, each, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        follows_type = (before.kind == "name" and before.text not in _NO_TYPE) or before.text in (
            "*",
            "&",
            ">",
        )
        if each.kind == "name" and follows_type and after.text in _DECLARES:
            declared.add(each.text)
    return frozenset(declared)


def _python_tokens(content: str, tree: ast.Module) -> Iterator[_Token]:
    docstrings = _docstring_lines(tree)
    for each in tokenize.generate_tokens(io.StringIO(content).readline):
        if each.type in _LAYOUT or (each.type == token.STRING and each.start in docstrings):
            continue
        if each.type in (token.INDENT, token.DEDENT, token.NEWLINE):
            yield _Token(token.tok_name[each.type], "other")
        elif each.type == token.NAME and not keyword.iskeyword(each.string):
            yield _Token(each.string, "name")
        elif each.type == token.NUMBER:
            yield _Token(each.string, "number")
        else:
            yield _Token(each.string, "text" if each.type == token.STRING else "other")


def _docstring_lines(tree: ast.Module) -> frozenset[tuple[int, int]]:
    """Where strings stand that are statements of their own."""
    return frozenset(
        (node.lineno, node.col_offset)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _python_names(tree: ast.Module) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return frozenset(names)
