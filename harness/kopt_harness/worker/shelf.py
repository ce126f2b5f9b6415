"""Input sets and their expected outputs on disk, for later sweeps; the judge's own.

Computing expected outputs takes most of a sweep's time. So a judge may lay sets on a *shelf*: a
folder below ``artifacts/``, which no sandbox shows to candidates and which other users cannot
read. Orchestrators pass on its name and read nothing in it.

A set lies under (definition, reference and generators by content, PyTorch, device; pool; workload;
generator; number). One that comes off the shelf was in a call before, so it counts as used and is
varied before every call, like every set that is used again; a definition without ``vary`` has no
shelf, nor has one with inputs that all sets share. A pool is thrown away after ``MAX_AGE_S``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kopt_harness.schema import Definition

__all__ = ["MAX_AGE_S", "MAX_BYTES", "Shelf", "ShelvedSet"]

MAX_AGE_S = 7 * 24 * 3600.0
"""Of a pool."""
MAX_BYTES = 16 << 30
"""Of all pools together; beyond that nothing is added."""
_FREE_BYTES = 4 << 30
"""Of the disk, which stay free."""
_MAX_SET_BYTES = 2 << 30
_ALIGN = 64
_MAGIC = b"kopt-set-1\n"
_POOL = "pool.json"


class ShelvedSet(NamedTuple):
    """One set as it was when it was drawn."""

    values: dict[str, Any]
    expected: dict[str, Any]


class Shelf:
    """The pool of one definition, as its files and this PyTorch make it."""

    def __init__(self, folder: Path, definition: Definition, sources: Path, device: str) -> None:
        """Opens it, and throws away pools that are too old or of another reference.

        Args:
            folder: Of all definitions.
            definition: Whose sets these are.
            sources: Its folder, with ``reference.py`` and ``inputs.py``.
            device: PyTorch's name of it.
        """
        self._device = device
        self._all = folder
        home = folder / definition.name
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        wanted = _content(definition, sources, device)
        for other in home.iterdir():
            if other.name != wanted or not _is_young(other / _POOL):
                shutil.rmtree(other, ignore_errors=True)
        self._pool = home / wanted
        self._pool.mkdir(exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError), (self._pool / _POOL).open("x") as file:
            json.dump({"created": time.time()}, file)
        self._bytes = sum(path.stat().st_size for path in _files(folder))

    def take(self, uuid: str, generator: str, number: int) -> ShelvedSet | None:
        """A set, in memory of its own; None where there is none, or it is damaged."""
        path = self._path(uuid, generator, number)
        try:
            with path.open("rb") as file:
                data = bytearray(os.fstat(file.fileno()).st_size)
                file.readinto(data)
        except OSError:
            return None
        found = _parse(data, self._device)
        if found is None:
            with contextlib.suppress(OSError):
                path.unlink()
        return found

    def lay(self, uuid: str, generator: str, number: int, chosen: ShelvedSet) -> bool:
        """Keeps a set that was in no call yet; whether it is there now.

        The first who lays one wins; that of another stays his own and unused by others.
        """
        data = _serialise(chosen)
        size = sum(map(len, data))
        if size > _MAX_SET_BYTES or self._bytes + size > MAX_BYTES or not self._has_room(size):
            return False
        path = self._path(uuid, generator, number)
        temporary: Path | None = None
        try:
            path.parent.mkdir(exist_ok=True, mode=0o700)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
            temporary = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                for part in data:
                    file.write(part)
            os.link(temporary, path)
        except OSError:
            return False  # a full disk, or another judge was first: nothing depends on it
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
        self._bytes += size
        return True

    def _path(self, uuid: str, generator: str, number: int) -> Path:
        name = hashlib.sha256(json.dumps([uuid, generator]).encode()).hexdigest()[:32]
        return self._pool / name / f"{number}.set"

    def _has_room(self, size: int) -> bool:
        return shutil.disk_usage(self._all).free - size > _FREE_BYTES


def _content(definition: Definition, sources: Path, device: str) -> str:
    """What expected outputs depend on."""
    import torch

    digest = hashlib.sha256()
    parts = [definition.model_dump_json().encode(), torch.__version__.encode(), device.encode()]
    parts += [(sources / name).read_bytes() for name in ("reference.py", "inputs.py")]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


def _is_young(path: Path) -> bool:
    """Whether a pool may be used; a clock that was set back does not keep one for ever."""
    try:
        created = float(json.loads(path.read_text())["created"])
    except FileNotFoundError:
        return True  # another judge is just making it
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return -MAX_AGE_S < time.time() - created < MAX_AGE_S


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.set") if path.is_file()]


def _serialise(chosen: ShelvedSet) -> list[bytes]:
    """Header, checksum and bytes; numbers and absent tensors stand in the header."""
    import torch

    parts: list[bytes] = []
    offset = 0
    header: dict[str, Any] = {}
    for role, entries in (("values", chosen.values), ("expected", chosen.expected)):
        header[role] = {}
        for name, value in entries.items():
            if not isinstance(value, torch.Tensor):
                header[role][name] = {"value": value}
                continue
            plain = value.detach().cpu().contiguous()
            data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
            padded = data + b"\0" * (-len(data) % _ALIGN)
            header[role][name] = {
                "dtype": str(plain.dtype).removeprefix("torch."),
                "shape": list(plain.shape),
                "offset": offset,
            }
            parts.append(padded)
            offset += len(padded)
    header["size"], header["crc"] = offset, _checksum(parts)
    head = _MAGIC + json.dumps(header).encode()
    return [head + b" " * (-(len(head) + 1) % _ALIGN) + b"\n", *parts]


def _parse(data: bytearray, device: str) -> ShelvedSet | None:
    if not data.startswith(_MAGIC):
        return None
    end = data.find(b"\n", len(_MAGIC)) + 1
    try:
        header = json.loads(data[len(_MAGIC) : end])
        body = memoryview(data)[end:]
        if len(body) != header["size"] or _checksum([body]) != header["crc"]:
            return None
        values, expected = (
            {name: _value(each, body, device) for name, each in header[role].items()}
            for role in ("values", "expected")
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return ShelvedSet(values, expected)


def _value(entry: Mapping[str, Any], body: memoryview, device: str) -> Any:
    import torch

    if "value" in entry:
        return entry["value"]
    dtype = getattr(torch, entry["dtype"])
    shape = entry["shape"]
    count = 1
    for extent in shape:
        count *= extent
    if count == 0:
        return torch.empty(shape, dtype=dtype, device=device)
    flat = torch.frombuffer(body, dtype=dtype, count=count, offset=entry["offset"])
    return flat.view(shape).to(device)


def _checksum(parts: list[Any]) -> int:
    """Against a bad disk; who can write here can do anything."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc
