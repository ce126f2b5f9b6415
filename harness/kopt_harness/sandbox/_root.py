"""A root file system of its own, in which only what the policy grants exists.

An empty file system in memory gets the granted folders as read-only bind mounts at the same
paths, private memory for HOME, /tmp and /dev/shm, a few device files and a /proc of the
process namespace; then it becomes the root and the old one is unmounted. What is not granted
has no name there, whatever its permissions are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from ._linux import mount, pivot_root, set_mount_flags, unmount
from .paths import DEVICES, gpu_devices, inside
from .policy import Policy

__all__ = ["enter_read_only", "enter_root"]

_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_REMOUNT, _BIND, _REC, _PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
_DETACH = 2
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}
_DRIVER = "/proc/driver/nvidia"
_MAX_LINKS = 40


def enter_root(policy: Policy, readable: list[str], *, new_proc: bool) -> dict[str, bool]:
    """Builds the root and makes it this process's; a mount namespace of its own is there.

    Args:
        policy: What is to be there.
        readable: From ``paths.readable_paths``.
        new_proc: Whether this process is in a process namespace whose /proc it may mount.

    Returns:
        What else was granted: ``own_proc``.

    Raises:
        OSError: A step was refused; the old root is still in force.
    """
    mount("none", "/", flags=_REC | _PRIVATE)
    base = os.path.join(policy.home, ".root")  # noqa: PTH118
    os.makedirs(base, exist_ok=True)  # noqa: PTH103
    mount("kopt", base, "tmpfs", _NOSUID | _NODEV, "mode=755,size=4m")
    try:
        root = _Root(base)
        private = _scratch(root, policy)
        own_proc = _proc(root, new=new_proc)
        _devices(root, policy)
        root.bind(private["tmp"], "/tmp", read_only=False)
        root.bind(private["shm"], "/dev/shm", read_only=False)
        # Links last: what they lead to is there by then, as /usr/lib for /lib.
        for path in sorted(readable, key=lambda path: os.path.realpath(path) != path):
            root.add(path, read_only=True)
        for path in policy.writable:
            root.add(path, read_only=False)
        root.bind(private["home"], policy.home, read_only=False)
        _protect(base, _RDONLY | _NOSUID | _NODEV, recursive=False)
        os.chdir(base)
    except OSError:
        unmount(base, _DETACH)
        raise
    _become_root()
    return {"own_proc": own_proc}


def enter_read_only(writable: Sequence[str], *, new_proc: bool) -> dict[str, bool]:
    """Makes every mount read-only but for some folders; a mount namespace of its own is there.

    What Landlock has no rule for is refused by that, too: modes, owners, times and attributes.

    Args:
        writable: Folders that stay as they are.
        new_proc: Whether this process is in a process namespace whose /proc it may mount.

    Returns:
        What else was granted: ``own_proc``.

    Raises:
        OSError: A step was refused.
    """
    mount("none", "/", flags=_REC | _PRIVATE)
    if new_proc:
        try:
            mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
        except OSError:  # parts of /proc are hidden here, as in many containers
            new_proc = False
    for path in writable:
        mount(path, path, flags=_BIND | _REC)
    try:
        _protect("/", _RDONLY, recursive=True)
    finally:
        for path in writable:
            kept = os.statvfs(path).f_flag & (_NOSUID | _NODEV | _NOEXEC)
            mount("none", path, flags=_BIND | _REMOUNT | kept)
    return {"own_proc": new_proc}


class _Root:
    """The new root while it is being built."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._there: list[str] = []

    def inner(self, path: str) -> str:
        """Where a path of the new root is now."""
        return self._base + path

    def add(self, path: str, *, read_only: bool) -> None:
        """Mounts a path at its own place; the links on the way to it are made again."""
        for _ in range(_MAX_LINKS):
            link = self._first_link(path)
            if link is None:
                self.bind(path, path, read_only=read_only)
                return
            target = os.readlink(link)  # noqa: PTH115
            if not os.path.lexists(self.inner(link)):
                self._parents(link)
                with contextlib.suppress(OSError):  # its folder is mounted and has it
                    os.symlink(target, self.inner(link))  # noqa: PTH211
            there = os.path.join(os.path.dirname(link), target)  # noqa: PTH118, PTH120
            path = os.path.normpath(there + path[len(link) :])

    def bind(self, source: str, path: str, *, read_only: bool) -> None:
        """Mounts a folder or file, with what is mounted in it; leaves out what is not there."""
        if not os.path.exists(source):  # noqa: PTH110
            return
        if read_only and any(inside(path, one) for one in self._there):
            return
        target = self.inner(path)
        self._make(source, path)
        try:
            mount(source, target, flags=_BIND | _REC)
        except PermissionError:  # an unreadable source: the process could not use it either
            if os.access(source, os.R_OK):
                raise
            return
        if read_only:
            self._there.append(path)
            _protect(target, _RDONLY | _NOSUID | _NODEV, recursive=True)
        else:
            _protect(target, _NOSUID | _NODEV, recursive=False)

    def device(self, path: str) -> None:
        """A device file, or a folder of them."""
        self._make(path, path)
        mount(path, self.inner(path), flags=_BIND | _REC)

    def _make(self, source: str, path: str) -> None:
        target = self.inner(path)
        if os.path.lexists(target):
            return
        self._parents(path)
        if os.path.isdir(source):  # noqa: PTH112
            os.mkdir(target, 0o755)  # noqa: PTH102
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))

    def _parents(self, path: str) -> None:
        # A mode of their own: the real parents may be closed to another user, as /root is.
        os.makedirs(self.inner(os.path.dirname(path)), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120

    @staticmethod
    def _first_link(path: str) -> str | None:
        """The first symbolic link on the way to a path."""
        at = ""
        for part in path.strip("/").split("/"):
            at += f"/{part}"
            if os.path.islink(at):  # noqa: PTH114
                return at
        return None


def _scratch(root: _Root, policy: Policy) -> dict[str, str]:
    """Folders of one memory file system, so that one size limits them together."""
    # It stays where it is, closed to other users: each unmount costs some ten milliseconds.
    place = root.inner("/.scratch")
    os.mkdir(place, 0o700)  # noqa: PTH102
    size = f",size={policy.scratch_bytes}" if policy.scratch_bytes else ""
    mount("kopt", place, "tmpfs", _NOSUID | _NODEV, f"mode=700,nr_inodes=262144{size}")
    made = {}
    for name, mode in (("home", 0o700), ("tmp", 0o1777), ("shm", 0o1777)):
        made[name] = f"{place}/{name}"
        os.mkdir(made[name])  # noqa: PTH102
        os.chmod(made[name], mode)  # noqa: PTH101
    # The cache folders that the environment names.
    for folder, names, _ in os.walk(policy.home):
        if ".root" in names:
            names.remove(".root")
        here = made["home"] + folder[len(policy.home) :]
        for name in names:
            os.mkdir(f"{here}/{name}", 0o700)  # noqa: PTH102
    return made


def _proc(root: _Root, *, new: bool) -> bool:
    """A /proc of this process namespace, else the one that is there."""
    os.mkdir(root.inner("/proc"), 0o755)  # noqa: PTH102
    if new:
        try:
            mount("proc", root.inner("/proc"), "proc", _NOSUID | _NODEV | _NOEXEC)
        except OSError:  # parts of /proc are hidden here, as in many containers
            new = False
    if not new:
        mount("/proc", root.inner("/proc"), flags=_BIND | _REC)
    elif os.path.isdir(_DRIVER):  # noqa: PTH112
        # As it is here: a container may show the driver settings of its own.
        with contextlib.suppress(OSError):
            mount(_DRIVER, root.inner(_DRIVER), flags=_BIND | _REC)
    return new


def _devices(root: _Root, policy: Policy) -> None:
    os.mkdir(root.inner("/dev"), 0o755)  # noqa: PTH102
    for path in (*DEVICES, *(gpu_devices() if policy.devices else ())):
        if os.path.exists(path):  # noqa: PTH110
            root.device(path)
    for path, target in _LINKS.items():
        os.symlink(target, root.inner(path))  # noqa: PTH211


def _protect(path: str, attributes: int, *, recursive: bool) -> None:
    """Makes a mount read-only, without set-user-id and devices, as far as asked."""
    try:
        set_mount_flags(path, attributes, recursive=recursive)
    except OSError:
        # Before Linux 5.12: one mount at a time, each keeping the flags that it has.
        for target, flags in _mounts(path) if recursive else [(path, 0)]:
            mount("none", target, flags=_BIND | _REMOUNT | flags | attributes)


def _mounts(path: str) -> list[tuple[str, int]]:
    """Mount points at and below a path, and their flags."""
    known = {"ro": _RDONLY, "nosuid": _NOSUID, "nodev": _NODEV, "noexec": _NOEXEC}
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8") as stream:  # noqa: PTH123
        for line in stream:
            fields = line.split()
            if inside(fields[4], path):
                flags = sum(known.get(word, 0) for word in set(fields[5].split(",")))
                found.append((fields[4], flags))
    return found


def _become_root() -> None:
    """The working directory becomes the root; the old root has no name any more."""
    try:
        pivot_root(".", ".")
        unmount(".", _DETACH)
    except OSError:  # the first root of a system cannot be pivoted away from
        mount(".", "/", flags=0x2000)  # MS_MOVE
        os.chroot(".")
    os.chdir("/")
