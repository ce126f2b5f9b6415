"""Between the sandbox and an observed candidate: becomes the profiler that starts it.

Run by ``kopt_harness.sandbox``, with the arguments PARENT_PID CHANNEL_FD ARENA_FD REPORT_FD
PROFILER. What the profiler prints goes to the report; the candidate keeps the log.
"""

from __future__ import annotations

import json
import os
import sys

from kopt_harness.external import get_external

from .limits import isolate_candidate

__all__ = ["main"]


def main() -> None:
    """Replaces this process."""
    channel, arena, report, name = sys.argv[2:6]
    granted = json.dumps(isolate_candidate())
    module = "kopt_harness.worker.observed"
    application = [sys.executable, "-P", "-m", module, channel, arena, name, granted]
    command = get_external(name).command(application)
    os.dup2(int(report), 1)
    os.close(int(report))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
