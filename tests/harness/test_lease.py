"""One lease per device, and none after its process."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kopt_harness.errors import InfraError
from kopt_harness.lease import (
    CPU_DEVICE,
    device_lease,
    holder,
    lift_quarantine,
    quarantine,
    quarantined,
    users,
)

_HOLD = """
import sys, time
from pathlib import Path
from kopt_harness.lease import device_lease
with device_lease("GPU-1", folder=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def _other(folder: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_held_device_names_its_holder(tmp_path: Path) -> None:
    """Who cannot get the device learns which process has it."""
    with _other(tmp_path, 60) as other:
        with (
            pytest.raises(InfraError, match=f"process {other.pid}"),
            device_lease("GPU-1", timeout_s=0.1, folder=tmp_path),
        ):
            pass
        other.kill()


def test_a_killed_holder_frees_the_device(tmp_path: Path) -> None:
    """Nobody has to clean up after a dead process."""
    with _other(tmp_path, 60) as other:
        other.kill()
    with device_lease("GPU-1", timeout_s=5, folder=tmp_path) as lease:
        assert lease.device == "GPU-1"


def test_waiting_gets_the_device_when_it_is_free(tmp_path: Path) -> None:
    """A second run waits for the first and says how long it waited."""
    with _other(tmp_path, 0.3):
        start = time.monotonic()
        with device_lease("GPU-1", timeout_s=10, folder=tmp_path) as lease:
            assert lease.waited_s == pytest.approx(time.monotonic() - start, abs=0.1)
            assert lease.waited_s > 0.05


def test_devices_do_not_block_each_other(tmp_path: Path) -> None:
    """Two GPUs, or a GPU and the CPU, are timed at once."""
    with (
        device_lease("GPU-1", timeout_s=0, folder=tmp_path),
        device_lease("GPU-2", timeout_s=0, folder=tmp_path),
        device_lease(CPU_DEVICE, timeout_s=0, folder=tmp_path),
    ):
        assert holder(CPU_DEVICE, folder=tmp_path) is not None


def test_a_lease_ends_with_an_error_inside(tmp_path: Path) -> None:
    """A measurement that fails does not keep the device."""
    with pytest.raises(ZeroDivisionError), device_lease("GPU-1", folder=tmp_path):
        raise ZeroDivisionError
    with device_lease("GPU-1", timeout_s=0, folder=tmp_path):
        pass


def test_a_device_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    """A strange device id is a file name, not a path."""
    with device_lease("../../etc/x", timeout_s=0, folder=tmp_path / "in"):
        assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_device_that_is_out_of_use_is_refused_with_its_reason(tmp_path: Path) -> None:
    """Nobody measures on it until it is lifted, and the hint says how."""
    quarantine("GPU-1", "the driver hangs", folder=tmp_path)
    with (
        pytest.raises(InfraError, match="out of use: the driver hangs") as caught,
        device_lease("GPU-1", folder=tmp_path),
    ):
        pass
    assert "kopt doctor --lift-quarantine GPU-1" in caught.value.hint
    with device_lease("GPU-2", timeout_s=0, folder=tmp_path):
        pass
    assert lift_quarantine("GPU-1", folder=tmp_path)
    assert not lift_quarantine("GPU-1", folder=tmp_path)
    with device_lease("GPU-1", timeout_s=0, folder=tmp_path):
        pass


def test_it_ends_with_the_process_that_could_not_be_ended(tmp_path: Path) -> None:
    """A process that a driver let go at last does not keep the device for ever."""
    with subprocess.Popen(["sleep", "60"]) as stuck:
        quarantine("GPU-1", "it hangs", processes=[stuck.pid], folder=tmp_path)
        found = quarantined("GPU-1", folder=tmp_path)
        assert found is not None
        assert found.processes == (stuck.pid,)
        stuck.kill()
    assert quarantined("GPU-1", folder=tmp_path) is None
    with device_lease("GPU-1", timeout_s=0, folder=tmp_path):
        pass


def test_a_damaged_record_keeps_the_device_out_of_use(tmp_path: Path) -> None:
    """What cannot be read is not taken for well."""
    quarantine("GPU-1", "it hangs", folder=tmp_path)
    (tmp_path / "GPU-1.quarantine").write_text("{")
    assert quarantined("GPU-1", folder=tmp_path) is not None


def test_whoever_waits_learns_that_the_device_went_bad(tmp_path: Path) -> None:
    """The one who had it put it out of use; the next one does not get it."""
    with _other(tmp_path, 0.5):
        threading.Timer(0.2, quarantine, ("GPU-1", "it hangs"), {"folder": tmp_path}).start()
        with (
            pytest.raises(InfraError, match="out of use"),
            device_lease("GPU-1", timeout_s=10, folder=tmp_path),
        ):
            pass
    lift_quarantine("GPU-1", folder=tmp_path)
    with device_lease("GPU-1", timeout_s=0, folder=tmp_path):
        pass


_USE = """
import sys
from pathlib import Path
from kopt_harness.lease import add_user
add_user("GPU-1", folder=Path(sys.argv[1]))
print("listed", flush=True)
sys.stdin.read()
"""


def test_another_kopt_on_a_device_is_no_stranger_while_it_lives(tmp_path: Path) -> None:
    """Its workers do not spoil a block; once it is killed, its number counts for nothing."""
    argv = [sys.executable, "-c", _USE, str(tmp_path)]
    for ends_by_itself in (True, False):
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "listed\n"
            assert users("GPU-1", folder=tmp_path) == {other.pid}
            assert users("GPU-2", folder=tmp_path) == set()
            if ends_by_itself:
                other.communicate("")
            else:
                other.kill()
        assert users("GPU-1", folder=tmp_path) == set()
        assert list(tmp_path.iterdir()) == []


def test_nobody_is_listed_by_others(tmp_path: Path) -> None:
    """A number with another start than the process has, or no record at all, is not believed."""
    for content in ("", "[]", '{"pid": 1}', f'{{"pid": {os.getpid()}, "began": 1.0}}'):
        (tmp_path / f"GPU-1.user-{os.getpid()}").write_text(content)
        assert users("GPU-1", folder=tmp_path) == set()
