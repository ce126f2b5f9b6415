"""``kopt diagnose``: document, table, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kopt_controller.cli import main

REPORT = """==PROF== Connected to process 5
  step(float *) (64, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    Memory Throughput                 %         12.50
    Duration                         us         9.75
    Compute (SM) Throughput           %        31.00
    Waves Per SM                               0.24
    ----------------------- ----------- ------------
"""
FAILED = "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - no permission\n"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report of one kernel."""
    path = tmp_path / "report.txt"
    path.write_text(REPORT)
    return path


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """What a profiler without permission printed."""
    path = tmp_path / "failed.txt"
    path.write_text(FAILED)
    return path


def test_document_has_the_fields_of_the_contract(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every field is there; what the report does not say is null."""
    assert main(["diagnose", str(report), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"schema", "source", "kernels", "ignored", "signature"} <= set(document)
    assert document["source"] == str(report)
    kernel = document["kernels"][0]
    fields = (
        "name launches share duration_us grid block registers smem_bytes "
        "occupancy_theoretical_pct occupancy_achieved_pct waves_per_sm compute_pct memory_pct "
        "dram_pct l2_pct spills metrics"
    )
    assert set(fields.split()) <= set(kernel)
    assert kernel["registers"] is None
    signature = document["signature"]
    fields = "dominant_kernel share bottleneck limiter evidence headroom"
    assert set(signature) == set(fields.split())
    assert set(signature["evidence"][0]) == {"metric", "value", "threshold", "source"}


def test_table_names_the_bottleneck_and_its_numbers(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person sees the kernel, what limits it, and against which thresholds."""
    assert main(["diagnose", str(report)]) == 0
    out = capsys.readouterr().out
    assert "bottleneck  underfill" in out
    assert "waves_per_sm 0.24 against 1" in out


def test_a_failed_report_exits_3_with_the_cause(
    failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cause and the remedy are the document."""
    assert main(["diagnose", str(failed), "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert "ERR_NVGPUCTRPERM" in document["error"]
    assert document["hint"]


def test_several_files_are_all_answered(
    report: Path, failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that fails does not hide the others, and still decides the exit code."""
    assert main(["diagnose", str(report), str(failed), "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert [r["source"] for r in document["reports"]] == [str(report)]
    assert [e["source"] for e in document["errors"]] == [str(failed)]
    assert main(["diagnose", str(report), str(failed)]) == 3
    out, err = capsys.readouterr()
    assert "underfill" in out
    assert "hint:" in err


def test_no_profile_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of another kind, and one that is not there, exit 2."""
    other = tmp_path / "notes.txt"
    other.write_text("hello\n")
    assert main(["diagnose", str(other)]) == 2
    assert main(["diagnose", str(tmp_path / "absent")]) == 2
    assert "reads" in capsys.readouterr().err
