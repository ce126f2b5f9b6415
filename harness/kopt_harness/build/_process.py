"""Starting a builder process and reading its answer.

The request goes in on standard input, the answer comes back in a file that only the two
processes share; standard output and error are the log, and are never parsed.

Covered: the builder sees an environment from an allow-list and no GPU, knows one staging
folder and not the cache, and is ended with its descendants. Not covered here: it can write
wherever its user can.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import IO

from pydantic import ValidationError

from kopt_harness import errors
from kopt_harness.environ import worker_environment
from kopt_harness.proc import Completed, run
from kopt_harness.schema import Model

from ._store import Staging
from .protocol import BuildRequest, Job, Outcome, Plan

__all__ = ["Answer", "Failure", "Ran", "run_builder_process"]

_ANSWER_BYTES = 16 << 20
_COMMAND = (sys.executable, "-P", "-m", "kopt_harness.build.worker")
_LOG_BYTES = 256 << 10


class Failure(Model):
    """A ``KoptError`` that crosses the border."""

    kind: str
    """Class name in ``kopt_harness.errors``."""
    message: str
    hint: str


class Answer(Model):
    """What a builder process says; one of the two is set."""

    outcome: Outcome | None = None
    failure: Failure | None = None


class Ran(Model):
    """A builder process that has ended."""

    outcome: Outcome
    seconds: float
    timed_out: bool = False


def run_builder_process(
    request: BuildRequest, plan: Plan, staging: Staging, *, timeout_s: float
) -> Ran:
    """Build in a process of its own, which is ended with all its descendants.

    Raises:
        KoptError: What the builder raised, as the missing of a toolchain.
    """
    job = Job(request=request, plan=plan, folder=staging.build, timeout_s=timeout_s)
    environment = worker_environment(staging.home) | plan.environment
    environment["CUDA_VISIBLE_DEVICES"] = ""  # a builder never holds the GPU
    with tempfile.TemporaryFile() as answers:
        done = run(
            [*_COMMAND, str(answers.fileno()), str(os.getpid())],
            timeout_s=timeout_s,
            cwd=staging.build,
            env=environment,
            max_output_bytes=_LOG_BYTES,
            stdin=job.model_dump_json().encode(),
            pass_fds=(answers.fileno(),),
            merge=True,
        )
        answer = None if done.timed_out else _read(answers)
    if answer is None:
        return Ran(outcome=_silent(done), seconds=done.seconds, timed_out=done.timed_out)
    if answer.failure is not None:
        raise _error(answer.failure)
    assert answer.outcome is not None, "a builder process answers with an outcome or a failure"
    log = "\n".join(part for part in (answer.outcome.log.strip(), done.stdout.strip()) if part)
    return Ran(outcome=answer.outcome.model_copy(update={"log": log}), seconds=done.seconds)


def _read(answers: IO[bytes]) -> Answer | None:
    """The answer, or None where the process wrote none that can be read."""
    data = os.pread(answers.fileno(), _ANSWER_BYTES, 0)
    try:
        answer = Answer.model_validate_json(data)
    except ValidationError:
        return None
    return answer if (answer.outcome is None) != (answer.failure is None) else None


def _silent(done: Completed) -> Outcome:
    """The outcome of a process that ended, or was ended, before it answered."""
    if done.timed_out:
        why = f"ended after {done.seconds:.0f} s: the time limit of the build"
    elif done.returncode < 0:
        why = f"the builder process was killed by signal {-done.returncode}"
    else:
        why = f"the builder process ended with exit code {done.returncode} and no answer"
    return Outcome(ok=False, log=f"{done.stdout.rstrip()}\n{why}".lstrip())


def _error(failure: Failure) -> errors.KoptError:
    kind = getattr(errors, failure.kind, errors.InfraError)
    assert issubclass(kind, errors.KoptError), failure.kind
    return kind(failure.message, hint=failure.hint)
