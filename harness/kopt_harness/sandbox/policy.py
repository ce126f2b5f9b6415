"""What a sandboxed process may use. Written by the orchestrator, read before anything else."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

__all__ = ["MECHANISMS", "Policy", "default_memory_bytes", "default_processes", "read_policy"]

MECHANISMS = (
    "user_namespace",
    "pid_namespace",
    "mount_namespace",
    "network_namespace",
    "ipc_namespace",
    "uts_namespace",
    "other_uid",
    "no_capabilities",
    "no_new_privileges",
    "landlock",
)
"""What can be left out with ``Policy.without``."""

_MAX_POLICY_BYTES = 1 << 20


class Policy(NamedTuple):
    """Paths are absolute; a limit of 0 is no limit."""

    home: str
    """Folder of the process alone: HOME, temporary files, caches. Where mounts are granted it is
    replaced by memory of ``scratch_bytes`` and what is written there is gone at the end."""
    folder: str = ""
    """Working directory; HOME where it is empty."""
    readable: tuple[str, ...] = ()
    """What it needs beside the system, the interpreter and ``search``, even below ``protected``."""
    writable: tuple[str, ...] = ()
    """Existing folders whose contents stay."""
    uid: int = 0
    """User that it becomes where it may become another one; 0: one that nobody else is."""
    search: tuple[str, ...] = ()
    """From variables as PATH: readable as far as they are not protected."""
    protected: tuple[str, ...] = ()
    """Never granted by a wider path that contains them."""
    fds: tuple[int, ...] = ()
    """Descriptors that it keeps, beside the three standard ones."""
    shared_fd: int = -1
    """Of ``fds``: memory that it shares with the judge and is not charged for."""
    status_fd: int = -1
    """Pipe to the orchestrator; the sandboxed process itself never has it."""
    devices: bool = True
    """Whether GPUs are there."""
    memory_bytes: int = 0
    """Of all its processes together."""
    machine_floor_bytes: int = 0
    """It is ended where it is large and the machine has less than this left."""
    processes: int = 0
    """Processes and threads together."""
    file_bytes: int = 0
    """Largest file."""
    scratch_bytes: int = 0
    """HOME, /tmp and /dev/shm together, where they are private memory."""
    disk_floor_bytes: int = 0
    """It is ended where a writable folder's file system has less than this left."""
    open_files: int = 0
    cpu_s: int = 0
    """Processor time of one process."""
    log_bytes: int = 0
    """Size of the log that standard output goes to, of which the end is kept; 0 leaves standard
    output as it is."""
    title: str = "sandbox"
    """What its guard processes are called in a process list."""
    without: tuple[str, ...] = ()
    """Mechanisms that are not tried. For tests: nothing in kopt sets it."""

    def to_file(self) -> int:
        """Descriptor of an anonymous file for ``read_policy``; the caller closes it."""
        fd = os.memfd_create("kopt-policy", os.MFD_CLOEXEC)
        os.write(fd, json.dumps(self._asdict()).encode())
        os.lseek(fd, 0, os.SEEK_SET)
        return fd


def read_policy(fd: int) -> Policy:
    """What ``Policy.to_file`` has written; closes the descriptor."""
    data = os.pread(fd, _MAX_POLICY_BYTES, 0)
    os.close(fd)
    fields: dict[str, Any] = json.loads(data)
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return Policy(**values)


def default_memory_bytes() -> int:
    """Seven tenths of the memory of this machine or container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(name, encoding="ascii") as stream:  # noqa: PTH123  pathlib is slow to import
                total = min(total, int(stream.read()))
        except (OSError, ValueError):
            continue
    return total * 7 // 10


def default_processes() -> int:
    """Enough for a thread pool a processor, several times over."""
    return max(1024, 16 * (os.cpu_count() or 1))
