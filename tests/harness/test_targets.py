import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import pytest
from kopt_harness import targets
from kopt_harness.errors import NotFoundError, UnavailableError
from kopt_harness.targets import (
    Target,
    best_target,
    cuda,
    get_target,
    list_targets,
    require_present,
)

H200 = cuda.Device(0, "NVIDIA H200", "GPU-aaaa-1", (9, 0))
B200 = cuda.Device(1, "NVIDIA B200", "GPU-bbbb-2", (10, 0))
H100 = cuda.Device(2, "NVIDIA H100 80GB HBM3", "GPU-aaab-3", (9, 0))


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a list of devices in place of this machine's."""

    def put(*found: cuda.Device, problem: str = "") -> None:
        listing = cuda.DeviceListing(found, problem)
        monkeypatch.setattr(cuda, "list_devices", lambda: listing)

    return put


@pytest.mark.parametrize("target", list_targets(), ids=lambda target: target.name)
def test_every_target_keeps_the_protocol(target: Target) -> None:
    """Each module of the folder defines a consistent target with sourced figures."""
    assert isinstance(target, Target)
    assert (target.arch is None) == (target.kind == "cpu")
    if target.kind == "cuda":
        assert re.fullmatch(r"sm_\d+a?", target.arch)
    figures = [target.copy_gbps, target.l2_bytes, target.launch_us, *target.peak_tflops.values()]
    for figure in filter(None, figures):
        assert figure.value > 0
        assert figure.source
        assert figure.measured == bool(re.search(r"\d{4}-\d\d-\d\d", figure.source))
    presence = target.present()
    assert presence.reason
    assert bool(presence.device) == presence.ok


def test_listing_finds_every_module_and_nothing_else() -> None:
    """A target is added by adding a file: the listing is that of the folder."""
    helpers = {"cuda", "protocol"}
    names = {module.name for module in pkgutil.iter_modules(targets.__path__)} - helpers
    assert {target.name for target in list_targets()} == names
    for name in names:
        assert importlib.import_module(f"kopt_harness.targets.{name}").TARGET.name == name


def test_unknown_target_lists_the_names() -> None:
    """A misspelt target is an error with the nearest name and all names."""
    with pytest.raises(NotFoundError) as caught:
        get_target("h20")
    assert "'h20'" in caught.value.message
    assert "did you mean 'h200'" in caught.value.hint
    assert "b200, cpu, h200" in caught.value.hint


def test_best_target_is_cpu_without_gpu(devices: Any) -> None:
    """On a machine without a GPU the processor is the default."""
    devices(problem="no NVIDIA driver")
    assert best_target().name == "cpu"


def test_best_target_is_the_gpu_that_is_here(devices: Any) -> None:
    """With a GPU of a known model, that is the default."""
    devices(H200)
    assert best_target().name == "h200"


def test_presence_names_the_device(devices: Any) -> None:
    """The device is found by model, with its own index and UUID."""
    devices(H200, B200)
    presence = get_target("b200").present()
    assert (presence.ok, presence.index, presence.uuid) == (True, 1, "GPU-bbbb-2")


def test_same_capability_of_another_model_is_no_match(devices: Any) -> None:
    """An H100 has the compute capability of an H200 and is not one."""
    devices(H100)
    presence = get_target("h200").present()
    assert not presence.ok
    assert "H100" in presence.reason
    assert best_target().name == "cpu"


def test_require_present_says_why_and_what_is_here(devices: Any) -> None:
    """An absent target is a usage error with the reason and the alternatives."""
    devices(problem="no NVIDIA driver")
    with pytest.raises(UnavailableError) as caught:
        require_present(get_target("h200"))
    assert "no NVIDIA driver" in caught.value.message
    assert "cpu" in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1,0", [1, 0]),
        ("", []),
        ("-1", []),
        ("7,0", []),
        ("0,7,1", [0]),
        ("GPU-bbbb", [1]),
        ("GPU-aaa", []),
        (" 2 ", [2]),
    ],
)
def test_visible_devices_as_cuda_reads_them(visible: str, expected: Any) -> None:
    """The list is ordered and ends at the first entry that names no single device."""
    chosen = cuda.select_visible((H200, B200, H100), visible)
    assert [device.index for device in chosen] == expected


def test_nvidia_smi_lines_are_read() -> None:
    """One line per GPU; lines that are no device are left out, and no device is a reason."""
    text = "0, NVIDIA H200, GPU-aaaa-1, 9.0\nFailed to initialize\n"
    assert cuda.parse_nvidia_smi(text).devices == (H200,)
    assert cuda.parse_nvidia_smi("").problem


def test_cpu_has_no_invented_bandwidth() -> None:
    """The bandwidth of an arbitrary processor is unknown, so there is no floor."""
    assert get_target("cpu").copy_gbps is None
    assert get_target("cpu").peak_tflops == {}
