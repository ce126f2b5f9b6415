"""Who a sandboxed process is: another user, without capabilities and without a way to gain any."""

from __future__ import annotations

import contextlib
import os

from ._linux import clear_capabilities, prctl

__all__ = ["can_use", "drop_capabilities", "pick_uid", "refuse_new_privileges", "set_dumpable"]

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_NO_ROOT = 0xE3
"""The user 0 is like any other, no capability is kept or raised, and that is final."""
_FIRST_UID, _UIDS = 20000, 40000
"""Below 65536, where containers end their range, and above what systems give out."""
_TRIES = 64


def pick_uid() -> int:
    """A user id that no process and no account has, so that its limits are this sandbox's.

    Raises:
        OSError: No such id can be used here.
    """
    if os.geteuid() != 0:
        raise OSError("only root can become another user")
    used = _used_uids()
    for _ in range(_TRIES):
        uid = _FIRST_UID + int.from_bytes(os.urandom(4), "little") % _UIDS
        if uid not in used and _mapped("uid_map", uid) and _mapped("gid_map", uid):
            return uid
    raise OSError("the user ids from 20000 to 59999 are not mapped into this container")


def can_use(uid: int, readable: list[str], folders: list[str]) -> str | None:
    """The first path that a user could not read, or folder that it could not go through.

    The caller is root.
    """
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(uid)
    os.seteuid(uid)
    try:
        closed = [path for path in readable if not _allowed(path, os.R_OK)]
        closed += [path for path in folders if not _allowed(path, os.X_OK)]
        return closed[0] if closed else None
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def drop_capabilities(uid: int | None) -> None:
    """Becomes ``uid`` (None: stays who it is) and gives up every capability for good."""
    capability = 0
    while True:
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:  # past the last one, or not allowed: then there is none to drop
            break
        capability += 1
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    else:
        # Whoever may not set this has no bounding set to empty either.
        with contextlib.suppress(OSError):
            prctl(_PR_SET_SECUREBITS, _NO_ROOT)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    clear_capabilities()


def refuse_new_privileges() -> None:
    """Programs with set-user-id or file capabilities are run without them."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def set_dumpable(*, dumpable: bool) -> None:
    """Whether processes of the same user may trace this one and read its memory."""
    prctl(_PR_SET_DUMPABLE, int(dumpable))


def _allowed(path: str, mode: int) -> bool:
    # Effective ids count for an attempt, real ones for os.access without this argument.
    return os.access(path, mode, effective_ids=True)


def _used_uids() -> set[int]:
    used = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    used.add(entry.stat().st_uid)
                except OSError:
                    continue
    try:
        with open("/etc/passwd", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            used |= {
                int(f[2]) for f in (line.split(":") for line in stream) if f[2:3] and f[2].isdigit()
            }
    except OSError:
        pass
    return used


def _mapped(name: str, number: int) -> bool:
    with open(f"/proc/self/{name}", encoding="ascii") as stream:  # noqa: PTH123
        ranges = [[int(word) for word in line.split()] for line in stream]
    return any(first <= number < first + count for first, _, count in ranges)
