"""From what an agent left to packed solutions: known names, limited sizes, nothing else.

A program leaves ``drafts/<name>/config.toml`` and sources below ``solution/``; an endpoint
answers with the same as JSON. What is no draft is not read: it is counted, and a person is told.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from kopt_harness.errors import InvalidInputError, KoptError
from kopt_harness.pack import Packed
from kopt_harness.schema import Solution
from pydantic import ValidationError

from ...shown import counted
from ..protocol import Draft, TaskFile

__all__ = ["DRAFTS_SCHEMA", "Gathered", "drafts_of", "gather_drafts", "pack_draft"]

MOST_DRAFTS = 16
MOST_FILES = 32
"""Of one draft."""
MOST_FILE_BYTES = 512 * 1024
MOST_DRAFT_BYTES = 2 * 1024 * 1024
_MOST_ENTRIES = 2000
"""Looked at in one worktree; somebody may leave millions."""
_MOST_DEPTH = 6
_MOST_NOTES = 8
"""On drafts that are refused; the others are counted."""
_MOST_NAME = 80
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_CONFIG, _NOTE = "config.toml", "NOTE.md"
_SOURCES = "solution"
_FENCED = re.compile(r"\A\s*```[^\n]*\n(?P<code>.*?)\n?```\s*\Z", re.DOTALL)
_MOST_RATIONALE = 2000

DRAFTS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["drafts"],
    "properties": {
        "drafts": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "rationale", "technique", "files"],
                "properties": {
                    "name": {"type": "string"},
                    "rationale": {"type": "string"},
                    "technique": {"type": "string"},
                    "files": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["path", "content"],
                            "properties": {
                                "path": {"type": "string"},
                                "content": {"type": "string"},
                            },
                        },
                    },
                },
            },
        }
    },
}
"""What an endpoint is asked to answer with."""


class Gathered(NamedTuple):
    """Drafts, and what was not taken."""

    drafts: tuple[Draft, ...]
    notes: tuple[str, ...]
    refused: tuple[str, ...] = ()
    """Those of the notes that say why a draft was not taken."""


class _RefusedError(Exception):
    """One draft cannot be taken; the text says why."""


def gather_drafts(worktree_fd: int, most: int) -> Gathered:
    """Drafts out of a worktree, read without following any link.

    Args:
        worktree_fd: Descriptor of the folder, opened before the agent began.
        most: Drafts at most, by name; more are left out.
    """
    ignored: Counter[str] = Counter()
    with ExitStack() as stack:
        folder = _open_folder(stack, worktree_fd, "drafts")
        if folder is None:
            return Gathered((), ("it left no folder drafts/",))
        drafts, refused = _each(
            [(name, partial(_read_draft, folder, name, ignored)) for name in sorted(_names(folder))]
        )
    notes = [*refused, *_beyond(drafts, most)]
    if ignored:
        kinds = ", ".join(f"{count} {what}" for what, count in sorted(ignored.items()))
        notes.append(f"ignored in drafts/: {kinds}")
    return Gathered(tuple(drafts[:most]), tuple(notes), tuple(refused))


def drafts_of(value: dict[str, Any], most: int, *, truncated: bool = False) -> Gathered:
    """Drafts out of an answer that should keep to ``DRAFTS_SCHEMA``.

    Args:
        value: The answer.
        most: Drafts at most.
        truncated: Whether the answer was cut off: its last draft is then not whole.
    """
    given = value.get("drafts")
    if not isinstance(given, list):
        return Gathered((), ("the answer has no list of drafts",))
    notes: list[str] = []
    if truncated and given:
        notes.append("the answer was cut off: its last draft is not whole and not taken")
        given = given[:-1]
    drafts, refused = _each(
        [(_named(each, n), partial(_one_of, each)) for n, each in enumerate(given)]
    )
    notes += [*refused, *_beyond(drafts, most)]
    return Gathered(tuple(drafts[:most]), tuple(notes), tuple(refused))


def _named(value: Any, index: int) -> Any:
    return (value.get("name") if isinstance(value, dict) else None) or index


def _each(given: Sequence[tuple[Any, Callable[[], Draft]]]) -> tuple[list[Draft], list[str]]:
    """Drafts up to a number, and notes on the others; what is refused takes nobody's place."""
    drafts: list[Draft] = []
    notes: list[str] = []
    refused = seen = 0
    for name, read in given[:_MOST_ENTRIES]:
        if len(drafts) == MOST_DRAFTS:
            break
        seen += 1
        try:
            drafts.append(read())
        except _RefusedError as why:
            refused += 1
            if refused <= _MOST_NOTES:
                shown = f"{name!r:.{_MOST_NAME}}"
                notes.append(f"the draft {shown} is not taken: {why}")
    if refused > _MOST_NOTES:
        notes.append(f"{counted(refused - _MOST_NOTES, 'further draft')} not taken either")
    if len(given) > seen:
        notes.append(
            f"{counted(len(given) - seen, 'further draft')} not looked at: there are {len(given)}, "
            f"and {MOST_DRAFTS} are taken at most"
        )
    return drafts, notes


def _beyond(drafts: Sequence[Draft], most: int) -> list[str]:
    left = ", ".join(repr(draft.name) for draft in drafts[most:])
    return [f"more than {counted(most, 'draft')}: {left} not taken"] if left else []


def pack_draft(draft: Draft, load: Callable[[Path], Packed], author: str) -> Solution:
    """The solution of a draft, packed as any other folder.

    Args:
        draft: Its files.
        load: Packs a folder.
        author: Whom the solution names, whatever the draft says.

    Raises:
        KoptError: If it is no solution.
    """
    with tempfile.TemporaryDirectory(prefix="kopt-draft-") as folder:
        for file in draft.files:
            path = Path(folder) / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.content, encoding="utf-8", newline="")
        try:
            solution = load(Path(folder)).solution
        except KoptError as error:
            # The folder is nobody's but ours; the draft has another name.
            message = error.message.replace(folder, draft.name)
            raise InvalidInputError(message, hint=error.hint.replace(folder, draft.name)) from error
    return solution.model_copy(update={"name": draft.name, "author": author})


def _one_of(value: Any) -> Draft:
    try:
        draft = Draft.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _RefusedError(f"{where}: {first['msg']}") from error
    if not _NAME.fullmatch(draft.name):
        raise _RefusedError("its name is no plain name")
    files = tuple(
        file.model_copy(update={"content": _unfenced(file.content)}) for file in draft.files
    )
    for file in files:
        _require_place(PurePosixPath(file.path), file.path)
    _require_sizes([(file.path, len(file.content.encode())) for file in files])
    if not any(file.path == _CONFIG for file in files):
        raise _RefusedError(f"it has no {_CONFIG}")
    rationale = draft.rationale[:_MOST_RATIONALE]
    technique = draft.technique[:64]
    changes = {"files": files, "rationale": rationale, "technique": technique}
    return draft.model_copy(update=changes)


def _unfenced(content: str) -> str:
    """A source without the fence that some models put around it even in JSON."""
    match = _FENCED.match(content)
    return content if match is None else f"{match['code']}\n"


def _read_draft(parent: int, name: str, ignored: Counter[str]) -> Draft:
    if not _NAME.fullmatch(name):
        raise _RefusedError("its name is no plain name")
    with ExitStack() as stack:
        folder = _open_folder(stack, parent, name)
        if folder is None:
            raise _RefusedError("it is no folder")
        return _draft_in(stack, folder, name, ignored)


def _draft_in(stack: ExitStack, folder: int, name: str, ignored: Counter[str]) -> Draft:
    files: list[TaskFile] = []
    rationale = ""
    for path in _walk(stack, folder, PurePosixPath(), ignored, depth=0):
        if str(path.where) == _NOTE:
            rationale = _read(path, ignored)[:_MOST_RATIONALE].strip()
        elif _is_place(path.where):
            files.append(TaskFile(path=str(path.where), content=_read(path, ignored)))
            _require_sizes([(file.path, len(file.content.encode())) for file in files])
        else:
            ignored["files outside config.toml and solution/"] += 1
    if not any(file.path == _CONFIG for file in files):
        raise _RefusedError(f"it has no {_CONFIG}")
    return Draft(name=name, files=tuple(files), rationale=rationale)


class _Entry(NamedTuple):
    folder: int
    name: str
    where: PurePosixPath


def _walk(
    stack: ExitStack, folder: int, where: PurePosixPath, ignored: Counter[str], depth: int
) -> Iterator[_Entry]:
    names = sorted(_names(folder))
    if len(names) > _MOST_ENTRIES:
        raise _RefusedError(f"a folder of it has {len(names)} entries")
    for name in names:
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode):
            yield _Entry(folder, name, where / name)
        elif stat.S_ISDIR(mode):
            inner = _open_folder(stack, folder, name) if depth < _MOST_DEPTH else None
            if inner is None:
                ignored["folders too deep"] += 1
            else:
                yield from _walk(stack, inner, where / name, ignored, depth + 1)
        else:
            ignored["links" if stat.S_ISLNK(mode) else "special files"] += 1


def _read(entry: _Entry, ignored: Counter[str]) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(entry.name, flags, dir_fd=entry.folder)
    except OSError as error:
        raise _RefusedError(f"{str(entry.where)!r} cannot be read") from error
    with os.fdopen(file, "rb") as stream:
        known = os.fstat(stream.fileno())
        if not stat.S_ISREG(known.st_mode):
            ignored["special files"] += 1
            raise _RefusedError(f"{str(entry.where)!r} is no regular file")
        if known.st_nlink > 1:
            raise _RefusedError(f"{str(entry.where)!r} has more than one name")
        data = stream.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        raise _RefusedError(f"{str(entry.where)!r} has more than {MOST_FILE_BYTES} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _RefusedError(f"{str(entry.where)!r} is not UTF-8") from error
    if "\0" in text:
        raise _RefusedError(f"{str(entry.where)!r} is binary")
    return text


def _is_place(path: PurePosixPath) -> bool:
    if str(path) == _CONFIG:
        return True
    return path.parts[0] == _SOURCES and len(path.parts) > 1


def _require_place(path: PurePosixPath, written: str) -> None:
    bad = path.is_absolute() or str(path) != written or not all(map(_PART.fullmatch, path.parts))
    if bad or not path.parts or not _is_place(path):
        raise _RefusedError(f"{written!r} is neither {_CONFIG} nor a plain path below {_SOURCES}/")


def _require_sizes(sizes: Sequence[tuple[str, int]]) -> None:
    if len(sizes) > MOST_FILES:
        raise _RefusedError(f"it has more than {MOST_FILES} files")
    for path, size in sizes:
        if size > MOST_FILE_BYTES:
            raise _RefusedError(f"{path!r} has more than {MOST_FILE_BYTES} bytes")
    if sum(size for _, size in sizes) > MOST_DRAFT_BYTES:
        raise _RefusedError(f"its files have more than {MOST_DRAFT_BYTES} bytes")


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _open_folder(stack: ExitStack, parent: int, name: str) -> int | None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=parent)
    except OSError:
        return None
    stack.callback(os.close, fd)
    return fd
