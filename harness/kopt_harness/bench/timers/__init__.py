"""One file per timer. A timer runs in the candidate process; its number is a claim."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, NamedTuple, Protocol

from kopt_harness.errors import NotFoundError

__all__ = ["Sample", "Timer", "make_timer", "timer_names"]

_HELPERS = frozenset({"census"})
"""Modules of this folder that are no timer."""


class Sample(NamedTuple):
    """One timed call."""

    ns: int
    """Span of the call: first start to last end of device activity, or wall time on a CPU."""
    details: dict[str, Any]
    """Launches, busy time and what else the timer knows; units in the names."""


class Timer(Protocol):
    """Measures one call at a time."""

    flush_bytes: int
    """Written before each call, on a CPU by the judge; 0 where the cache is left warm."""

    def flush(self) -> None:
        """Brings caches into the declared state and waits until that is done."""
        ...

    def measure(self, call: Any) -> Sample:
        """Runs ``call.run()`` once and waits for its end.

        Raises:
            InfraError: the timer lost records or cannot measure.
        """
        ...


def timer_names() -> tuple[str, ...]:
    """Timers that have a file here."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(n for n in names if not n.startswith("_") and n not in _HELPERS))


def make_timer(
    name: str, *, cache: str, torch_device: str, l2_bytes: int | None, buffer: Any = None
) -> Timer:
    """A timer of this process.

    Args:
        name: of its file.
        cache: state that a call begins in.
        torch_device: where calls run.
        l2_bytes: size of the cache, where it is known.
        buffer: (bytes,) uint8 on a GPU that flushes write to; None lets the timer allocate one.

    Raises:
        NotFoundError: no file here is called ``name``.
        UnavailableError: the timer's library is missing. There is no fallback.
    """
    if name not in timer_names():
        raise NotFoundError(f"no timer {name!r}", hint=f"one of {', '.join(timer_names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    given = {} if buffer is None else {"buffer": buffer}
    timer: Timer = module.create(cache=cache, torch_device=torch_device, l2_bytes=l2_bytes, **given)
    return timer
