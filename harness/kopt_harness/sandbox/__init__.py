"""The sandbox of processes that run candidate code: ``docs/isolation.md`` says what it holds.

``python -P -m kopt_harness.sandbox POLICY_FD PARENT_PID MODULE [ARGUMENT ...]`` enters it and
runs the module there. Nothing is loaded before that but the standard library.
"""

from __future__ import annotations

from ._enter import die_with_parent, enter, in_force
from ._identity import pick_uid
from ._linux import CLONE, landlock_abi, unshare
from .policy import MECHANISMS, Policy, default_memory_bytes, default_processes, read_policy

__all__ = [
    "CLONE",
    "MECHANISMS",
    "Policy",
    "default_memory_bytes",
    "default_processes",
    "die_with_parent",
    "enter",
    "in_force",
    "landlock_abi",
    "pick_uid",
    "read_policy",
    "unshare",
]
