"""Sources of others as trees."""

from __future__ import annotations

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kopt_harness import syntax

SOURCE = Path(ast.__file__).read_text()


def nested(depth: int) -> str:
    """Deeper than any parser goes."""
    return "(" * depth + ")" * depth


@pytest.mark.parametrize("content", ["def f(:\n", "x = '\0'\n", nested(500), "-" * 100_000 + "1\n"])
def test_what_no_interpreter_reads_is_a_syntax_error(content: str) -> None:
    """Grammar, null bytes and depth alike; the message says which file."""
    with pytest.raises(SyntaxError) as caught:
        syntax.parse(content, "kernel.py")
    assert caught.value.filename == "kernel.py"
    assert caught.value.msg


def test_threads_do_not_spoil_each_others_trees() -> None:
    """CPython 3.11 refuses a sound source when another thread parses in the middle of it."""

    def give_way(*_: object) -> None:
        time.sleep(1e-4)

    def deeper(levels: int) -> ast.Module:
        return deeper(levels - 1) if levels else syntax.parse(SOURCE)

    gc.callbacks.append(give_way)
    try:
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(deeper, [0, 10, 20, 30] * 2))
    finally:
        gc.callbacks.remove(give_way)
    assert len({ast.dump(tree) for tree in trees}) == 1


def test_a_parse_that_others_spoiled_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that are not kopt's do not take turns."""
    outcomes = [SystemError("depth mismatch"), SystemError("depth mismatch"), ast.parse("x = 1")]

    def spoiled(*_: object, **__: object) -> ast.Module:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(ast, "parse", spoiled)
    assert len(syntax.parse("x = 1").body) == 1
