"""Reports of ``ncu``: read, grouped, set-up left out, each bottleneck, failures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kopt_harness.diagnose import diagnose
from kopt_harness.diagnose.kernels import short_name
from kopt_harness.diagnose.units import parse_number, parse_quantity, scale
from kopt_harness.errors import InvalidInputError, ProfileError

Rows = Sequence[tuple[str, str, str]]
"""Name, unit, value."""

RNG = "void at::native::distribution_elementwise_grid_stride_kernel<float, 4>(long, T1)"
CAST = "void at::native::vectorized_elementwise_kernel<4, Cast>(int, T2)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"


def light(compute: float, memory: float, *, us: float = 20.0, dram: float = 0.0) -> Rows:
    """The rows of the section on throughputs."""
    return (
        ("Memory Throughput", "%", f"{memory}"),
        ("DRAM Throughput", "%", f"{dram}"),
        ("Duration", "us", f"{us}"),
        ("L2 Cache Throughput", "%", "1.5"),
        ("Compute (SM) Throughput", "%", f"{compute}"),
    )


def section(title: str, rows: Rows, advice: str = "") -> str:
    """A section of the details page."""
    heads = ("Metric Name", "Metric Unit", "Metric Value")
    cells = [heads, *rows]
    name, unit, value = (max(len(row[i]) for row in cells) for i in range(3))
    line = f"    {'-' * name} {'-' * unit} {'-' * value}"
    lines = [f"    Section: {title}", line]
    lines += [f"    {heads[0]:<{name}} {heads[1]:>{unit}} {heads[2]:>{value}}", line]
    lines += [f"    {row[0]:<{name}} {row[1]:>{unit}} {row[2]:>{value}}" for row in rows]
    lines += [line, ""]
    if advice:
        words, wrapped = advice.split(), [""]
        for word in words:
            if len(wrapped[-1]) + len(word) > 60:
                wrapped.append("")
            wrapped[-1] += f"{word} "
        lines += [f"    OPT   {wrapped[0]}", *(f"          {part}" for part in wrapped[1:]), ""]
    return "\n".join(lines) + "\n"


def heading(name: str, grid: str = "(640, 1, 1)", block: str = "(128, 1, 1)") -> str:
    """The line above a kernel's sections."""
    return f"  {name} {grid}x{block}, Context 1, Stream 7, Device 0, CC 9.0\n"


def kernel(
    name: str = "step_kernel(const float *, float *)",
    *,
    compute: float = 20.0,
    memory: float = 20.0,
    us: float = 20.0,
    dram: float = 0.0,
    waves: float | None = 4.0,
    grid: str = "(640, 1, 1)",
    more: Rows = (),
    advice: str = "",
) -> str:
    """One kernel of a report: throughputs, and what else is given."""
    text = heading(name, grid) + section(
        "GPU Speed Of Light Throughput", light(compute, memory, us=us, dram=dram), advice
    )
    rows = [] if waves is None else [("# SMs", "SM", "132"), ("Waves Per SM", "", f"{waves}")]
    return text + section("Launch Statistics", [*rows, *more]) if rows or more else text


def report(*kernels: str) -> str:
    """A report of these kernels, with what ``ncu`` says before them."""
    return "==PROF== Connected to process 77 (/bin/app)\n[77] app@127.0.0.1\n" + "".join(kernels)


def signature(folder: Path, *kernels: str) -> dict[str, Any]:
    """The signature of a report of these kernels."""
    found: dict[str, Any] = document(folder, report(*kernels))["signature"]
    return found


def document(folder: Path, text: str | bytes, name: str = "profile.txt") -> dict[str, Any]:
    """The document of a file with this text."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return diagnose(path).document()


def test_one_name_in_two_units_is_two_metrics(tmp_path: Path) -> None:
    """The percentage is the throughput; the rate beside it does not replace it."""
    more = (("Memory Throughput", "Gbyte/s", "812.5"),)
    found = document(tmp_path, report(kernel(memory=31.0, more=more)))["kernels"][0]
    assert found["memory_pct"] == 31.0
    assert found["metrics"]["Memory Throughput [%]"] == 31.0
    assert found["metrics"]["Memory Throughput [Gbyte/s]"] == 812.5


def test_units_are_scaled(tmp_path: Path) -> None:
    """Milliseconds become microseconds, Kbyte a thousand bytes, commas separate thousands."""
    more = (
        ("Duration", "ms", "1.5"),
        ("Static Shared Memory Per Block", "Kbyte/block", "36.99"),
        ("Dynamic Shared Memory Per Block", "byte/block", "1,024"),
        ("Registers Per Thread", "register/thread", "64"),
    )
    text = report(heading("k(int)") + section("Any", more))
    found = document(tmp_path, text)["kernels"][0]
    assert (found["duration_us"], found["smem_bytes"], found["registers"]) == (1500, 38014, 64)
    assert (found["name"], found["grid"], found["block"]) == ("k", [640, 1, 1], [128, 1, 1])


OLD = """[5] app@127.0.0.1
  sums(const float *, unsigned long), 2024-Apr-02 01:02:03, Context 1, Stream 7
    Section: GPU Speed Of Light
    ------------------------------ --------------- ---------------
    Elapsed Cycles                           cycle       4,412,358
    Memory [%]                                   %           91.50
    SOL DRAM                                     %           90.25
    Duration                               msecond            3.42
    SM [%]                                       %           12.00
    ------------------------------ --------------- ---------------
    OPT   This workload is utilizing much.

  other(int) (19, 1, 1)x(256, 1, 1)
    Section: Command line profiler metrics
    ------------------------- ----------- ------------
    Metric Name               Metric Unit Metric Value
    ------------------------- ----------- ------------
    gpu__time_duration.sum             us         1.25
    dram__throughput.avg                       (!) n/a
    ------------------------- ----------- ------------
"""


def test_reports_of_older_versions(tmp_path: Path) -> None:
    """Headings with a date, tables without headings, old names; a metric without a value."""
    found = document(tmp_path, OLD)
    first, second = found["kernels"]
    assert (first["name"], first["grid"], first["duration_us"]) == ("sums", None, 3420)
    assert (first["memory_pct"], first["dram_pct"], first["compute_pct"]) == (91.5, 90.25, 12)
    assert first["metrics"]["Elapsed Cycles [cycle]"] == 4412358
    assert found["signature"]["bottleneck"] == "memory-dram"
    assert (second["grid"], second["block"]) == ([19, 1, 1], [256, 1, 1])
    assert second["metrics"] == {"gpu__time_duration.sum [us]": 1.25}


def test_of_several_sentences_the_worst_counts(tmp_path: Path) -> None:
    """Loads use their sectors and stores do not; numbers may have commas."""
    loads = "access pattern for global loads: only 31.0 of the 32 bytes transmitted per sector"
    stores = loads.replace("loads", "stores").replace("31.0", "8.0")
    found = signature(tmp_path, kernel(memory=70.0, advice=loads), "    OPT   " + stores + "\n")
    assert found["bottleneck"] == "uncoalesced"
    conflicts = "which represent 81.6% of the overall 1,183,744 wavefronts for shared loads."
    assert signature(tmp_path, kernel(memory=70.0, advice=conflicts))["bottleneck"] == "shared-bank"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12.0),
        ("1,024.5", 1024.5),
        ("-3e2", -300.0),
        ("1,02", None),
        ("nan", None),
        ("9" * 300, None),
        ("", None),
    ],
)
def test_numbers(text: str, value: float | None) -> None:
    """Only a whole number in a spelling that profilers use is one."""
    assert parse_number(text) == value


def test_quantities() -> None:
    """Base units, with prefixes of 1000."""
    assert scale(2.0, "Tbyte/second") == (2e12, "byte/s")
    assert scale(3.0, "inst/cycle") == (3.0, "inst/cycle")
    assert parse_quantity("2.500ms") == (0.0025, "s")
    assert parse_quantity("seven") is None


def test_launches_of_a_kernel_stand_together(tmp_path: Path) -> None:
    """Two launches are one kernel; its figures are those of the median launch, as printed."""
    times = (9.0, 3.0, 5.0)
    kernels = [kernel(compute=t, us=t) for t in times]
    found = document(tmp_path, report(*kernels, kernel("other(int)", us=3.0)))
    first = found["kernels"][0]
    assert (first["name"], first["launches"]) == ("step_kernel", 3)
    assert (first["duration_us"], first["compute_pct"], first["total_us"]) == (5.0, 5.0, 17.0)
    assert first["share"] == pytest.approx(17 / 20)


def test_one_kernel_in_two_shapes_is_two_regimes(tmp_path: Path) -> None:
    """Each grid has a signature of its own, and the kernel shows the one with more time."""
    small = kernel(grid="(8, 1, 1)", waves=0.1, us=30.0, compute=2, memory=2)
    large = kernel(grid="(9000, 1, 1)", memory=85, dram=85, us=300.0)
    found = document(tmp_path, report(small, large))
    assert [r["bottleneck"] for r in found["regimes"]] == ["memory-dram", "underfill"]
    assert found["kernels"][0]["grid"] == [9000, 1, 1]


UNDERFILL = kernel(waves=0.11, compute=3.4, memory=2.6, us=5.4, grid="(1, 8, 64)")

CASES = {
    "underfill": UNDERFILL,
    "memory-dram": kernel(memory=88.0, dram=88.0),
    "memory-l2": kernel(memory=75.0, more=(("L2 Cache Throughput", "%", "1"),)).replace(
        "1.5", "74.0"
    ),
    "compute-fp": kernel(
        compute=90.0, advice="FMA is the highest-utilized pipeline (85.0%) based on cycles."
    ),
    "compute-tensor": kernel(
        compute=90.0,
        advice="Tensor (FP) is the highest-utilized pipeline (85.0%) based on cycles.",
    ),
    "balanced": kernel(compute=80.0, memory=85.0),
    "spill": kernel(
        more=(
            ("Local Memory Spilling Requests", "", "4096"),
            ("Local Memory Spilling Request Overhead", "%", "40"),
        )
    ),
    "uncoalesced": kernel(
        memory=70.0,
        dram=70.0,
        advice="The memory access pattern for global loads from L1TEX might not be optimal. "
        "On average, only 4.0 of the 32 bytes transmitted per sector are utilized.",
    ),
    "shared-bank": kernel(
        memory=70.0,
        advice="This results in 900 bank conflicts, which represent 45.0% of the overall 2000 "
        "wavefronts for shared loads.",
    ),
    "tail-wave": kernel(waves=1.1, compute=40.0, memory=30.0),
    "occupancy-registers": kernel(
        more=(
            ("Theoretical Occupancy", "%", "25"),
            ("Block Limit Registers", "block", "2"),
            ("Block Limit Shared Mem", "block", "8"),
            ("Block Limit Warps", "block", "16"),
        )
    ),
    "occupancy-smem": kernel(
        more=(
            ("Theoretical Occupancy", "%", "12.5"),
            ("Block Limit Registers", "block", "4"),
            ("Block Limit Shared Mem", "block", "1"),
        )
    ),
    "launch": kernel(us=1.8),
    "latency": kernel(),
    "unknown": heading("k(int)") + section("X", (("Duration", "us", "20"),)),
}


@pytest.mark.parametrize("bottleneck", CASES)
def test_bottlenecks(tmp_path: Path, bottleneck: str) -> None:
    """Each of the kernels has its own limiter, with rows that name the source of a threshold."""
    found = signature(tmp_path, CASES[bottleneck])
    assert found["bottleneck"] == bottleneck
    assert all(row["source"] for row in found["evidence"])
    assert (found["limiter"] is None) == (bottleneck == "unknown")
    assert bool(found["evidence"]) == (bottleneck != "unknown")


def test_a_small_grid_is_not_memory_bound(tmp_path: Path) -> None:
    """With 0.11 waves and both throughputs near 3 % the grid decides, and the headroom is large."""
    found = signature(tmp_path, UNDERFILL)
    rows = {row["metric"]: row["value"] for row in found["evidence"]}
    assert rows == {"waves_per_sm": 0.11, "compute_pct": 3.4, "memory_pct": 2.6, "duration_us": 5.4}
    assert "512 blocks on 132 SMs" in found["limiter"]
    assert found["headroom"] == pytest.approx(0.966)


def test_a_persistent_grid_under_one_wave_is_what_it_is_busy_with(tmp_path: Path) -> None:
    """Few blocks that keep the memory busy are no underfill."""
    assert signature(tmp_path, kernel(waves=0.5, memory=90, dram=90))["bottleneck"] == (
        "memory-dram"
    )


def test_low_occupancy_with_busy_schedulers_is_no_limit(tmp_path: Path) -> None:
    """Few warps matter only where schedulers find none to issue."""
    more = (
        ("Theoretical Occupancy", "%", "25"),
        ("No Eligible", "%", "20"),
        ("Block Limit Registers", "block", "2"),
        ("Block Limit Shared Mem", "block", "8"),
    )
    assert signature(tmp_path, kernel(more=more))["bottleneck"] == "latency"


def test_a_chain_of_short_kernels_is_launches(tmp_path: Path) -> None:
    """Ten kernels of 4 us are limited by being ten, whatever the longest of them does."""
    chain = [kernel(f"part{i}(int)", us=4.0 + i / 10) for i in range(10)]
    found = signature(tmp_path, *chain)
    assert (found["bottleneck"], found["dominant_kernel"]) == ("launch", "part9")


def test_random_inputs_are_ignored_and_said(tmp_path: Path) -> None:
    """Generators count nowhere; casts between two of them neither, after the last they do."""
    setup = [kernel(name, us=500.0) for name in (RNG, CAST)]
    text = report(*setup, setup[0], setup[1], kernel(us=8.0), setup[0])
    found = document(tmp_path, text)
    assert [k["name"] for k in found["kernels"]][1] == "step_kernel"
    assert {i["kind"]: i["launches"] for i in found["ignored"]} == {
        "random numbers": 3,
        "element-wise": 1,
    }
    assert any("4 launches" in note for note in found["notes"])


def test_fills_are_ignored_before_the_work_alone(tmp_path: Path) -> None:
    """A fill that follows the work may be part of it."""
    fill = kernel(FILL, us=9.0)
    found = document(tmp_path, report(fill, kernel(us=5.0), fill))
    assert {k["name"].split("<")[0].split("::")[-1]: k["launches"] for k in found["kernels"]} == {
        "vectorized_elementwise_kernel": 1,
        "step_kernel": 1,
    }


def test_a_profile_of_set_up_alone_is_an_error(tmp_path: Path) -> None:
    """Nothing that was meant was profiled, and the exit code says so."""
    with pytest.raises(ProfileError, match="prepare inputs") as caught:
        document(tmp_path, report(kernel(RNG)))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "ERR_NVGPUCTRPERM"),
        ("==ERROR== Failed to initialize: LibraryNotLoaded. Check", "LibraryNotLoaded"),
        ("==WARNING== No kernels were profiled.", "no kernel was profiled"),
        ("==ERROR== The sky fell", "The sky fell"),
        ("==PROF== Disconnected", "no kernel was profiled"),
    ],
)
def test_failed_reports_name_the_cause(tmp_path: Path, said: str, cause: str) -> None:
    """A report without kernels is an error with its cause and a remedy."""
    with pytest.raises(ProfileError, match=cause) as caught:
        document(tmp_path, f"==PROF== Connected to process 5\n{said}\n")
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_what_is_no_profile_is_a_usage_error(tmp_path: Path) -> None:
    """Unknown text is the user's to put right."""
    with pytest.raises(InvalidInputError, match="no profile of a format"):
        document(tmp_path, "hello\n")
    with pytest.raises(InvalidInputError, match="not a file"):
        diagnose(tmp_path)


def test_names_lose_parameters_and_keep_template_arguments() -> None:
    """The parameter list is the last parenthesis, however nested."""
    assert short_name("void ns::k<int, (A)1>(float *, void (*)(int))") == "ns::k<int, (A)1>"
    assert short_name("triton_kernel") == "triton_kernel"
    assert short_name("odd)") == "odd)"
