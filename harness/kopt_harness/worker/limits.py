"""What a worker does to itself before it loads anything: limits and isolation.

Each function returns what the kernel granted, for the record in every result. A candidate
has been put into a sandbox before its module was loaded (``kopt_harness.sandbox``).
"""

from __future__ import annotations

import ctypes
import os
import resource
from typing import Any

from kopt_harness.sandbox import die_with_parent, in_force

__all__ = ["isolate_candidate", "isolate_judge"]

_PR_SET_DUMPABLE = 4

_MAX_FILE_BYTES = 4 << 30


def isolate_judge(parent_pid: int) -> dict[str, Any]:
    """Dies with the orchestrator, leaves no core, cannot be read by another process."""
    libc = ctypes.CDLL(None, use_errno=True)
    granted = _common(parent_pid)
    granted["non_dumpable"] = libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    return granted


def isolate_candidate() -> dict[str, Any]:
    """What the sandbox that this process was started in has granted.

    Raises:
        SystemExit: It was not started in one.
    """
    entered = in_force()
    if entered is None:
        raise SystemExit("a candidate runs in kopt_harness.sandbox only")
    return entered | {"private_home": True, "environment_allow_list": True}


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
