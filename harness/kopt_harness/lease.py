"""One lease per device: who times on it is alone with it.

A lease is a file lock named after the device, in a folder that every user of the machine
shares; the kernel drops it when its process dies, however that happens. It is not
reentrant: taking it twice in one process waits for itself. On the CPU the device is the
machine, so timing excludes other timing there too. Those who wait get it in the order in which
they asked: whoever gives it back and wants it again stands behind them.

A device on which something went wrong that the next user would suffer from is *quarantined*: a
file beside its lock says why, and no lease is given. It ends when the processes named in it are
gone, when somebody lifts it, or with the machine's next boot.

A kopt with workers on a device is listed there as its *user*, with a lease or without: the workers
of a kopt that waits, or checks, keep memory on the device and are no strangers to one that times.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from .atomic import write_atomic
from .errors import InfraError, UsageError
from .turns import SharedLock, acquire_in_turn

__all__ = [
    "CPU_DEVICE",
    "Lease",
    "Quarantine",
    "add_user",
    "device_lease",
    "holder",
    "lift_quarantine",
    "quarantine",
    "quarantined",
    "users",
    "waited_s",
]

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
        InfraError: If the device is quarantined, or another process kept it for the whole time.
    """
    place = _shared_folder() if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    _refuse_quarantined(device, place)
    path = place / f"{_file_name(device)}.lock"
    start = time.monotonic()
    lock = SharedLock(path)
    try:
        with _waiting():
            is_ours = acquire_in_turn(lock, path.with_suffix(".wait"), timeout_s)
    except OSError as error:
        raise InfraError(
            f"the lock of the device {device!r} cannot be used: {error}",
            hint=f"look at {place}: every user must be able to read and make files there",
        ) from error
    if not is_ours:
        pid = holder(device, folder=place)
        by = "another process" if pid is None else f"process {pid}"
        raise InfraError(
            f"the device {device!r} is in use by {by} since more than {timeout_s:g} s",
            hint="wait until it is free, or stop the process that holds it",
        )
    try:
        _refuse_quarantined(device, place)  # by the one who had it until now
        _write_holder(path.with_suffix(".holder"))
        yield Lease(device=device, waited_s=time.monotonic() - start)
    finally:
        lock.release()


def waited_s() -> float:
    """How long this process has waited for devices in all; several at a time add up."""
    return _waited[0]


_waited = [0.0]


@contextlib.contextmanager
def _waiting() -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    finally:
        _waited[0] += time.monotonic() - start


def holder(device: str, *, folder: Path | None = None) -> int | None:
    """Process id that last took the lease, where it is known and still runs."""
    place = _shared_folder() if folder is None else folder
    try:
        pid = json.loads((place / f"{_file_name(device)}.holder").read_text())["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if isinstance(pid, int) and Path(f"/proc/{pid}").exists() else None


def add_user(device: str, *, folder: Path | None = None) -> None:
    """Lists this process as one that has workers on a device, until it ends."""
    place = _shared_folder() if folder is None else folder
    path = place / f"{_file_name(device)}.user-{os.getpid()}"
    if path in _listed:
        return
    place.mkdir(parents=True, exist_ok=True)
    # Without it others measure their blocks again; that harms nobody else.
    with contextlib.suppress(OSError):
        write_atomic(path, json.dumps({"pid": os.getpid(), "began": _began(os.getpid())}))
        path.chmod(0o644)
        atexit.register(path.unlink, missing_ok=True)
        _listed.add(path)


_listed: set[Path] = set()


def users(device: str, *, folder: Path | None = None) -> set[int]:
    """Ids of living processes that are listed as users of a device, each by its own user."""
    place = _shared_folder() if folder is None else folder
    found = set()
    for path in place.glob(f"{_file_name(device)}.user-*"):
        try:
            document: Any = json.loads(path.read_text())
            pid, began = int(document["pid"]), float(document["began"])
            if _began(pid) != began:
                path.unlink()  # its process was killed
            elif psutil.Process(pid).uids().real == path.stat().st_uid:
                found.add(pid)
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            continue
    return found


class Quarantine(NamedTuple):
    """Why a device is out of use."""

    device: str
    reason: str
    processes: tuple[int, ...]
    """It lasts until these are gone; none: until it is lifted."""


def quarantine(
    device: str, reason: str, *, processes: Sequence[int] = (), folder: Path | None = None
) -> None:
    """Takes a device out of use for every process on this machine.

    Args:
        device: GPU UUID, or ``CPU_DEVICE``.
        reason: What went wrong, as a clause.
        processes: What could not be ended; with them gone it ends by itself.
        folder: As for ``device_lease``.
    """
    place = _shared_folder() if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    document = {
        "device": device,
        "reason": reason,
        "processes": [[pid, began] for pid in processes if (began := _began(pid)) is not None],
        "by": os.getpid(),
    }
    path = _quarantine_path(device, place)
    write_atomic(path, json.dumps(document))
    with contextlib.suppress(OSError):
        path.chmod(0o666)


def quarantined(device: str, *, folder: Path | None = None) -> Quarantine | None:
    """Why a device is out of use; None where it is not. Ends a quarantine that is over."""
    place = _shared_folder() if folder is None else folder
    path = _quarantine_path(device, place)
    try:
        document: Any = json.loads(path.read_text())
        named = [(int(pid), float(began)) for pid, began in document["processes"]]
        reason = str(document["reason"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return Quarantine(device, f"its record {path} cannot be read", ())
    left = tuple(pid for pid, began in named if _began(pid) == began)
    if named and not left:
        with contextlib.suppress(UsageError):  # it is over all the same
            lift_quarantine(device, folder=place)
        return None
    return Quarantine(device, reason, left)


def lift_quarantine(device: str, *, folder: Path | None = None) -> bool:
    """Gives a device back to use; whether it was quarantined.

    Raises:
        UsageError: Another user has quarantined it.
    """
    place = _shared_folder() if folder is None else folder
    path = _quarantine_path(device, place)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except PermissionError as error:
        raise UsageError(
            f"the quarantine of the device {device!r} is another user's",
            hint=f"ask the owner of {path} to lift it, or do it as root",
        ) from error
    return True


def _refuse_quarantined(device: str, place: Path) -> None:
    found = quarantined(device, folder=place)
    if found is None:
        return
    lift = f"kopt doctor --lift-quarantine {device}"
    hint = f"reset the device or restart the machine, then: {lift}"
    if found.processes:
        named = ", ".join(map(str, found.processes))
        hint = f"it ends by itself when process {named} is gone; else: {lift}"
    raise InfraError(f"the device {device!r} is out of use: {found.reason}", hint=hint)


def _quarantine_path(device: str, place: Path) -> Path:
    return place / f"{_file_name(device)}.quarantine"


def _began(pid: int) -> float | None:
    """When a process started, which tells it from a later one with its number."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


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
