"""Starting a builder process and reading its answer.

The request goes in on standard input, the answer comes back in a file that only the two
processes share; standard output and error are the log, and are never parsed.

Covered: the builder sees an environment from an allow-list and no GPU, runs in a sandbox where
it can write to one staging folder, has a memory limit, and is ended with its descendants. What
it has left in the folder is made plain before anybody reads it: files and folders of our own.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from pydantic import ValidationError

from kopt_harness import errors
from kopt_harness.environ import worker_environment
from kopt_harness.proc import Completed, read_status, run
from kopt_harness.sandbox import Policy, default_memory_bytes, default_processes
from kopt_harness.sandbox.launch import command, protected_paths, search_paths, shield
from kopt_harness.schema import Model

from ._store import Staging
from .protocol import BuildRequest, Job, Outcome, Plan

__all__ = ["Answer", "Failure", "Ran", "run_builder_process"]

_ANSWER_BYTES = 16 << 20
_MODULE = "kopt_harness.build.worker"
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
    request: BuildRequest,
    plan: Plan,
    staging: Staging,
    *,
    timeout_s: float,
    limits: Mapping[str, Any] | None = None,
) -> Ran:
    """Build in a process of its own, which is ended with all its descendants.

    Args:
        request: What to build.
        plan: From the same builder.
        staging: Where; its sources are there.
        timeout_s: Wall-clock limit.
        limits: Fields of the sandbox's policy that differ from the default.

    Raises:
        KoptError: What the builder raised, as the missing of a toolchain.
    """
    job = Job(request=request, plan=plan, folder=staging.build, timeout_s=timeout_s)
    environment = worker_environment(staging.home) | plan.environment
    environment["CUDA_VISIBLE_DEVICES"] = ""  # a builder never holds the GPU
    with tempfile.TemporaryFile() as answers:
        fields = _limits(timeout_s) | dict(limits or {})
        policy = _policy(staging, environment, answers.fileno(), fields)
        ran = _run(job, policy, environment)
        _make_plain(staging.build)
        done = ran.done
        answer = None if done.timed_out or ran.limit else _read(answers)
    if answer is None:
        outcome = _silent(done, ran.limit)
        return Ran(outcome=outcome, seconds=done.seconds, timed_out=done.timed_out)
    if answer.failure is not None:
        raise _error(answer.failure)
    assert answer.outcome is not None, "a builder process answers with an outcome or a failure"
    log = "\n".join(part for part in (answer.outcome.log.strip(), done.stdout.strip()) if part)
    return Ran(outcome=answer.outcome.model_copy(update={"log": log}), seconds=done.seconds)


class _Sandboxed(NamedTuple):
    done: Completed
    limit: str
    """A sentence about the limit for which it was ended; else empty."""


def _run(job: Job, policy: Policy, environment: Mapping[str, str]) -> _Sandboxed:
    """The builder process in its sandbox, to its end."""
    shield()
    status, status_fd = os.pipe()
    policy_fd = policy._replace(status_fd=status_fd).to_file()
    try:
        done = run(
            command(policy_fd, _MODULE, *policy.fds, os.getpid()),
            timeout_s=job.timeout_s,
            cwd=job.folder,
            env=environment,
            max_output_bytes=_LOG_BYTES,
            stdin=job.model_dump_json().encode(),
            pass_fds=(*policy.fds, status_fd, policy_fd),
            merge=True,
            ask_first=True,
        )
        ended = read_status(status)
    finally:
        for fd in (status, status_fd, policy_fd):
            os.close(fd)
    return _Sandboxed(done, str(ended.get("detail", "")) if "limit" in ended else "")


def _policy(
    staging: Staging,
    environment: Mapping[str, str],
    answer_fd: int,
    limits: Mapping[str, Any],
) -> Policy:
    return Policy(
        home=str(staging.home),
        folder=str(staging.build),
        writable=(str(staging.build),),
        search=search_paths(environment),
        protected=protected_paths(),
        fds=(answer_fd,),
        devices=False,
        title="builder",
        **limits,
    )


def _limits(timeout_s: float) -> dict[str, int]:
    return {
        "memory_bytes": default_memory_bytes(),
        "machine_floor_bytes": 1 << 30,
        "processes": default_processes(),
        "file_bytes": 2 << 30,
        "scratch_bytes": 4 << 30,
        "disk_floor_bytes": 1 << 30,
        "open_files": 4096,
        "cpu_s": int(timeout_s + 1) * (os.cpu_count() or 1),
    }


def _make_plain(folder: Path) -> None:
    """Files and folders of this user, that all can read, and nothing else; nobody writes there.

    Candidate code may have run in the builder: a link would lead whoever publishes or reads the
    build to another file.
    """
    for top, names, files, fd in os.fwalk(folder, topdown=True, follow_symlinks=False):
        del top
        os.fchown(fd, os.geteuid(), os.getegid())
        os.fchmod(fd, 0o755)
        for name in (*names, *files):
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                os.chown(name, os.geteuid(), os.getegid(), dir_fd=fd, follow_symlinks=False)
                os.chmod(name, 0o755 if mode & stat.S_IXUSR else 0o644, dir_fd=fd)
            elif stat.S_ISDIR(mode):
                os.chmod(name, 0o755, dir_fd=fd)  # or it could not be gone through
            else:
                os.unlink(name, dir_fd=fd)


def _read(answers: IO[bytes]) -> Answer | None:
    """The answer, or None where the process wrote none that can be read."""
    data = os.pread(answers.fileno(), _ANSWER_BYTES, 0)
    try:
        answer = Answer.model_validate_json(data)
    except ValidationError:
        return None
    return answer if (answer.outcome is None) != (answer.failure is None) else None


def _silent(done: Completed, limit: str) -> Outcome:
    """The outcome of a process that ended, or was ended, before it answered."""
    if limit:
        why = f"error: the builder process was ended: {limit}"
    elif done.timed_out:
        why = f"ended after {done.seconds:.0f} s: the time limit of the build"
    elif done.returncode < 0:
        why = f"the builder process was killed by signal {-done.returncode}"
    else:
        why = f"the builder process ended with exit code {done.returncode} and no answer"
    return Outcome(ok=False, log=f"{done.stdout.rstrip()}\n{why}".lstrip())


def _error(failure: Failure) -> errors.KoptError:
    """The error of that name; the candidate's code may have written any."""
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.KoptError)):
        kind = errors.InfraError
    return kind(failure.message, hint=failure.hint)
