"""The judge process: secret inputs, references, arenas, comparisons. No candidate code.

Run as ``python -P -m kopt_harness.worker.judge PARENT_PID CHANNEL_FD ARENA_FD``.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kopt_harness.check import coarse_outputs, compare_all, null_kernel_reason
from kopt_harness.layout import RED_ZONE_BYTES, SHIFT_STEP_BYTES, Arena
from kopt_harness.schema import Definition, TensorShape, TierResult

from . import fingerprint
from .calibrating import calibrate
from .devices import Device, open_device
from .limits import isolate_judge
from .phases import Phases
from .pool import InputSet, Pool, load_module
from .serve import serve
from .wire import Channel

__all__ = ["Judge", "main"]

FULL_COMPARE_BYTES = 4 << 20
"""Outputs up to this size are compared whole after every call."""
SAMPLED_ROWS = 1024
"""Rows compared of an output, or of an input, that is larger."""
HELD_BYTES = 4096
"""Inputs up to this size are written after caches were flushed."""
_SMALL_BYTES = 64 << 10
"""Inputs up to this size are compared together."""
_POISON_WORDS = 256
_WATCH_STEP_S = 0.02


class Judge:
    """Serves one session: one definition on one device."""

    def __init__(self, arena_fd: int, isolation: dict[str, Any]) -> None:
        self._arena_fd = arena_fd
        self._isolation = isolation
        self._phases = Phases()
        self._device: Device
        self._definition: Definition
        self._pool: Pool
        self._comparator: Any = None
        self._shapes: dict[str, TensorShape] = {}
        self._shifts: dict[str, int] = {}
        self._views: dict[str, Any] = {}
        self._zones: dict[str, tuple[Any, Any]] = {}
        self._rng = random.SystemRandom()
        self._red = self._rng.randrange(1, 255)
        self._row_rng = torch.Generator()
        self._row_rng.manual_seed(self._rng.getrandbits(63))
        self._static_changed = True
        self._discriminates = False
        self._offset = 0
        self._held: dict[str, Any] = {}
        self._seal = fingerprint.Seal({}, [])

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads the definition, opens the device, allocates and exports the arena."""
        with self._phases("open"):
            self._definition = Definition.model_validate(request["definition"])
            self._device = open_device(request["device_kind"], index=request["device_index"])
            folder = Path(request["folder"])
            shelf = request.get("shelf")
            self._pool = Pool(
                folder,
                self._definition,
                self._device.torch_device,
                request["seed"],
                None if shelf is None else Path(shelf),
            )
            self._comparator = load_module(folder, "check")
            arena = Arena.model_validate(request["arena"])
            export = self._device.create(arena, self._arena_fd)
        return self._answer(
            export=export,
            isolation=self._isolation,
            generators=self._pool.generators,
            device=self._device.name(),
        )

    def workload(self, request: dict[str, Any]) -> dict[str, Any]:
        """Binds the axes of a workload; the sets that it has stay."""
        axes = request["axes"]
        with self._phases("inputs"):
            self._pool.bind(request["uuid"], axes)
        self._discriminates = bool(self._pool.sets)
        shapes = (*self._definition.input_shapes(axes), *self._definition.output_shapes(axes))
        self._shapes = {shape.name: shape for shape in shapes}
        self._place(dict.fromkeys(self._shapes, 0))
        return self._answer()

    def forget(self, request: dict[str, Any]) -> dict[str, Any]:
        """Frees the sets of a workload."""
        self._pool.forget(request["uuid"])
        return self._answer()

    def draw(self, request: dict[str, Any]) -> dict[str, Any]:
        """Draws a set; with ``reference`` also its expected outputs.

        A workload is invalid where a kernel that writes only zeros passes on its first
        contest set: ``invalid`` then says why. With ``place`` the set may be one of an earlier
        session: ``met`` says whether it is.
        """
        with self._phases("inputs"):
            number = self._pool.draw(request["generator"], request.get("place"))
            met = self._pool.sets[number].expected is not None
            self._device.synchronize()
        invalid = None
        if request["reference"]:
            with self._phases("reference"):
                expected = self._pool.expected(number)
                self._device.synchronize()
            with self._phases("compare"):
                chosen = self._pool.sets[number]
                if chosen.kind == "contest" and not self._discriminates:
                    invalid = null_kernel_reason(
                        self._definition, chosen.values, expected, self._comparator
                    )
                    self._discriminates = invalid is None
        answer = self._answer(set=number, met=met, invalid=invalid and invalid.model_dump())
        return answer | {"reference_s": answer["phases"].get("reference", 0) / 1e9}

    def refill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Writes a set into the arena, at its places, and poisons the outputs.

        With ``vary`` the set is changed first, in a small random part whose effect on the
        expected outputs is known, so that no call meets the same contents twice. With
        ``hold`` small inputs are zeros until ``complete``.
        """
        if request["shifts"] != self._shifts:
            with self._phases("refill"):
                self._place(request["shifts"])
        chosen = self._pool.sets[request["set"]]
        if request["vary"]:
            with self._phases("vary"):
                self._pool.vary(request["set"])
        with self._phases("refill"):
            static = set() if self._static_changed else set(self._definition.kopt.static_inputs)
            self._held = self._small_inputs(chosen.values) if request["hold"] else {}
            for name, value in chosen.values.items():
                if name in self._held:
                    self._tensor(name).zero_()
                elif name in self._shapes and value is not None and name not in static:
                    self._tensor(name).copy_(value)
            self._static_changed = False
            self._device.synchronize()
        with self._phases("poison"):
            for name in self._definition.outputs:
                self._poison(name)
            self._seal = self._seal_outputs(_POISON_WORDS)
        scalars = {n: v for n, v in chosen.values.items() if v is None or n not in self._shapes}
        return self._answer(scalars=scalars)

    def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        """Evicts caches, and last of all writes the inputs that were held back.

        What was computed before is wrong now; outputs that are poisoned no more are named.
        """
        start_ns = time.perf_counter_ns()
        with self._phases("flush"):
            self._device.evict(request["flush_bytes"], request["processors"])
        flush_ns = time.perf_counter_ns() - start_ns
        with self._phases("refill"):
            early = self._changed_since(self._seal)
            for name, value in self._held.items():
                self._tensor(name).copy_(value)
            self._device.synchronize()
        return self._answer(early_writes=early, flush_ns=flush_ns)

    def verify(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compares what a call has left in the arena.

        With ``full`` every element of every output and every byte of every input is
        compared; without, large tensors by a random sample of rows and static inputs not.
        Outputs that are written to meanwhile, and for ``quiet_s`` at least, are ``late_writes``.
        With ``full`` those whose numbers have fewer bits than their type are ``coarse``.
        """
        number, full = request["set"], request["full"]
        chosen = self._pool.sets[number]
        with self._phases("quiet"):
            taken = self._seal_outputs(fingerprint.SAMPLE_WORDS)
            quiet_until = time.monotonic() + request["quiet_s"]
        with self._phases("reference"):
            expected = self._pool.expected(number)
            self._device.synchronize()
        with self._phases("compare"):
            tiers = self._compare(chosen, expected, full=full)
            coarse = self._coarse(expected) if full else []
        with self._phases("hash"):
            self._offset = self._rng.getrandbits(30)
            changed = self._changed_inputs(chosen.values, full=full)
            overwritten = self._overwritten()
        with self._phases("quiet"):
            time.sleep(max(0.0, quiet_until - time.monotonic()))
            late = self._changed_since(taken)
        if changed or overwritten:
            self._static_changed = True
        if overwritten:
            self._place(self._shifts)
        return self._answer(
            tiers={name: tier.model_dump(mode="json") for name, tier in tiers.items()},
            coarse=coarse,
            inputs_changed=changed,
            red_zones=overwritten,
            late_writes=late,
        )

    def watch(self, request: dict[str, Any]) -> dict[str, Any]:
        """Waits up to ``quiet_s`` for somebody to write to the outputs."""
        deadline = time.monotonic() + request["quiet_s"]
        late: list[str] = []
        with self._phases("quiet"):
            while not late and time.monotonic() < deadline:
                late = self._watch_outputs(_WATCH_STEP_S)
        return self._answer(late_writes=late)

    def calibrate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Null kernels on one generator of the workload; the sets that it has stay."""
        with self._phases("calibrate"):
            found = calibrate(
                self._definition,
                self._pool,
                self._comparator,
                request["generator"],
                self._device.synchronize,
            )
        return self._answer(calibration=found)

    def canary(self, request: dict[str, Any]) -> dict[str, Any]:
        """Whether the device still computes, and how much of its memory is free."""
        del request
        return self._answer(ok=self._device.canary(), free_bytes=self._device.free_bytes())

    def _watch_outputs(self, quiet_s: float) -> list[str]:
        """Outputs that change while nothing should be running."""
        taken = self._seal_outputs(fingerprint.SAMPLE_WORDS)
        time.sleep(quiet_s)
        return self._changed_since(taken)

    def _seal_outputs(self, words: int) -> fingerprint.Seal:
        """A fingerprint of the outputs as they are now."""
        outputs = {name: self._tensor(name) for name in self._definition.outputs}
        taken = fingerprint.seal(self._device, outputs, words=words)
        self._device.synchronize()
        return taken

    def _changed_since(self, taken: fingerprint.Seal) -> list[str]:
        """Outputs that are others than they were."""
        before = fingerprint.values(self._device, taken)
        again = fingerprint.reseal(self._device, taken)
        self._device.synchronize()
        after = fingerprint.values(self._device, again)
        return [name for name in before if after[name] != before[name]]

    def _small_inputs(self, values: dict[str, Any]) -> dict[str, Any]:
        """Tensors that are written in no time and warm no cache; one at least if there is any."""
        static = self._definition.kopt.static_inputs
        tensors = {
            name: value
            for name, value in values.items()
            if name in self._shapes and value is not None and name not in static and value.numel()
        }
        small = {name: v for name, v in tensors.items() if v.nbytes <= HELD_BYTES}
        least = min(tensors, key=lambda name: tensors[name].nbytes, default=None)
        return small or ({least: tensors[least]} if least is not None else {})

    def _compare(
        self, chosen: InputSet, expected: dict[str, Any], *, full: bool
    ) -> dict[Any, TierResult]:
        magnitudes = self._pool.magnitudes(chosen.values)

        def compare(
            expected: dict[str, Any], actual: dict[str, Any], rows: Mapping[str, Any]
        ) -> dict[Any, TierResult]:
            return compare_all(
                self._definition,
                chosen.values,
                expected,
                actual,
                comparator=self._comparator,
                kind=chosen.kind,
                magnitudes=lambda name: magnitudes(name)[rows.get(name, slice(None))],
            )

        def failed(tiers: dict[Any, TierResult]) -> bool:
            return any(tier.verdict == "fail" for tier in tiers.values())

        actual = {name: self._tensor(name) for name in self._definition.outputs}
        if full or self._comparator is not None:
            return compare(expected, actual, {})
        tiers = compare(*self._sample(expected, actual))
        if failed(tiers):
            # Compared as a whole, the wrong element is named by its place in the output.
            whole = compare(expected, actual, {})
            return whole if failed(whole) else tiers
        return tiers

    def _coarse(self, expected: dict[str, Any]) -> list[str]:
        """Outputs that are stored with fewer bits than their type has."""
        actual = {name: self._tensor(name) for name in self._definition.outputs}
        return coarse_outputs(self._definition, expected, actual)

    def _answer(self, **fields: Any) -> dict[str, Any]:
        return {**fields, "phases": self._phases.take()}

    def _tensor(self, name: str) -> Any:
        return self._views[name]

    def _place(self, shifts: dict[str, int]) -> None:
        """Moves tensors and fills their red zones."""
        self._shifts = dict(shifts)
        self._static_changed = True
        self._views, self._zones = {}, {}
        for name, shape in self._shapes.items():
            self._views[name] = self._device.tensor(name, shape.shape, shape.dtype, shifts[name])
            slot = self._device.slot_bytes(name)
            start = RED_ZONE_BYTES + shifts[name] * SHIFT_STEP_BYTES
            end = start + shape.nbytes
            self._zones[name] = slot[:start], slot[end : end + RED_ZONE_BYTES]
            for zone in self._zones[name]:
                zone.fill_(self._red)

    def _overwritten(self) -> list[str]:
        """Tensors beside which something was written; one question to the device if none was."""
        every = torch.cat([zone for zones in self._zones.values() for zone in zones])
        if bool((every == self._red).all()):
            return []
        return [
            name
            for name, zones in self._zones.items()
            if not bool((torch.cat(zones) == self._red).all())
        ]

    def _poison(self, name: str) -> None:
        """NaN with a secret payload in floats, a secret constant in integers."""
        tensor = self._tensor(name)
        secret = self._rng.randrange(1 << 16)
        if not tensor.dtype.is_floating_point:
            tensor.fill_(0x5A if tensor.dtype.itemsize == 1 else 1_000_000_000 + secret)
        elif tensor.dtype.itemsize == 4:
            tensor.view(torch.int32).fill_(0x7FC00000 | secret)
        elif tensor.dtype.itemsize == 2:
            tensor.view(torch.int16).fill_(0x7FC0 | (secret & 0x3F))
        else:
            tensor.fill_(float("nan"))

    def _sample(
        self, expected: dict[str, Any], actual: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Random rows of large outputs, and which ones."""
        chosen = {}
        for name, tensor in actual.items():
            if tensor.numel() * tensor.dtype.itemsize <= FULL_COMPARE_BYTES:
                continue
            rows = tensor.numel() // tensor.shape[-1]
            drawn = torch.randint(rows, (SAMPLED_ROWS,), generator=self._row_rng)
            chosen[name] = picked = drawn.to(tensor.device)
            actual = actual | {name: tensor.view(rows, -1)[picked]}
            expected = expected | {name: expected[name].view(rows, -1)[picked]}
        return expected, actual, chosen

    def _changed_inputs(self, values: dict[str, Any], *, full: bool) -> list[str]:
        static = () if full else self._definition.kopt.static_inputs
        skipped = {*static, *self._definition.kopt.mutable_inputs}
        pairs = {}
        for name, value in values.items():
            if name in skipped or name not in self._shapes or value is None:
                continue
            now = self._tensor(name)
            if not full and value.nbytes > FULL_COMPARE_BYTES:
                # What is refilled before the next call gains nobody anything if it is changed.
                now, value = self._some_rows(now), self._some_rows(value)  # noqa: PLW2901
            pairs[name] = (_bytes(now), _bytes(value))
        small = [pair for pair in pairs.values() if pair[0].numel() <= _SMALL_BYTES]
        if len(small) > 1:  # one question for all of them, and none if they are as they were
            gathered = (torch.cat(side) for side in zip(*small, strict=True))
            if torch.equal(*gathered):
                pairs = {n: pair for n, pair in pairs.items() if pair[0].numel() > _SMALL_BYTES}
        return [name for name, (now, then) in pairs.items() if not _same_bytes(now, then)]

    def _some_rows(self, tensor: Any) -> Any:
        """Every so many rows, from a secret one on."""
        rows = tensor.numel() // tensor.shape[-1]
        step = -(-rows // SAMPLED_ROWS)
        return tensor.reshape(rows, -1)[self._offset % step :: step].contiguous()


def _bytes(tensor: Any) -> Any:
    """The bits of a contiguous tensor, in which NaN equals itself."""
    return tensor.reshape(-1).view(torch.uint8)


def _same_bytes(now: Any, then: Any) -> bool:
    """Whether two tensors of bytes are equal."""
    if now.numel() % 8 == 0 and now.data_ptr() % 8 == 0 and then.data_ptr() % 8 == 0:
        now, then = now.view(torch.int64), then.view(torch.int64)
    return bool(torch.equal(now, then))


def main() -> None:
    """Serves requests until the orchestrator closes the channel."""
    parent_pid, channel_fd, arena_fd = (int(word) for word in sys.argv[1:4])
    isolation = isolate_judge(parent_pid)
    judge = Judge(arena_fd, isolation)
    calls = ("refill", "complete", "verify", "watch", "canary")
    names = ("open", "workload", "forget", "draw", *calls, "calibrate")
    serve(Channel.from_fd(channel_fd), {name: getattr(judge, name) for name in names})


if __name__ == "__main__":
    main()
