"""Writing files so that a reader finds the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["sync_folder", "write_atomic"]

# Asked once, while there is one thread: to ask is to set it, for all of them.
_MASK = os.umask(0o077)
os.umask(_MASK)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replaces ``path`` with ``content``, durable when this returns; makes missing folders.

    Args:
        path: A file; its folder is on one file system, so that a rename is atomic.
        content: Text is written as UTF-8; line ends are kept as they are.
    """
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), _mode(path))
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes new and renamed entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode(path: Path) -> int:
    """The permissions that the file has, or that a new file would get; mkstemp gives 0600."""
    if path.exists():
        return path.stat().st_mode & 0o777
    return 0o666 & ~_MASK
