"""What a worker does to itself before it loads anything: limits and isolation.

Each function returns what the kernel granted, for the record in every result. Namespaces
for processes and mounts, another uid and Landlock are not applied here yet.
"""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Any

from kopt_harness.sandbox import die_with_parent, in_force

__all__ = ["isolate_candidate", "isolate_judge"]

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWNET = 0x40000000

_MAX_FILE_BYTES = 4 << 30


def isolate_judge(parent_pid: int) -> dict[str, Any]:
    """Dies with the orchestrator, leaves no core, cannot be read by another process."""
    libc = ctypes.CDLL(None, use_errno=True)
    granted = _common(parent_pid)
    granted["non_dumpable"] = libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    return granted


def isolate_candidate(parent_pid: int) -> dict[str, Any]:
    """Dies with the orchestrator, has no network and gains no privileges."""
    if (entered := in_force()) is not None:
        return entered | {"private_home": True, "environment_allow_list": True}
    libc = ctypes.CDLL(None, use_errno=True)
    granted = _common(parent_pid)
    # Orphans of the candidate become its children again, so that they are found and ended.
    granted["reaps_orphans"] = libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    granted["network_namespace"] = libc.unshare(_CLONE_NEWNET) == 0
    granted["ipc_namespace"] = libc.unshare(_CLONE_NEWIPC) == 0
    granted["no_new_privileges"] = libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    return granted


def _common(parent_pid: int) -> dict[str, Any]:
    dies = die_with_parent(parent_pid)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    cap = _MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILE_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (cap, cap))
    return {
        "own_session": os.getsid(0) == os.getpid(),
        "dies_with_parent": dies,
        "no_core_dumps": True,
        "max_file_bytes": cap,
        "private_home": True,
        "environment_allow_list": True,
    }
