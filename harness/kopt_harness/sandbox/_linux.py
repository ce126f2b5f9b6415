"""The system calls of Linux that Python has no function for.

Each raises ``OSError`` with the kernel's error number. Numbers of system calls that libc has
no name for are the same on x86-64 and AArch64, but for ``pivot_root``.
"""

from __future__ import annotations

import ctypes
import os
import struct

__all__ = [
    "CLONE",
    "clear_capabilities",
    "landlock_abi",
    "landlock_add_path",
    "landlock_create",
    "landlock_restrict_self",
    "mount",
    "pivot_root",
    "prctl",
    "set_mount_flags",
    "unmount",
    "unshare",
]

CLONE = {
    "user": 0x10000000,
    "pid": 0x20000000,
    "network": 0x40000000,
    "mount": 0x00020000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
}
"""Flags of ``unshare(2)``, by what they separate."""

_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_MOUNT_SETATTR = 442
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _syscall(number: int, *arguments: object) -> int:
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments))


def prctl(option: int, *arguments: int) -> int:
    """``prctl(2)``; missing arguments are 0."""
    words = [*arguments, 0, 0, 0, 0][:4]
    return _checked(_libc.prctl(option, *(ctypes.c_ulong(word) for word in words)))


def unshare(flags: int) -> None:
    """``unshare(2)``."""
    _checked(_libc.unshare(flags))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """``mount(2)``; an empty ``kind`` or ``options`` is a null pointer."""
    _checked(
        _libc.mount(
            source.encode(),
            target.encode(),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            options.encode() or None,
        )
    )


def unmount(target: str, flags: int) -> None:
    """``umount2(2)``."""
    _checked(_libc.umount2(target.encode(), flags))


def pivot_root(new_root: str, put_old: str) -> None:
    """``pivot_root(2)``."""
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"pivot_root on {os.uname().machine}")
    _syscall(number, new_root.encode(), put_old.encode())


def set_mount_flags(path: str, attributes: int, *, recursive: bool) -> None:
    """``mount_setattr(2)`` of Linux 5.12: sets attributes, here and in what is mounted below."""
    data = struct.pack("=4Q", attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    _syscall(
        _SYS_MOUNT_SETATTR,
        ctypes.c_int(_AT_FDCWD),
        path.encode(),
        ctypes.c_uint(flags),
        data,
        ctypes.c_size_t(len(data)),
    )


def clear_capabilities() -> None:
    """Gives up effective, permitted and inheritable capabilities."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, bytes(24)))


def landlock_abi() -> int | None:
    """Version of the kernel's Landlock interface; None where there is none."""
    try:
        return _syscall(
            _SYS_LANDLOCK_CREATE_RULESET,
            None,
            ctypes.c_size_t(0),
            ctypes.c_uint(_LANDLOCK_CREATE_RULESET_VERSION),
        )
    except OSError:
        return None


def landlock_create(files: int, network: int, scopes: int, abi: int) -> int:
    """A rule set that handles these accesses; returns its descriptor."""
    words = [files, network, scopes][: 1 if abi < 4 else 2 if abi < 6 else 3]
    data = struct.pack(f"={len(words)}Q", *words)
    return _syscall(
        _SYS_LANDLOCK_CREATE_RULESET, data, ctypes.c_size_t(len(data)), ctypes.c_uint(0)
    )


def landlock_add_path(ruleset: int, path_fd: int, access: int) -> None:
    """Grants accesses at and below an open path."""
    data = struct.pack("=Qi", access, path_fd)
    _syscall(
        _SYS_LANDLOCK_ADD_RULE,
        ctypes.c_int(ruleset),
        ctypes.c_int(_LANDLOCK_RULE_PATH_BENEATH),
        data,
        ctypes.c_uint(0),
    )


def landlock_restrict_self(ruleset: int) -> None:
    """From here on this thread, and what it starts, has only what the rules grant."""
    _syscall(_SYS_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
