"""The rules: a name, what a finding means for the verdict, and why. The patterns stand beside.

``info`` is shown and changes nothing. ``flag`` bars a promotion until a person has looked.
``reject`` ends the evaluation before anything is built: only what no kernel can need.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["RULES", "Level", "Rule"]

Level = Literal["info", "flag", "reject"]


class Rule(NamedTuple):
    """What one kind of finding means."""

    level: Level
    why: str
    """A clause that follows the place."""


_REJECT = {
    "clock-hook": "replaces a clock, so that no time of this process means anything",
    "harness-frames": "walks from the caller's frames into the judge's own objects",
    "process-memory": "reads or writes the memory of processes from outside the language",
    "worker-channel": "writes to the channel on which the worker answers the judge",
}

_FLAG = {
    "call-count": "counts its calls and compares the number, so phases could be told apart",
    "collector": "searches all objects of the process, or steers the garbage collector",
    "dead-kernel": "is a kernel that the entry function never reaches",
    "descriptors": "opens or copies file descriptors that it was not given",
    "dynamic-code": "makes code at run time that nobody has read",
    "dynamic-library": "looks up functions of libraries by name at run time",
    "encoded-data": "decodes data, which could be code or a binary",
    "environment": "reads or changes the environment or the command line",
    "files": "changes files",
    "frames": "looks into the frames or the functions of its caller",
    "global-state": "changes settings of the whole process",
    "harness": "names the judge's own package",
    "hidden-name": "puts the name of a module's attribute together at run time",
    "host-callback": "lets the device call back into the host after the call",
    "lazy-output": "makes a tensor that can compute when it is looked at",
    "library-call": "calls a library that does the whole operator",
    "memory-scan": "looks for device memory that it was not given",
    "module-table": "reads or changes the table of loaded modules",
    "native-memory": "reaches memory or functions through a foreign function interface",
    "network": "opens network connections",
    "pasted-name": "pastes the name of a function together in a macro",
    "patch": "replaces an attribute of a module that is not its own",
    "persisting-cache": "keeps data in the cache across calls and flushes",
    "pickle": "serialises objects, which runs code where they are read",
    "proc-files": "reads the system's description of processes or devices",
    "profiler": "uses or looks for a profiler",
    "python-api": "runs Python or changes Python objects from native code",
    "reference": "reads the reference or the input generator",
    "subprocess": "starts processes",
    "syscall": "calls the kernel directly, or changes how it treats this process",
    "thread": "starts work that is not joined before the call returns",
    "unjoined-stream": "creates a stream and never makes another one wait for it",
    "unread": "is too long to be read here",
}

_INFO = {
    "pointer-key": "looks something up by an address; right only if it does not keep results",
}

RULES: dict[str, Rule] = {
    **{name: Rule("reject", why) for name, why in _REJECT.items()},
    **{name: Rule("flag", why) for name, why in _FLAG.items()},
    **{name: Rule("info", why) for name, why in _INFO.items()},
}
"""By name."""
