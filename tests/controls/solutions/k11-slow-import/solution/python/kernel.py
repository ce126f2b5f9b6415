"""A library that loads large binaries, in effect."""

import time

from .honest import write

until = time.monotonic() + 3.0
while time.monotonic() < until:
    time.sleep(0.05)


def run(*arguments) -> None:  # noqa: ANN002
    """Honest."""
    write(*arguments)
