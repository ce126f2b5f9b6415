"""Starts an application on the simulated device and prints how long its kernels took.

``python -P -m kopt_harness.simulated.profiler PROGRAM [ARGUMENT ...]`` ends as the application
does, and prints the table of ``kopt_harness.external.report`` then. As ncu seems to, it takes an
application that was stopped and goes on for one that has failed.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from kopt_harness.environ import SIMULATED_COUNTERS

__all__ = ["main"]

_COLUMNS = ("ID", "Kernel Name", "Stream", "Grid Size", "Metric Name", "Metric Unit")
_METRIC = "gpu__time_duration.sum"


def main() -> None:
    """See the module's docstring for the arguments."""
    program = sys.argv[1:]
    near, far = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(near)
        os.set_inheritable(far, True)
        os.execve(program[0], program, os.environ | {SIMULATED_COUNTERS: str(far)})
    os.close(far)
    with ThreadPoolExecutor(max_workers=1) as waiting:
        ended = waiting.submit(_code_of, child)
        with open(near, encoding="utf-8") as stream:  # noqa: PTH123  a descriptor
            found = [json.loads(line) for line in stream]
    code = ended.result()
    if code:
        print(f"==ERROR== The application returned an error code ({code}).")  # noqa: T201
    table = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerow((*_COLUMNS, "Metric Value"))
    for number, kernel in enumerate(found):
        grid = f"({kernel['blocks']}, 1, 1)"
        fields = (number, kernel["name"], kernel["stream"], grid, _METRIC, "ns")
        table.writerow((*fields, f"{kernel['ns']:,.0f}"))
    sys.stdout.flush()
    raise SystemExit(code)


def _code_of(child: int) -> int:
    """What the process has ended with, or the signal that made it go on."""
    code = 0
    while (event := os.waitid(os.P_PID, child, os.WEXITED | os.WCONTINUED)) is not None:
        code = code or event.si_status
        if event.si_code != os.CLD_CONTINUED:
            break
    return code


if __name__ == "__main__":
    main()
