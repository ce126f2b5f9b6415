"""What all NVIDIA targets share: finding the device without loading CUDA.

Devices come from the NVIDIA management library where its Python package is installed, else
from ``nvidia-smi``. Neither creates a CUDA context, so the orchestrator may ask.
``CUDA_VISIBLE_DEVICES`` is respected.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, NamedTuple

from ..environ import cuda_visible_devices
from .protocol import Figure, Presence, Target

__all__ = ["CudaTarget", "Device", "DeviceListing", "list_devices", "select_visible"]


@dataclass(frozen=True)
class Device:
    """One GPU as the driver lists it."""

    index: int
    name: str
    uuid: str
    compute_capability: tuple[int, int]


class DeviceListing(NamedTuple):
    """All visible GPUs, or why there are none."""

    devices: tuple[Device, ...]
    problem: str = ""


@dataclass(frozen=True)
class CudaTarget:
    """One model of NVIDIA GPU, recognised by name and compute capability."""

    name: str
    arch: str
    description: str
    device_pattern: str
    """Regular expression that the device name must match."""
    compute_capability: tuple[int, int]
    kind: Literal["cpu", "cuda", "simulated"] = "cuda"
    timer: str = "cupti"
    calls_per_slot: int = 1
    """A second one made a round of all shapes 0.5 s longer and its scatter no smaller: 1.70 against
    1.72 % of the mean (H200, 2026-11-30); a further round is worth more."""
    rounds: bool = True
    """Processes of one solution differed by up to 10 % in kernels of 2 us (H200, 2026-11-30)."""
    rounds_ahead: int = 8
    """Opening a device takes a process about as long as being timed, and several do it at once: a
    round took 1.27 s with eight and 1.35 with four (H200, 2026-11-30)."""
    caveat: str = ""
    copy_gbps: Figure | None = None
    launch_us: Figure | None = None
    l2_bytes: Figure | None = None
    peak_tflops: Mapping[str, Figure] = field(default_factory=dict)

    bound: str = ""
    """UUID of the only device that it stands for; empty: the first one."""

    def each(self) -> tuple[Target, ...]:
        """One for each visible device of this model."""
        found = [device for device in list_devices().devices if self.matches(device)]
        return tuple(replace(self, bound=device.uuid) for device in found) or (self,)

    def matches(self, device: Device) -> bool:
        """Whether a device is of this model, and the one that it is bound to."""
        return (
            self.bound in ("", device.uuid)
            and device.compute_capability == self.compute_capability
            and re.search(self.device_pattern, device.name) is not None
        )

    def present(self) -> Presence:
        """The first visible device of this model."""
        listing = list_devices()
        for device in listing.devices:
            if self.matches(device):
                return Presence(True, "present", device.name, device.uuid, device.index)
        if listing.problem:
            return Presence(False, listing.problem)
        names = ", ".join(sorted({device.name for device in listing.devices}))
        return Presence(False, f"the GPU here is {names}")


@cache
def list_devices() -> DeviceListing:
    """All GPUs that the driver shows and ``CUDA_VISIBLE_DEVICES`` lets through."""
    listing = _from_nvml()
    if listing is None:
        listing = _from_nvidia_smi()
    visible = cuda_visible_devices()
    if visible is None or not listing.devices:
        return listing
    devices = select_visible(listing.devices, visible)
    problem = "" if devices else f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU"
    return DeviceListing(devices, problem)


def select_visible(devices: tuple[Device, ...], visible: str) -> tuple[Device, ...]:
    """The devices that a value of ``CUDA_VISIBLE_DEVICES`` selects, in its order.

    As in CUDA, the list ends at the first entry that names no device; an entry is an index or
    the beginning of a UUID.
    """
    chosen: list[Device] = []
    for entry in (part.strip() for part in visible.split(",")):
        match = [
            device
            for device in devices
            if (entry.isdigit() and int(entry) == device.index)
            or (entry.startswith("GPU-") and device.uuid.startswith(entry))
        ]
        if len(match) != 1:
            break
        chosen += match
    return tuple(chosen)


def _from_nvml() -> DeviceListing | None:
    """None where the package is not installed."""
    try:
        import pynvml  # noqa: PLC0415  # optional, and not needed to list definitions
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return DeviceListing((), f"no NVIDIA driver ({error})")
    try:
        return DeviceListing(tuple(_nvml_device(i) for i in range(pynvml.nvmlDeviceGetCount())))
    finally:
        pynvml.nvmlShutdown()


def _nvml_device(index: int) -> Device:
    import pynvml  # noqa: PLC0415  # as above

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    return Device(index, _text(name), _text(uuid), (major, minor))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _from_nvidia_smi() -> DeviceListing:
    if shutil.which("nvidia-smi") is None:
        return DeviceListing((), "no NVIDIA driver (nvidia-smi is not installed)")
    from ..proc import run  # noqa: PLC0415  # only machines with a driver come here

    query = ["nvidia-smi", "--query-gpu=index,name,uuid,compute_cap", "--format=csv,noheader"]
    done = run(query, timeout_s=30)
    if done.returncode != 0:
        detail = (done.stderr or done.stdout).strip().partition("\n")[0]
        return DeviceListing((), f"nvidia-smi failed ({detail})")
    return parse_nvidia_smi(done.stdout)


def parse_nvidia_smi(text: str) -> DeviceListing:
    """Read ``index, name, uuid, compute_cap`` lines; lines of another shape are left out."""
    devices = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 4 or not fields[0].isdigit():
            continue
        major, _, minor = fields[3].partition(".")
        if major.isdigit() and minor.isdigit():
            devices.append(Device(int(fields[0]), fields[1], fields[2], (int(major), int(minor))))
    return DeviceListing(tuple(devices), "" if devices else "nvidia-smi lists no GPU")
