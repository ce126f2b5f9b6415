"""Enters a sandbox and runs a module in it, as ``python -m`` would."""

from __future__ import annotations

import runpy
import sys

from ._enter import enter
from .policy import read_policy


def main() -> None:
    """See the package's docstring for the arguments."""
    policy_fd, parent_pid, module = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    enter(read_policy(policy_fd), parent_pid)
    sys.argv = sys.argv[3:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
