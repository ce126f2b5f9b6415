"""What candidate code has no business to change, looked at again after it has run.

Everything here lives in the candidate's process, so a solution could undo it; what it cannot
undo is that clock and comparison that decide are in other processes. A tripwire makes the
usual attempt visible.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Tripwires"]

_FUNCTIONS = {
    "time": ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"),
    "torch": ("allclose", "equal", "frombuffer", "isclose", "isfinite", "isnan", "sum"),
    "torch.testing": ("assert_close",),
    "torch.cuda": ("Event", "Stream", "current_stream", "synchronize"),
    "torch.cuda.Event": ("elapsed_time", "query", "record", "synchronize"),
    "torch.Tensor": ("copy_", "data_ptr", "detach", "fill_", "reshape", "to", "view", "zero_"),
    "json": ("dumps", "loads"),
    "select": ("select",),
    "socket.socket": ("recv", "send", "sendall"),
    "kopt_harness.bench.timers.cpu": ("CpuTimer", "_CLOCK_NS"),
    "kopt_harness.bench.timers.cpu.CpuTimer": ("flush", "measure"),
    "kopt_harness.check": ("check_outputs",),
    "kopt_harness.worker.fingerprint": ("checksums", "reseal", "seal", "totals", "values"),
    "kopt_harness.worker.serve": ("serve",),
    "kopt_harness.worker.shim.Call": ("changed", "deliver", "run", "seal"),
    "kopt_harness.worker.wire.Channel": ("receive", "send"),
}
"""Attributes by the module or class that has them."""

_MAIN = ("Candidate", "Channel", "load", "make_timer", "serve")
"""Names of the worker's own module, which may run as ``__main__``."""


_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SIGNALS = (
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGIO,
    signal.SIGCHLD,
    signal.SIGTRAP,
)


class _Wire(NamedTuple):
    name: str
    owner: Any
    attribute: str
    value: Any
    code: Any
    """The byte code, which can be exchanged while the function stays the same object."""


class Tripwires:
    """Identities as they were before candidate code was loaded."""

    def __init__(self, timer: Any) -> None:
        import torch

        self._torch = torch
        self._timer = timer
        self._wires = [wire for owner, names in _FUNCTIONS.items() for wire in _of(owner, names)]
        worker = sys.modules.get("__main__")
        self._wires += [_wire("worker", worker, name) for name in _MAIN if hasattr(worker, name)]
        self._wires += [
            _wire("builtins", builtins, name) for name in ("print", "open", "__import__")
        ]
        self._wires.append(_wire("timer", type(timer), "measure"))
        self._state = self._global_state()
        self._hooks = _hooks()

    def touched(self) -> list[str]:
        """Names of what is no longer what it was."""
        timer = vars(self._timer).keys() & vars(type(self._timer)).keys()
        return [w.name for w in self._wires if _changed(w)] + [f"timer.{n}" for n in timer]

    def hooks(self) -> list[str]:
        """What makes the interpreter run code that nobody calls."""
        now = _hooks()
        return [name for name, value in now.items() if value != self._hooks[name]]

    def changed_state(self) -> list[str]:
        """Switches of PyTorch that act on a whole process, with their value before and now."""
        now = self._global_state()
        return [
            f"{name}: {before} to {now[name]}"
            for name, before in self._state.items()
            if now[name] != before
        ]

    def _global_state(self) -> dict[str, str]:
        torch = self._torch
        backends = torch.backends
        state: dict[str, Callable[[], Any]] = {
            "default dtype": torch.get_default_dtype,
            "default device": torch.get_default_device,
            "gradients": torch.is_grad_enabled,
            "inference mode": torch.is_inference_mode_enabled,
            "float32 matmul precision": torch.get_float32_matmul_precision,
            "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
            "allow_tf32": lambda: backends.cudnn.allow_tf32,
            "cudnn.benchmark": lambda: backends.cudnn.benchmark,
            "reduced-precision reduction": (
                lambda: backends.cuda.matmul.allow_fp16_reduced_precision_reduction
            ),
        }
        return {name: str(read()) for name, read in state.items()}


def _hooks() -> dict[str, Any]:
    """Hooks of this thread and of every new one, and handlers of signals that can be timed."""
    found: dict[str, Any] = {
        "a trace function": (sys.gettrace(), threading.gettrace()),
        "a profile function": (sys.getprofile(), threading.getprofile()),
        "callbacks of the garbage collector": [id(each) for each in gc.callbacks],
        "an interval timer": [signal.getitimer(which) != (0.0, 0.0) for which in _TIMERS],
    }
    for number in _SIGNALS:
        found[f"a handler of {number.name}"] = signal.getsignal(number)
    return found


def _of(owner: str, names: tuple[str, ...]) -> list[_Wire]:
    found = _find(owner)
    return [_wire(owner, found, name) for name in names if hasattr(found, name)]


def _find(path: str) -> Any:
    """A module, or a class in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _wire(label: str, owner: Any, attribute: str) -> _Wire:
    value = getattr(owner, attribute)
    return _Wire(f"{label}.{attribute}", owner, attribute, value, _code(value))


def _code(value: Any) -> Any:
    return getattr(getattr(value, "__func__", value), "__code__", None)


def _changed(wire: _Wire) -> bool:
    now = getattr(wire.owner, wire.attribute, None)
    # Built-in methods are bound anew at each look: equal, not identical.
    return (now is not wire.value and now != wire.value) or _code(now) is not wire.code
