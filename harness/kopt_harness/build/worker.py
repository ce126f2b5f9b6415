"""The builder process: ``python -P -m kopt_harness.build.worker ANSWER_FD PARENT_PID``.

It holds toolchains and, for languages that compile by running, the candidate's code; never a
GPU. It knows one staging folder, and not the cache.
"""

from __future__ import annotations

import os
import sys
import traceback

from kopt_harness.errors import KoptError
from kopt_harness.sandbox import die_with_parent, in_force

from ._process import Answer, Failure
from ._registry import get_builder
from .protocol import Job, Outcome

__all__ = ["main"]


def main() -> None:
    """Read a job from standard input, do it, answer."""
    descriptor = int(sys.argv[1])
    if in_force() is None:
        die_with_parent(int(sys.argv[2]))
    os.set_inheritable(descriptor, False)
    answer = _answer(Job.model_validate_json(sys.stdin.buffer.read()))
    data = answer.model_dump_json().encode()
    while data:
        data = data[os.write(descriptor, data) :]


def _answer(job: Job) -> Answer:
    builder = get_builder(job.request.solution.spec.language)
    try:
        outcome = builder.compile(job)
    except KoptError as error:
        kind = type(error).__name__
        return Answer(failure=Failure(kind=kind, message=error.message, hint=error.hint))
    except Exception:  # noqa: BLE001  # the worker border: the candidate's code may raise anything
        return Answer(outcome=Outcome(ok=False, log=traceback.format_exc()))
    return Answer(outcome=outcome)


if __name__ == "__main__":
    main()
