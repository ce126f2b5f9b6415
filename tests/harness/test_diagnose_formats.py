"""Profiles in other formats than a report's text, and damaged files of all of them."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kopt_harness.diagnose import diagnose
from kopt_harness.diagnose.readers import list_readers
from kopt_harness.errors import InvalidInputError, KoptError, ProfileError, UnavailableError


def document(folder: Path, text: str | bytes, name: str = "profile.txt") -> dict[str, Any]:
    """The document of a file with this text."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return diagnose(path).document()


def trace(*events: Mapping[str, Any]) -> str:
    """A Chrome trace."""
    return json.dumps({"traceEvents": [{"ph": "X", "pid": 0, "tid": 7, **e} for e in events]})


REPORT = """==PROF== Connected to process 5
  step(float *) (64, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    Memory Throughput                 %        12.50
    Duration                         us         9.75
    Compute (SM) Throughput           %        31.00
    ----------------------- ----------- ------------

    OPT   FMA is the highest-utilized pipeline (20.5%) based on active
          cycles.

    Section: Launch Statistics
    ------------------------- --------------- ------------
    Metric Name                   Metric Unit Metric Value
    ------------------------- --------------- ------------
    Registers Per Thread      register/thread           40
    Waves Per SM                                      0.24
    ------------------------- --------------- ------------

"""


def sheet(*rows: Sequence[str]) -> str:
    """CSV in which every cell is quoted, below what ``ncu`` says first."""
    made = io.StringIO("==PROF== Connected to process 5\n")
    made.seek(0, io.SEEK_END)
    csv.writer(made, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return made.getvalue()


IDS = ("ID", "Process ID", "Kernel Name", "Grid Size", "Block Size")
LAUNCH = ("0", "5", "gemm(float *, int)", "(8, 1, 1)", "(128, 1, 1)")
LONG = sheet(
    (*IDS, "Metric Name", "Metric Unit", "Metric Value", "Rule Description"),
    (*LAUNCH, "Duration", "usecond", "1,250.00", ""),
    (*LAUNCH, "Memory Throughput", "%", "91.0", ""),
    (*LAUNCH, "Compute (SM) Throughput", "%", "40", ""),
    (*LAUNCH, "", "", "", "FMA is the highest-utilized pipeline (30%)"),
    ("1", *LAUNCH[1:], "Duration", "usecond", "1,250.00", ""),
)
SHARES = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
)
RAW = sheet(
    (*IDS, "gpu__time_duration.sum", "launch__registers_per_thread", *SHARES),
    ("", "", "", "", "", "ns", "register/thread", "%", "%", "%"),
    ("0", "5", "gemm(float *)", "(8, 4, 1)", "(64, 1, 1)", "12,500", "168", "12.5", "92", "90"),
)


def test_csv_with_a_metric_a_row(tmp_path: Path) -> None:
    """Rows of one launch stand together; the launches are told apart by their ids."""
    found = document(tmp_path, LONG, "a.csv")
    first = found["kernels"][0]
    assert (found["format"], first["launches"], first["total_us"]) == ("ncu-csv", 2, 2500)
    assert (first["grid"], first["memory_pct"]) == ([8, 1, 1], 91)
    assert found["signature"]["bottleneck"] == "memory-dram"
    assert "does not say which level" in found["signature"]["limiter"]


def test_csv_with_a_launch_a_row(tmp_path: Path) -> None:
    """The second line has the units; metrics have their raw names."""
    found = document(tmp_path, RAW, "raw.csv")
    first = found["kernels"][0]
    assert (first["duration_us"], first["registers"], first["grid"]) == (12.5, 168, [8, 4, 1])
    assert (first["block"], first["dram_pct"]) == ([64, 1, 1], 90)
    assert found["signature"]["bottleneck"] == "memory-dram"


TABLE_ROWS = (
    ("Name", "Self CPU %", "Self CPU", "Self CUDA", "CUDA total", "# of Calls"),
    ("aten::mm", "60.0%", "900.000us", "400.000us", "400.000us", "20"),
    ("aten::randn", "10.0%", "100.000us", "700.000us", "700.000us", "1"),
    ("gemm_kernel<32>", "0.00%", "0.000us", "400.000us", "400.000us", "20"),
    ("philox_kernel", "0.00%", "0.000us", "700.000us", "700.000us", "1"),
)
RULE = "  ".join(["-" * 17, *["-" * 12] * 5])
LINES = [f"{row[0]:>17}  " + "  ".join(f"{cell:>12}" for cell in row[1:]) for row in TABLE_ROWS]
TOTALS = ("Self CPU time total: 1.000ms", "Self CUDA time total: 1.100ms")
TABLE = "\n".join((RULE, LINES[0], RULE, *LINES[1:], RULE, *TOTALS, ""))


def test_tables_of_a_gpu_count_kernels_once(tmp_path: Path) -> None:
    """The operator's device time is its kernel's; generators are ignored by name."""
    found = document(tmp_path, TABLE)
    first = found["kernels"][0]
    assert (len(found["kernels"]), first["name"], first["launches"]) == (1, "gemm_kernel<32>", 20)
    assert (first["duration_us"], first["total_us"]) == (20, 400)
    assert found["ignored"][0]["name"] == "philox_kernel"
    assert found["signature"]["bottleneck"] == "unknown"


def test_tables_of_a_cpu_have_operators(tmp_path: Path) -> None:
    """Without a device's column the operators' own time counts."""
    text = TABLE.replace("Self CUDA", "CPU total")
    found = document(tmp_path, text)
    assert [k["name"] for k in found["kernels"]] == ["aten::mm"]
    assert found["kernels"][0]["total_us"] == 900


def kernel_event(start: float, us: float, name: str = "step") -> dict[str, Any]:
    """A kernel of a trace."""
    arguments = {"grid": [300, 1, 1], "block": [64, 1, 1], "registers per thread": 40}
    return {"name": name, "cat": "kernel", "ts": start, "dur": us, "args": arguments}


def test_traces_with_gaps(tmp_path: Path) -> None:
    """Short kernels with gaps are launches, long ones wait for the host, without gaps neither."""
    short = document(tmp_path, trace(*(kernel_event(20.0 * i, 4.0) for i in range(10))))
    long = document(tmp_path, trace(*(kernel_event(500.0 * i, 90.0) for i in range(10))))
    dense = document(tmp_path, trace(*(kernel_event(90.0 * i, 90.0) for i in range(10))))
    assert [d["signature"]["bottleneck"] for d in (short, long, dense)] == [
        "launch",
        "host",
        "unknown",
    ]
    assert short["signature"]["headroom"] == pytest.approx(1 - 40 / 184)
    first = short["kernels"][0]
    assert (first["grid"], first["registers"], first["launches"]) == ([300, 1, 1], 40, 10)


def test_streams_that_overlap_are_busy_once(tmp_path: Path) -> None:
    """Two kernels at a time do not fill the gap after them."""
    pair = [kernel_event(0.0, 100.0), kernel_event(10.0, 80.0), kernel_event(900.0, 100.0)]
    found = document(tmp_path, trace(*pair))["signature"]
    assert found["headroom"] == pytest.approx(0.8)


def test_operators_of_a_trace_count_their_own_time(tmp_path: Path) -> None:
    """What an operator spends in others that it calls is theirs; a compressed trace is read."""
    outer = {"name": "aten::linear", "cat": "cpu_op", "ts": 0, "dur": 100}
    inner = {"name": "aten::addmm", "cat": "cpu_op", "ts": 10, "dur": 70}
    after = {"name": "aten::relu", "cat": "cpu_op", "ts": 100, "dur": 5}
    text = trace(outer, inner, after)
    found = document(tmp_path, gzip.compress(text.encode()), "trace.json.gz")
    assert {k["name"]: k["total_us"] for k in found["kernels"]} == {
        "aten::addmm": 70,
        "aten::linear": 30,
        "aten::relu": 5,
    }


@pytest.mark.skipif(
    shutil.which("ncu") is not None or importlib.util.find_spec("ncu_report") is not None,
    reason="Nsight Compute is here",
)
def test_binary_reports_without_nsight_compute(tmp_path: Path) -> None:
    """The error says what is missing and how the report can be read elsewhere."""
    with pytest.raises(UnavailableError, match="ncu_report or ncu") as caught:
        document(tmp_path, b"NVR\x00\x01\x02", "x.ncu-rep")
    assert "ncu --import" in caught.value.hint


def put_ncu(folder: Path, script: str) -> Path:
    """A program called ``ncu`` in a folder of its own, which is returned."""
    program = folder / "nsight" / "ncu"
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o755)
    return program.parent


NO_PACKAGE = pytest.mark.skipif(
    importlib.util.find_spec("ncu_report") is not None, reason="ncu_report is here"
)


@NO_PACKAGE
def test_binary_reports_by_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, ncu turns a report into CSV; what it cannot read is an error."""
    (tmp_path / "raw.csv").write_text(RAW)
    script = f'#!/bin/sh\n[ "$1 $3 $5" = "--import --csv raw" ] && cat "{tmp_path}/raw.csv"\n'
    folder = put_ncu(tmp_path, script)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    found = document(tmp_path, b"NVR\x00\x01", "x.ncu-rep")
    assert (found["format"], found["kernels"][0]["duration_us"]) == ("ncu-rep", 12.5)
    (folder / "ncu").write_text("#!/bin/sh\necho the report is newer than this ncu\nexit 1\n")
    with pytest.raises(ProfileError, match="the report is newer"):
        document(tmp_path, b"NVR\x00\x01", "x.ncu-rep")


PACKAGE = """
class Metric:
    def __init__(self, value, unit):
        self.value, self.unit = (lambda: value), (lambda: unit)

METRICS = {
    "gpu__time_duration.sum": Metric(12500, "ns"),
    "launch__grid_dim_x": Metric(8, ""),
    "launch__grid_dim_y": Metric(4, ""),
    "launch__grid_dim_z": Metric(1, ""),
    "launch__registers_per_thread": Metric(168, "register/thread"),
    "device__attribute_display_name": Metric("a device", ""),
}

class Action:
    def name(self): return "gemm"
    def metric_names(self): return tuple(METRICS)
    def metric_by_name(self, name): return METRICS[name]

class Range:
    def num_actions(self): return 2
    def action_by_idx(self, i): return Action()

class Report:
    def num_ranges(self): return 1
    def range_by_idx(self, i): return Range()

def load_report(path):
    if "bad" in path:
        raise RuntimeError("cannot open")
    return Report()
"""


@NO_PACKAGE
def test_binary_reports_by_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package beside the program is asked first, and leaves the search path as it was."""
    folder = put_ncu(tmp_path, "#!/bin/sh\nexit 9\n")
    extras = folder / "extras" / "python"
    extras.mkdir(parents=True)
    (extras / "ncu_report.py").write_text(PACKAGE)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    before = list(sys.path)
    try:
        found = document(tmp_path, b"NVR\x00\x01", "x.ncu-rep")
        with pytest.raises(ProfileError, match="cannot open"):
            document(tmp_path, b"NVR\x00\x01", "bad.ncu-rep")
    finally:
        sys.modules.pop("ncu_report", None)
    (gemm,) = found["kernels"]
    assert (gemm["launches"], gemm["duration_us"], gemm["registers"]) == (2, 12.5, 168)
    assert (gemm["grid"], gemm["block"]) == ([8, 4, 1], None)
    assert sys.path == before


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    """A cut trace and a cut archive are named, and are no traceback."""
    with pytest.raises(InvalidInputError, match="not valid JSON"):
        document(tmp_path, '{"traceEvents": [{"ph": "X"', "cut.json")
    with pytest.raises(InvalidInputError, match="cannot read"):
        document(tmp_path, gzip.compress(b"x" * 1000)[:20], "cut.json.gz")


WHOLE = {
    "a.txt": REPORT,
    "a.csv": LONG,
    "b.csv": RAW,
    "t.txt": TABLE,
    "t.json": trace(kernel_event(0, 5), kernel_event(50, 5)),
}


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(WHOLE)),
    cut=st.floats(0, 1),
    at=st.floats(0, 1),
    junk=st.one_of(
        st.text(max_size=12),
        st.sampled_from(["\x00", "----- ---", ",", '"', "9" * 400, "9" * 300, " " * 5000]),
    ),
)
def test_truncated_and_garbled_files(
    tmp_path_factory: pytest.TempPathFactory, name: str, cut: float, at: float, junk: str
) -> None:
    """Any damage is a diagnosis that can be printed, or one of our errors."""
    text = WHOLE[name][: int(len(WHOLE[name]) * cut)]
    place = int(len(text) * at)
    garbled = (text[:place] + junk + text[place:]).encode("utf-8", errors="surrogatepass")
    folder = tmp_path_factory.getbasetemp()
    try:
        found = document(folder, garbled, name)
    except KoptError:
        return
    json.dumps(found, allow_nan=False)


def test_every_reader_is_found() -> None:
    """The folder is the list."""
    assert [reader.name for reader in list_readers()] == [
        "chrome-trace",
        "ncu-csv",
        "ncu-rep",
        "ncu-text",
        "torch-table",
    ]
