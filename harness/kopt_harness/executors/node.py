"""A piece of a sweep on whatever machine it came to; knows nothing of the engine that sent it.

A piece is JSON-able data: solutions, workloads, the definition's files, and the records that are
complete already. What is found goes back one record at a time, so that losing the machine loses
one record; the journal is the sender's. Nothing is read from a checkout on this machine: of kopt
itself there must be the same version.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from kopt_harness import __version__
from kopt_harness.atomic import write_atomic
from kopt_harness.catalog import Catalog
from kopt_harness.errors import KoptError, UnavailableError
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.root import Root
from kopt_harness.schema import Solution, Workload, WorkloadResult
from kopt_harness.setting import Setting
from kopt_harness.sweep import sweep
from kopt_harness.worker.spawn import WorkerFailedError

from .protocol import Work, scope_of

__all__ = ["Message", "pack_piece", "work_on"]

Message = dict[str, Any]
"""``kind`` is ``record``, ``checked``, ``result`` or ``error``."""

_LEFT_OUT = frozenset({"LOG.md", "README.md", "probes", "__pycache__"})
"""Of a definition's folder: what no measurement reads; solutions are sent by themselves."""


def pack_piece(
    catalog: Catalog,
    target: str,
    options: MeasureOptions,
    work: Work,
    known: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    """A piece, as it is sent.

    Args:
        catalog: Where the definition lies.
        target: That the other machine must have.
        options: How it measures.
        work: What it does.
        known: Records of this work that are complete, by their whole keys.
    """
    definition = catalog.resolve(work.candidate.definition)
    return {
        "version": __version__,
        "target": target,
        "options": options.model_dump(mode="json"),
        "definition": definition.name,
        "files": _files(catalog.folder(definition), with_solutions=bool(options.baselines)),
        "candidate": work.candidate.model_dump(mode="json"),
        "incumbent": work.incumbent and work.incumbent.model_dump(mode="json"),
        "workloads": [each.model_dump(mode="json") for each in work.workloads],
        "known": dict(known),
    }


def work_on(piece: Mapping[str, Any]) -> Iterator[Message]:
    """Does a piece; ends with one ``result`` or ``error``."""
    found: queue.Queue[Message] = queue.Queue()
    # Processes of kopt end with the thread that started them: it must outlive the piece.
    _worker().submit(_work, piece, found)
    while True:
        message = found.get()
        yield message
        if message["kind"] in ("result", "error"):
            return


@cache
def _worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


class _Sent(DictLedger):
    """Sends every new record."""

    def __init__(self, known: Mapping[str, dict[str, Any]], found: queue.Queue[Message]) -> None:
        super().__init__()
        for key, value in known.items():
            super().put(key, value)
        self._found = found

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keeps it here for the rest of the piece."""
        super().put(key, value)
        self._found.put({"kind": "record", "key": key, "value": value})


def _work(piece: Mapping[str, Any], found: queue.Queue[Message]) -> None:
    try:
        found.put(_swept(piece, found))
    except KoptError as error:
        found.put(_error(type(error).__name__, error.message, error.hint))
    except (OSError, ValueError, RuntimeError, LookupError, TypeError, WorkerFailedError) as error:
        # A defect must reach the one who asked: in this thread nobody would see it.
        found.put(_error("InfraError", f"{type(error).__name__}: {error}", "see the node's log"))


def _swept(piece: Mapping[str, Any], found: queue.Queue[Message]) -> Message:
    if piece["version"] != __version__:
        raise UnavailableError(
            f"this node has kopt {__version__}, the sweep was sent by {piece['version']}",
            hint="install the same version on all nodes",
        )
    catalog = Catalog(Root(_root(piece["definition"], piece["files"]), "shipped"))
    options = MeasureOptions.model_validate(piece["options"])
    setting = Setting.here(catalog, piece["target"], options)
    incumbent = piece["incumbent"]
    candidate = Solution.model_validate(piece["candidate"])
    workloads = [Workload.model_validate(each) for each in piece["workloads"]]
    scope = scope_of(setting)
    ledger = _Sent(piece["known"], found)
    if ledger.get(f"{scope}/node") is None:
        ledger.put(f"{scope}/node", setting.environment)

    def checked(_: Workload, result: WorkloadResult) -> None:
        found.put({"kind": "checked", "value": result.model_dump(mode="json")})

    result = sweep(
        setting,
        candidate,
        None if incumbent is None else Solution.model_validate(incumbent),
        workloads,
        ledger.scoped(scope),
        progress=checked,
    )
    return {"kind": "result", "value": result.model_dump(mode="json")}


def _error(kind: str, message: str, hint: str) -> Message:
    return {"kind": "error", "type": kind, "message": message, "hint": hint}


def _files(folder: Path, *, with_solutions: bool) -> dict[str, str]:
    """Text by path of everything in a definition's folder that a measurement may read."""
    left_out = _LEFT_OUT if with_solutions else _LEFT_OUT | {"solutions"}
    found = {}
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.is_file() and not left_out & set(inner.parts):
            found[inner.as_posix()] = path.read_text()
    return found


def _root(name: str, files: Mapping[str, str]) -> Path:
    """A root with this definition alone; the same folder, with its builds, for the same files.

    Raises:
        UnavailableError: The folder of this user is somebody else's.
    """
    digest = hashlib.sha256(json.dumps([name, files]).encode()).hexdigest()[:16]
    base = Path(tempfile.gettempdir(), f"kopt-nodes-{os.getuid()}")
    base.mkdir(mode=0o700, exist_ok=True)
    owner = base.lstat()
    if owner.st_uid != os.getuid() or owner.st_mode & 0o077 or base.is_symlink():
        raise UnavailableError(
            f"{str(base)!r} is not this user's alone", hint="remove it, or set TMPDIR"
        )
    root = base / digest
    definition = root / "kernels" / name
    for inner, text in files.items():
        path = definition / inner
        if not path.is_file() or path.read_text() != text:
            write_atomic(path, text)
    return root
