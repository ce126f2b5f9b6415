import importlib.metadata
import json
from pathlib import Path

import pytest
from kopt_harness import doctor, lease
from kopt_harness.doctor import examine, find_program
from kopt_harness.root import Root
from kopt_harness.sandbox.probe import BARRIERS
from kopt_harness.targets import list_targets


@pytest.fixture(scope="module")
def report() -> doctor.Report:
    """One look at this machine."""
    return examine(Root(Path(__file__).resolve().parents[2]))


def test_document_has_the_promised_fields(report: doctor.Report) -> None:
    """The JSON document has what the command line promises, and is JSON."""
    document = json.loads(json.dumps(report.document()))
    for target in document["targets"]:
        assert {"name", "present", "can_build", "can_run", "reason"} <= set(target)
    for tool in document["tools"]:
        assert {"name", "version", "ok", "hint"} <= set(tool)
    assert document["isolation"]


def test_every_target_is_reported(report: doctor.Report) -> None:
    """Each target module appears, and what cannot run says why."""
    assert {target.name for target in report.targets} == {target.name for target in list_targets()}
    for target in report.targets:
        assert target.reason
        assert target.present or not target.can_run


def test_whatever_is_missing_has_a_hint(report: doctor.Report) -> None:
    """A tool is either there, or the report says how to get it."""
    for tool in report.tools:
        assert tool.ok == (not tool.hint), tool


def test_versions_are_those_of_the_packages(report: doctor.Report) -> None:
    """Package versions come from their metadata."""
    numpy = next(tool for tool in report.tools if tool.name == "numpy")
    assert numpy.version == importlib.metadata.version("numpy")


def test_a_program_that_is_not_there_is_reported() -> None:
    """An absent program is not ok and keeps its hint."""
    tool = find_program("no-such-program", kind="agent", hint="install it")
    assert (tool.ok, tool.version, tool.hint) == (False, "", "install it")


def test_a_program_that_fails_has_no_version(tmp_path: Path) -> None:
    """A program without a version is there all the same."""
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    assert find_program("tool", kind="agent", hint="h", path=str(program)).ok


def test_disk_and_root_are_reported(report: doctor.Report) -> None:
    """Free space is that of the root's file system."""
    assert 0 < report.disk["free_bytes"] <= report.disk["total_bytes"]
    assert report.platform["root"] == report.disk["path"]


def test_isolation_names_each_namespace(report: doctor.Report) -> None:
    """Every namespace is reported as granted or not, and Landlock by its version."""
    names = {"user", "pid", "network", "mount", "ipc", "uts"}
    assert set(report.isolation["namespaces"]) == names
    assert report.isolation["landlock_abi"] is None or report.isolation["landlock_abi"] > 0


def test_a_process_in_a_sandbox_has_really_been_started(report: doctor.Report) -> None:
    """What was granted comes from the process itself, with how long it took."""
    sandbox = report.isolation["sandbox"]
    assert sandbox["starts"], sandbox["reason"]
    assert sandbox["start_ms"] > sandbox["record"]["enter_ms"] > 0
    assert report.isolation["other_uid"] == sandbox["record"]["other_uid"]


def test_barriers_are_probed_and_not_inferred(report: doctor.Report) -> None:
    """Wherever namespaces or Landlock are granted, the probe does not get out."""
    sandbox = report.isolation["sandbox"]
    assert set(sandbox["holds"]) == set(BARRIERS)
    if sandbox["record"]["own_root"] or sandbox["record"]["landlock"]:
        assert sandbox["holds"]["files"]
        assert sandbox["holds"]["memory"]
    if sandbox["record"]["network_namespace"]:
        assert sandbox["holds"]["network"]


def test_a_device_out_of_use_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why it is, until it is lifted."""
    monkeypatch.setattr(lease, "_shared_folder", lambda: tmp_path)
    lease.quarantine(lease.CPU_DEVICE, "a process cannot be ended")
    (found,) = examine().quarantine
    assert (found["device"], found["reason"]) == ("cpu", "a process cannot be ended")
    assert lease.lift_quarantine(lease.CPU_DEVICE)
    assert examine().quarantine == ()


def test_counters_are_for_whom_the_driver_says(tmp_path: Path) -> None:
    """A restricted driver lets root alone; an open one everybody; none lets nobody."""
    path = tmp_path / "params"
    path.write_text("ModifyDeviceFiles: 1\nRmProfilingAdminOnly: 1\n")
    assert doctor.counters(path, is_root=True).ok
    refused = doctor.counters(path, is_root=False)
    assert (refused.ok, "NVreg_RestrictProfilingToAdminUsers=0" in refused.hint) == (False, True)
    path.write_text("RmProfilingAdminOnly: 0\n")
    assert doctor.counters(path, is_root=False).ok
    path.write_text("ModifyDeviceFiles: 1\n")
    assert "does not say" in doctor.counters(path, is_root=True).hint
    absent = doctor.counters(tmp_path / "absent", is_root=True)
    assert (absent.ok, absent.kind) == (False, "profiler")
