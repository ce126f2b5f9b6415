"""Which files a client may name: those of its folder, and the solutions that ship."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kopt_harness.errors import NotFoundError

__all__ = ["Places"]


class Places:
    """Relative names belong to the first folder; the others may be named by their whole path."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Looks at links once.

        Args:
            folders: That exist; the first is the client's own.
        """
        self._folders = [folder.resolve() for folder in folders]

    def find(self, name: str) -> Path:
        """The file or folder of a name, links resolved.

        Raises:
            NotFoundError: It is not there, or lies elsewhere; which of both is not told.
        """
        own, *_ = self._folders
        try:
            path = (own / name).resolve()
            is_there = path.exists()
        except (OSError, ValueError, RuntimeError):  # too long, a null byte, a ring of links
            path, is_there = own, False
        if not is_there or not any(path.is_relative_to(each) for each in self._folders):
            folders = ", ".join(map(str, self._folders))
            raise NotFoundError(f"no file or folder {name!r} to use", hint=f"name one in {folders}")
        return path
