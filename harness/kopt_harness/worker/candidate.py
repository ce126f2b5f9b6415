"""The candidate process: the built solution, the shim that calls it, the timer.

Run by ``kopt_harness.sandbox``, with the arguments PARENT_PID CHANNEL_FD ARENA_FD. It
never holds seeds, expected outputs or the verdict; the numbers that it sends are claims.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch  # while the judge opens; every candidate needs it

from kopt_harness.bench.timers import Sample, Timer, make_timer
from kopt_harness.build.loading import import_libraries, load
from kopt_harness.layout import Arena
from kopt_harness.schema import Definition, Solution
from kopt_harness.untrusted import candidate_code

from .devices import Device, open_device
from .imports import install_import_hook, libraries_in_use
from .limits import isolate_candidate
from .outreach import Outreach
from .phases import Phases
from .serve import serve
from .shim import BadOutputError, Call, LazyOutputError
from .tripwires import Tripwires
from .wire import Channel

__all__ = ["Candidate", "main"]

_now_ns = time.perf_counter_ns
"""As it was before candidate code: one that is replaced is tampering, and no broken answer."""


class Candidate:
    """Serves one solution, warm over all workloads of its definition."""

    def __init__(self, channel: Channel, arena_fd: int, isolation: dict[str, Any]) -> None:
        self._channel = channel
        self._arena_fd = arena_fd
        self._isolation = isolation
        self._phases = Phases()
        self._device: Device
        self._definition: Definition
        self._solution: Solution
        self._timer: Timer
        self._tripwires: Tripwires
        self._outreach: Outreach
        self._last: Call | None = None
        self._function: Any = None

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Opens the device and maps the judge's arena; loads no candidate code yet.

        With ``timed`` the timer begins to record, which takes the device's profilers from everybody
        else in this process.
        """
        with self._phases("open"):
            self._definition = Definition.model_validate(request["definition"])
            self._solution = Solution.model_validate(request["solution"])
            self._device = open_device(request["device_kind"], index=request["device_index"])
            arena = Arena.model_validate(request["arena"])
            self._device.attach(arena, self._arena_fd, request["export"])
            self._timer = self._make_timer(request)
            import_libraries(self._solution)
            if request.get("timed"):
                self._timer.flush()
            flush_cpu_ns = self._flush_cpu_ns()
            own = [self._own_call() for _ in range(request.get("own_calls", 0))]
            self._tripwires = Tripwires(self._timer)
            self._outreach = Outreach()
            install_import_hook(self._solution.spec.dependencies)
        return self._answer(
            isolation=self._isolation,
            flush_bytes=self._timer.flush_bytes,
            flush_cpu_ns=flush_cpu_ns,
            own_ns=[sample.ns for sample in own],
            own_busy_ns=[sample.details.get("busy_ns", 0) for sample in own],
        )

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Imports the built solution."""
        with self._phases("load"), candidate_code():
            self._function = load(Path(request["build"]), self._solution)
        return self._answer(**self._conduct())

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """One call on what the judge has put into the arena; timed or not, then also several.

        A timed call first sends ``flushed`` and waits for ``go``: only then are the inputs
        complete, and the orchestrator's clock runs. On a CPU the judge flushes in between.
        """
        self._last = None
        call = self._bind(request)
        answer: dict[str, Any] = {}
        try:
            if request["timed"]:
                with self._phases("flush"):
                    self._timer.flush()
                self._channel.send("flushed")
                self._channel.receive()
                with self._phases("call"):
                    sample = self._timer.measure(call)
                answer = {"ns": sample.ns, "details": sample.details}
            else:
                with self._phases("call"):
                    start_ns = _now_ns()
                    for _ in range(request["calls"]):
                        call.run()
                    answer = {"details": {"host_ns": _now_ns() - start_ns}}
                    call.seal()
                    self._device.synchronize()
            with self._phases("deliver"):
                call.deliver()
                self._device.synchronize()
                answer["late_writes"] = call.changed()
            self._last = call
        except LazyOutputError as error:
            answer |= {"bad_output": str(error), "lazy_output": True}
        except BadOutputError as error:
            answer["bad_output"] = str(error)
        return self._answer(**answer, hooks=[f"{hook} after a call" for hook in call.hooks])

    def conduct(self, request: dict[str, Any]) -> dict[str, Any]:
        """What candidate code has touched; asked after a call, when no clock runs any more."""
        del request
        return self._answer(**self._conduct())

    def watch(self, request: dict[str, Any]) -> dict[str, Any]:
        """Waits for ``quiet_s``, then says which outputs of the last call have changed since."""
        time.sleep(request["quiet_s"])
        return self._answer(late_writes=self._last.changed() if self._last else [])

    def profile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs the call under a profiler of this process."""
        from kopt_harness.profile import run_profiler

        call = self._bind(request)
        with self._phases("profile"):
            found = run_profiler(request["profiler"], call, self._device)
        return self._answer(**found)

    def _make_timer(self, request: dict[str, Any]) -> Timer:
        """The timer of this process, before candidate code."""
        return make_timer(
            request["timer"],
            cache=request["cache"],
            torch_device=self._device.torch_device,
            l2_bytes=request["l2_bytes"],
            buffer=self._device.flush_buffer,
        )

    def _own_call(self) -> Sample:
        """A call of the evaluator's own kernels, before candidate code: what timers differ by."""
        call = _OwnCall(self._device)
        self._timer.flush()
        sample = self._timer.measure(call)
        self._device.read_fingerprint(call.handle)
        return sample

    def _flush_cpu_ns(self) -> int | None:
        """Processor time of a flush, before candidate code can add to it."""
        if self._device.torch_device != "cpu":
            # A GPU's timer begins to record at its first flush, and no profiler can after it.
            return None
        times = []
        for _ in range(3):
            start_ns = time.process_time_ns()
            self._timer.flush()
            times.append(time.process_time_ns() - start_ns)
        return max(times)

    def _bind(self, request: dict[str, Any]) -> Call:
        axes, shifts, scalars = request["axes"], request["shifts"], request["scalars"]
        given = {
            s.name: self._device.tensor(s.name, s.shape, s.dtype, shifts[s.name])
            for s in self._definition.input_shapes(axes)
            if s.name not in scalars
        } | scalars
        outputs = [
            self._device.tensor(s.name, s.shape, s.dtype, shifts[s.name])
            for s in self._definition.output_shapes(axes)
        ]
        return Call(
            self._function,
            self._definition,
            axes,
            inputs=[given[name] for name in self._definition.inputs],
            outputs=outputs,
            destination_passing=self._solution.spec.destination_passing_style,
            device=self._device,
        )

    def _conduct(self) -> dict[str, Any]:
        """What candidate code has touched of its process."""
        return {
            "touched": self._tripwires.touched(),
            "hooks": self._tripwires.hooks(),
            "changed_state": self._tripwires.changed_state(),
            "libraries": libraries_in_use(),
            "outreach": self._outreach.found(),
        }

    def _answer(self, **fields: Any) -> dict[str, Any]:
        return {**fields, "phases": self._phases.take()}


class _OwnCall:
    """Small kernels of the evaluator, as a timer takes a call."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sample = torch.arange(64, device=device.torch_device)
        self.handle: Any = device.fingerprint([self._sample])
        device.synchronize()

    def run(self) -> None:
        """Launches them."""
        self.handle = self._device.fingerprint([self._sample])

    def seal(self) -> None:
        """There is nothing to look at."""


def main() -> None:
    """Serves requests until the orchestrator closes the channel."""
    channel_fd, arena_fd = (int(word) for word in sys.argv[2:4])
    isolation = isolate_candidate()
    channel = Channel.from_fd(channel_fd)
    candidate = Candidate(channel, arena_fd, isolation)
    names = ("open", "load", "call", "conduct", "watch", "profile")
    serve(channel, {name: getattr(candidate, name) for name in names})


if __name__ == "__main__":
    main()
