"""Every error that a user can cause, with its exit code and the next step.

KoptError
├── UsageError            bad input: exit 2
│   ├── NotFoundError     a name, file or folder that is not there
│   ├── InvalidInputError a file or value that cannot be read as what it should be
│   └── UnavailableError  a target, tool or package that this machine lacks
├── InfraError            machine, driver, disk, data: exit 3, worth a retry
│   ├── TransientError    a process of kopt's own that was lost: tried again at once
│   └── ProfileError      a profiler that failed, or saw nothing of what was meant
└── InterruptedRunError   stopped by the user, state saved: exit 130
    └── LimitReachedError a campaign has spent what it may

A candidate's fault is never an exception: it is a verdict (``kopt_harness.schema``).
"""

from __future__ import annotations

__all__ = [
    "InfraError",
    "InterruptedRunError",
    "InvalidInputError",
    "KoptError",
    "LimitReachedError",
    "NotFoundError",
    "ProfileError",
    "StoppedError",
    "TransientError",
    "UnavailableError",
    "UsageError",
]


class KoptError(Exception):
    """One clear sentence, and a hint that says what to do next."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(KoptError):
    """The input is wrong; nothing was written."""


class NotFoundError(UsageError):
    """A definition, workload, solution, file or folder that does not exist."""


class InvalidInputError(UsageError):
    """A file or value that exists and cannot be used."""


class UnavailableError(UsageError):
    """A target, toolchain, timer or package that this machine does not have."""


class InfraError(KoptError):
    """The machine failed, not the candidate; the same command may succeed later."""

    exit_code = 3


class TransientError(InfraError):
    """A judge was killed, or a process could not be started; the next one may do."""


class ProfileError(InfraError):
    """A profile without anything in it: the cause, and how to get one."""


class StoppedError(Exception):
    """Of a thread whose work nobody wants any more; it ends there."""


class InterruptedRunError(KoptError):
    """Stopped by a signal after the state was saved."""

    exit_code = 130


class LimitReachedError(InterruptedRunError):
    """Stopped by a limit of cost that the user has set; what was measured is kept."""
