"""One lease per device: who times on it is alone with it.

A lease is a file lock named after the device, in a folder that every user of the machine
shares; the kernel drops it when its process dies, however that happens. It is not
reentrant: taking it twice in one process waits for itself. On the CPU the device is the
machine, so timing excludes other timing there too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock
from filelock import Timeout as LockTimeout

from .errors import InfraError

__all__ = ["CPU_DEVICE", "Lease", "device_lease", "holder"]

CPU_DEVICE = "cpu"
"""Device id of the ``cpu`` target."""


class Lease(NamedTuple):
    """A device held by this process."""

    device: str
    """GPU UUID, or ``cpu``."""
    waited_s: float
    """How long it took to get it."""


@contextmanager
def device_lease(
    device: str, *, timeout_s: float = 600.0, folder: Path | None = None
) -> Iterator[Lease]:
    """Holds a device for the time of the block.

    Args:
        device: GPU UUID, or ``CPU_DEVICE``.
        timeout_s: How long to wait for another holder.
        folder: Where the locks are; the machine's shared folder by default.

    Raises:
        InfraError: If another process kept the device for the whole time.
    """
    place = _shared_folder() if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{_file_name(device)}.lock"
    start = time.monotonic()
    # Another user's process must be able to open the file: mode 0666, whatever the umask is.
    lock = FileLock(path, mode=0o666)
    try:
        lock.acquire(timeout=timeout_s, poll_interval=0.02)
    except LockTimeout as error:
        pid = holder(device, folder=place)
        by = "another process" if pid is None else f"process {pid}"
        raise InfraError(
            f"the device {device!r} is in use by {by} since more than {timeout_s:g} s",
            hint="wait until it is free, or stop the process that holds it",
        ) from error
    try:
        _write_holder(path.with_suffix(".holder"))
        yield Lease(device=device, waited_s=time.monotonic() - start)
    finally:
        lock.release()


def holder(device: str, *, folder: Path | None = None) -> int | None:
    """Process id that last took the lease, where it is known and still runs."""
    place = _shared_folder() if folder is None else folder
    try:
        pid = json.loads((place / f"{_file_name(device)}.holder").read_text())["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if isinstance(pid, int) and Path(f"/proc/{pid}").exists() else None


def _write_holder(path: Path) -> None:
    """For the message of those who wait; that it cannot be written harms nobody."""
    with contextlib.suppress(OSError):
        path.write_text(json.dumps({"pid": os.getpid()}))
        path.chmod(0o666)


def _shared_folder() -> Path:
    """In memory where there is such a folder: it is shared by all users and empty after a boot."""
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    folder = base / "kopt-leases"
    if not folder.exists():
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)
    return folder


def _file_name(device: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", device)
