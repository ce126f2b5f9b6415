"""Whose kernels were launched, by names as an H200 records them and as nvcc's tools print them."""

from __future__ import annotations

import pytest
from kopt_harness.own_kernels import kernel_flags
from kopt_harness.schema import Artefact, BuildResult, Flag, Solution, SolutionRef

TOPK = (
    "void topk::index_rows<true>(topk::Problem)",
    "topk::select_rows(topk::Problem)",
    "void (anonymous namespace)::local<2>(float*)",
    "copy_all",
)
OWN = [
    "_ZN4topk10index_rowsILb1EEEvNS_7ProblemE",
    "_ZN4topk11select_rowsENS_7ProblemE",
    "_ZN50_GLOBAL__N__fa15d16e_17_RangeFactories_cu_38772b085localILi2EEEvPf",
    "_ZN4topkL5localILi2EEEvPf",
    "copy_all",
]
TORCH = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIiEEEEviT0_T1_"
VENDORS = [
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4_kernel__5x_cublas",
    "_ZN9deep_gemm25sm90_fp8_paged_mqa_logitsILj1ELj64EEEvjjj",
    "_ZN10flashinfer8sampling23RadixTopKKernel_UnifiedILj1024EEEvPf",
    "ampere_sgemm_32x32_sliced1x4_nn",
    "_ZN7cutlass6KernelINS_4gemm6kernel4GemmEEEvNT_6ParamsE",
]


def flags(
    make_solution, names: list[str], *, language: str = "cuda", own: tuple[str, ...] = TOPK
) -> tuple[Flag, ...]:
    """Of a solution whose calls launched kernels of these names."""
    made: Solution = make_solution("def run(): ...")
    spec = made.spec.model_copy(update={"language": language})
    solution = made.model_copy(update={"spec": spec})
    artefacts = [Artefact(kind="cubin", arch="sm_90a", name=name, registers=32) for name in own]
    artefacts.append(Artefact(kind="shared-object", arch="x86_64", name="solution.so"))
    built = BuildResult(
        solution=SolutionRef(name="it", definition="d", sha256="0" * 64),
        target="h200",
        ok=True,
        artefacts=tuple(artefacts),
        key="k",
    )
    kernels = [{"name": name, "ns": 1000, "count": 1} for name in names]
    return kernel_flags(solution, built, {"launches": [len(names)], "kernels": kernels})


@pytest.mark.parametrize("name", OWN)
def test_an_instance_of_an_own_kernel_is_recognised(make_solution, name: str) -> None:
    """Templates, namespaces, kernels of one file; what PyTorch launches beside is no vendor's."""
    assert flags(make_solution, [name, TORCH]) == ()


def test_a_kernel_for_show_is_flagged(make_solution) -> None:
    """It is in the build, and nothing of it has run."""
    (flag,) = flags(make_solution, [TORCH])
    assert flag.code == "no-candidate-kernel"
    assert "index_rows" in flag.detail
    assert "vectorized_elementwise_kernel" in flag.detail


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_vendors_kernel_is_flagged(make_solution, vendor: str) -> None:
    """Wherever it was called from, and beside own kernels too."""
    (flag,) = flags(make_solution, [OWN[0], vendor])
    assert flag.code == "library-call"
    assert vendor[:40] in flag.detail


def test_own_kernels_may_be_called_as_they_like(make_solution) -> None:
    """A template of CUTLASS in the solution's own build is its own work."""
    own = ("void cutlass::Kernel<cutlass::gemm::kernel::Gemm>(cutlass::Params)",)
    assert flags(make_solution, [VENDORS[-1]], own=own) == ()


@pytest.mark.parametrize(
    ("names", "language", "own"),
    [([], "cuda", TOPK), ([TORCH], "python", TOPK), ([TORCH], "cuda", ())],
    ids=["no records", "kernels named by a library", "nothing known of the build"],
)
def test_without_names_nothing_is_said(
    make_solution, names: list[str], language: str, own: tuple[str, ...]
) -> None:
    """Neither way."""
    assert flags(make_solution, names, language=language, own=own) == ()
