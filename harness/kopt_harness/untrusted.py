"""Where candidate code runs, its exceptions are its own, whatever class they have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kopt_harness.errors import KoptError

__all__ = ["CandidateRaisedError", "candidate_code"]


class CandidateRaisedError(Exception):
    """Candidate code raised one of kopt's own errors, which would blame the machine."""


@contextmanager
def candidate_code() -> Iterator[None]:
    """Around every call into candidate code.

    Raises:
        CandidateRaisedError: in the place of a ``KoptError``.
    """
    try:
        yield
    except KoptError as error:
        raise CandidateRaisedError(f"{type(error).__name__}: {error}") from error
