"""Python sources of others as trees: whatever is wrong with one is a ``SyntaxError``.

CPython 3.11 counts the depth of a tree in one place for all threads, and says ``SystemError`` of a
sound source where another thread parses in between, which a collection of garbage can cause. kopt
looks at sources from several threads, so they take turns; other libraries do not, hence the tries.
"""

from __future__ import annotations

import ast
import sys
import threading

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

__all__ = ["parse", "unparse"]

_TURN = threading.Lock()
_FRAMES = 100_000
_TRIES = Retrying(
    retry=retry_if_exception_type(SystemError), stop=stop_after_attempt(8), reraise=True
)


def parse(content: str, path: str = "<unknown>") -> ast.Module:
    """The tree of a source; nothing of it is executed.

    Args:
        content: of the whole file.
        path: for the message.

    Raises:
        SyntaxError: no interpreter reads it, be it for its grammar, a null byte or its depth.
    """
    try:
        with _TURN:
            tree: ast.Module = _TRIES(ast.parse, content, filename=path)
            return tree
    except SyntaxError as error:
        error.filename = error.filename or path
        raise
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or type(error).__name__, (path, None, None, None)) from error


def unparse(tree: ast.Module) -> str:
    """The source of a tree of any depth that ``parse`` returns, without comments."""
    with _TURN:
        limit = sys.getrecursionlimit()
        # Some frames a level: what compiles may be deeper than the default limit.
        sys.setrecursionlimit(max(limit, _FRAMES))
        try:
            return ast.unparse(tree)
        finally:
            sys.setrecursionlimit(limit)
