"""Whether a device recovers when the processes of solutions have ended.

One that does not is out of use for everybody: nobody's verdict may hang on what another solution
has left behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kopt_harness import lease
from kopt_harness.conditions import device_memory
from kopt_harness.errors import InfraError
from kopt_harness.worker.spawn import WorkerClient, WorkerFailedError

__all__ = ["DeviceHealth"]

_CANARY_TIMEOUT_S = 30.0
_MEMORY_BACK_S = 20.0
"""How long a driver may take to free what a killed process had."""
_MEMORY_LOOK_S = 0.02
_MEMORY_SLACK_BYTES = 256 << 20
"""What other users of a device may have taken meanwhile, beyond what NVML says of them."""


class DeviceHealth:
    """Of the device of one session."""

    def __init__(self, device_id: str, clients: Callable[[], Iterable[WorkerClient]]) -> None:
        """Knows nothing of it yet.

        Args:
            device_id: As a lease names it.
            clients: Gives all workers of the session that live.
        """
        self._device_id = device_id
        self._clients = clients
        self._free_bytes: int | None = None
        self._others_bytes = 0
        self._fault = ""

    def begin(self, judge: WorkerClient) -> None:
        """Takes note of what is free before any solution has come.

        Raises:
            WorkerFailedError: the judge failed.
        """
        lease.add_user(self._device_id)
        self._others_bytes = self._memory_of_others()
        self._free_bytes = judge.request("canary", timeout_s=_CANARY_TIMEOUT_S)["free_bytes"]

    def require_well(self) -> None:
        """Refuses a device that has not recovered.

        Raises:
            InfraError: it is out of use.
        """
        if self._fault:
            raise InfraError(
                f"the device {self._device_id} is out of use: {self._fault}",
                hint="restart or reset it, then lift the quarantine: kopt doctor says how",
            )

    def has_room(self, free_bytes: int | None) -> bool:
        """Whether at least half of what was free at the beginning is free now."""
        before = self._free_bytes
        return before is not None and free_bytes is not None and 2 * free_bytes >= before

    def examine(
        self, judge: WorkerClient | None, survivors: tuple[int, ...], *, in_use: bool
    ) -> None:
        """Takes the device out of use if it has not recovered.

        Args:
            judge: Who tries it; None where it is a CPU.
            survivors: Processes of solutions that could not be ended.
            in_use: Whether other solutions have memory of it.
        """
        fault = f"processes {survivors} of a solution cannot be ended" if survivors else ""
        if not fault and judge is not None:
            fault = self.fault_of(judge, in_use=in_use)
        if fault and not self._fault:
            # The verdict of this candidate stands; nobody else is measured on this device.
            self._fault = fault
            lease.quarantine(self._device_id, fault, processes=survivors)

    def fault_of(self, judge: WorkerClient, *, in_use: bool) -> str:
        """Whether the device computes as before, and has the memory back that is not in use."""
        deadline = time.monotonic() + _MEMORY_BACK_S
        while True:
            try:
                answer = judge.request("canary", timeout_s=_CANARY_TIMEOUT_S)
            except WorkerFailedError as error:
                if error.kind in ("crash", "lost"):
                    return ""  # that the judge is gone says nothing of the device
                return f"after a solution had ended, the device did not answer: {error.detail}"
            if not answer["ok"]:
                return "after a solution had ended, the device computed wrong sums"
            free, before = answer["free_bytes"], self._free_bytes
            if free is None or before is None or in_use:
                return ""
            missing = before - free
            if missing > _MEMORY_SLACK_BYTES:
                missing -= max(0, self._memory_of_others() - self._others_bytes)
            if missing <= _MEMORY_SLACK_BYTES:
                return ""
            if time.monotonic() > deadline:
                return f"{missing >> 20} MiB did not come back after a solution had ended"
            time.sleep(_MEMORY_LOOK_S)

    def _memory_of_others(self) -> int:
        """Bytes of the device that living processes have which are not among these workers.

        Another session of this kopt, or another kopt, may check on the device at the same time.
        Nothing of a solution that has ended lives: its processes are gone, or its survivors are
        a fault of their own.
        """
        own = {pid for client in self._clients() for pid in client.processes()}
        listed = device_memory(self._device_id)
        return sum(size for pid, size in listed.items() if pid not in own and _lives(pid))


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
