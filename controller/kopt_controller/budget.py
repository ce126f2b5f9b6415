"""How many seconds of the device a helper of an agent may use, and who has used them.

A budget is a file of lines, one for each use, so that several processes share it and a killed
one has lost nothing. Whoever measures for an agent asks ``begin`` first, stops after as many
seconds as it answers, and says with ``spend`` what it took. Where nothing is left, both refuse.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import fsum, isfinite
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock
from kopt_harness.errors import InvalidInputError, UsageError
from kopt_harness.files import read_text

__all__ = ["Budget", "BudgetExhaustedError", "Use"]

LEAST_S = 0.5
"""With less than this left nothing can be measured: it counts as nothing."""


class BudgetExhaustedError(UsageError):
    """Nothing of a budget is left."""


class Use(NamedTuple):
    """One use of the device."""

    kind: str
    """``check``, ``bench``, ``profile``, ``diagnose``."""
    device_s: float


class Budget:
    """Seconds of the device, shared by all processes that have the same file."""

    def __init__(self, path: Path, limit_s: float) -> None:
        self._path = path
        self._limit_s = limit_s
        self._lock = FileLock(f"{path}.lock")

    @property
    def limit_s(self) -> float:
        """Seconds to begin with."""
        return self._limit_s

    def uses(self) -> tuple[Use, ...]:
        """All that was used, oldest first; a line that was cut off counts as not written.

        Raises:
            InvalidInputError: If a whole line is no use.
        """
        if not self._path.exists():
            return ()
        lines = read_text(self._path, "budget").split("\n")[:-1]
        try:
            return tuple(Use(str(row["kind"]), float(row["s"])) for row in map(json.loads, lines))
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(
                f"{str(self._path)!r} is no budget: {error}", hint="start the call anew"
            ) from error

    def spent_s(self) -> float:
        """Seconds that were used."""
        return fsum(use.device_s for use in self.uses())

    def left_s(self) -> float:
        """Seconds that are left, never less than 0."""
        return max(0.0, self._limit_s - self.spent_s())

    def begin(self, kind: str) -> float:
        """How long a use may take at most.

        Args:
            kind: What is to be done, for the message.

        Raises:
            BudgetExhaustedError: If nothing is left.
        """
        left_s = self.left_s()
        if left_s < LEAST_S:
            used = f"{self.spent_s():.1f} of {self._limit_s:.1f} s of the device are used"
            raise BudgetExhaustedError(
                f"no {kind!r}: {used}",
                hint="hand in what there is; kopt measures all drafts itself",
            )
        return left_s

    def spend(self, kind: str, device_s: float) -> float:
        """Notes a use; on disk when this returns.

        A use that was begun in time may take more than was left: it is noted in full.

        Args:
            kind: What was done.
            device_s: How long the device was used for it.

        Returns:
            Seconds that are left.

        Raises:
            BudgetExhaustedError: If nothing was left before.
            InvalidInputError: If it is no time.
        """
        if not isfinite(device_s) or device_s < 0:
            raise InvalidInputError(
                f"{device_s!r} is no time in seconds", hint="give what a clock showed"
            )
        with self._lock:
            self.begin(kind)
            self._write(Use(kind, device_s))
        return self.left_s()

    @contextmanager
    def charged(self, kind: str) -> Iterator[float]:
        """Notes how long the body takes, also where it fails; gives the seconds that it has.

        Args:
            kind: What is done.

        Raises:
            BudgetExhaustedError: If nothing is left; the body does not run.
        """
        with self._lock:
            # Held while the device is used: two at once would both get all that is left.
            left_s = self.begin(kind)
            start = time.monotonic()
            try:
                yield left_s
            finally:
                self._write(Use(kind, time.monotonic() - start))

    def _write(self, use: Use) -> None:
        data = json.dumps({"kind": use.kind, "s": round(use.device_s, 6)}).encode() + b"\n"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        try:
            size = os.fstat(file).st_size
            # What a killed process has begun would make this line a broken one.
            os.ftruncate(file, os.pread(file, size, 0).rfind(b"\n") + 1)
            os.write(file, data)
            os.fsync(file)
        finally:
            os.close(file)
