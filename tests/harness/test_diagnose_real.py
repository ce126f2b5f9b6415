"""Reports that other people took on a B200, diagnosed as an expert would, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kopt_harness.diagnose import diagnose
from kopt_harness.diagnose.units import parse_number
from kopt_harness.errors import ProfileError

DATA = Path(__file__).parents[3] / "shared" / "data" / "ncu"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no data beside the checkout")


def read(name: str) -> dict[str, Any]:
    """The document of a report."""
    return diagnose(DATA / name).document()


def test_decode_with_512_blocks_is_underfill_and_launch() -> None:
    """0.11 waves with SM 3.4 % and memory 2.6 %: no unit is busy, the grid is what is small."""
    # At 1.3 % of DRAM's peak nothing is gained from moving fewer bytes, so memory-bound would
    # send the next round the wrong way, although the operator's cost model is all bytes.
    found = read("gdn_decode__ok__f805f5c0.txt")
    kernel, signature = found["kernels"][0], found["signature"]
    assert (kernel["compute_pct"], kernel["memory_pct"]) == (3.44, 2.6)
    assert kernel["waves_per_sm"] == 0.11
    assert signature["bottleneck"] == "underfill"
    assert "512 blocks on 148 SMs" in signature["limiter"]
    assert "launch" in signature["limiter"]
    assert signature["headroom"] > 0.9
    assert found["ignored"] == []


@pytest.mark.parametrize(
    ("name", "blocks", "us"),
    [("2284c3c3", 8, 27.84), ("4c0e9d2b", 1024, 5.79), ("8413c14b", 512, 5.5)],
)
def test_the_other_decode_reports_are_underfill(name: str, blocks: int, us: float) -> None:
    """Eight blocks use 8 of 148 SMs; 1024 small ones fit at once and are 0.43 of a wave."""
    found = read(f"gdn_decode__ok__{name}.txt")
    assert found["signature"]["bottleneck"] == "underfill"
    assert f"{blocks} blocks" in found["signature"]["limiter"]
    assert found["kernels"][0]["duration_us"] == us
    assert ("launch" in found["signature"]["limiter"]) == (us < 10)


@pytest.mark.parametrize("name", ["01f6760a", "a3ad47b9"])
def test_the_split_kernel_of_sparse_attention_dominates(name: str) -> None:
    """The generators take forty times as long and count for nothing; the split leads its sum.

    64 blocks on 148 SMs are 0.22 of a wave, so the split should go further, and at 8 us for
    each of the two kernels a fused reduction would save a launch.
    """
    found = read(f"dsa_attn__ok__{name}.txt")
    assert [k["name"] for k in found["kernels"]] == [
        "split_k_compute_kernel",
        "split_k_reduce_kernel",
    ]
    assert [(i["launches"], i["kind"]) for i in found["ignored"]] == [(4, "random numbers")]
    signature = found["signature"]
    assert signature["dominant_kernel"] == "split_k_compute_kernel"
    assert 0.5 < signature["share"] < 0.6
    assert signature["bottleneck"] == "underfill"
    assert found["kernels"][0]["smem_bytes"] == 36990


def test_one_block_of_sparse_attention_is_underfill_without_launch() -> None:
    """One block on 148 SMs for 128 us: a launch of a few us is no part of it."""
    found = read("dsa_attn__ok__137e55b0.txt")
    assert found["signature"]["dominant_kernel"] == "dsa_forward_kernel"
    assert found["signature"]["bottleneck"] == "underfill"
    assert "launch" not in found["signature"]["limiter"]
    assert sum(i["launches"] for i in found["ignored"]) == 4


def test_the_failed_report_is_an_error_with_its_cause() -> None:
    """The profiler never started: nothing in the file is a measurement."""
    with pytest.raises(ProfileError, match="LibraryNotLoaded") as caught:
        read("dsa_attn__err__047be2bb.txt")
    assert caught.value.exit_code == 3
    assert "driver" in caught.value.hint


def test_experts_between_many_small_operators_are_launches() -> None:
    """Two Triton products take a fifth; the rest are 126 launches of sorts, scans and copies."""
    # The weights are drawn, clamped and cast before: 15 launches that take seven times as long
    # as all the others, and none of them is the work. A product that took no time at all would
    # save a tenth.
    found = read("moe__e05c6c03.txt")
    kernels, signature = found["kernels"], found["signature"]
    assert [k["name"] for k in kernels[:2]] == ["_gemm1_kernel", "_gemm2_kernel"]
    assert sum(k["launches"] for k in kernels) == 130
    ignored_us = sum(i["duration_us"] for i in found["ignored"])
    assert sum(i["launches"] for i in found["ignored"]) == 15
    assert ignored_us > 7 * sum(k["total_us"] for k in kernels)
    assert signature["bottleneck"] == "launch"
    assert signature["share"] < 0.15
    both = [r for r in found["regimes"] if r["kernel"].startswith("_gemm")]
    assert [r["bottleneck"] for r in both] == ["underfill", "underfill"]


def test_every_number_stands_in_the_report() -> None:
    """A rate and a percentage of one name are two metrics, each as printed."""
    metrics = read("gdn_decode__ok__f805f5c0.txt")["kernels"][0]["metrics"]
    assert metrics["Memory Throughput [%]"] == 2.6
    assert metrics["Memory Throughput [Gbyte/s]"] == 99.03
    assert metrics["Registers Per Thread [register/thread]"] == 30
    words = (DATA / "gdn_decode__ok__f805f5c0.txt").read_text().split()
    assert set(metrics.values()) <= set(map(parse_number, words))
