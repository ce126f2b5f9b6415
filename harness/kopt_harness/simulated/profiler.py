"""Starts an application on the simulated device and prints how long its kernels took.

``python -P -m kopt_harness.simulated.profiler PROGRAM [ARGUMENT ...]`` ends as the application
does, and prints the table of ``kopt_harness.external.report`` then.
"""

from __future__ import annotations

import csv
import json
import os
import sys

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
    with open(near, encoding="utf-8") as stream:  # noqa: PTH123  a descriptor
        found = [json.loads(line) for line in stream]
    _, status = os.waitpid(child, 0)
    table = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerow((*_COLUMNS, "Metric Value"))
    for number, kernel in enumerate(found):
        grid = f"({kernel['blocks']}, 1, 1)"
        fields = (number, kernel["name"], kernel["stream"], grid, _METRIC, "ns")
        table.writerow((*fields, f"{kernel['ns']:,.0f}"))
    sys.stdout.flush()
    raise SystemExit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
