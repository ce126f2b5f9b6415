"""Machine code: what is read in a listing and in a cubin, and what cannot be."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.cubin import find_cuobjdump, parse_code
from kopt_harness.errors import InvalidInputError, ProfileError, UnavailableError, UsageError
from kopt_harness.ledger import DictLedger
from kopt_harness.local import LocalHarness
from kopt_harness.options import MeasureOptions
from kopt_harness.profile import read_build, reads_builds, run_profiler
from kopt_harness.profiled import profile_build
from kopt_harness.schema import Definition, Profile, Workload
from kopt_harness.setting import Setting
from kopt_harness.targets import get_target

LISTING = """
	code for sm_90a
		Function : first
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   FFMA R1, R2, R3, R4 ;       /* 0x0 */
                                                               /* 0x0 */
        /*0010*/              @!P0 LDG.E.64 R2, desc[UR4][R2.64] ; /* 0x0 */
        /*0020*/             @!UPT UIADD3 URZ, URZ, URZ, URZ ; /* 0x0 */
        /*0030*/                   FFMA.FTZ R1, R2, R3, R4 ;   /* 0x0 */
        /*0040*/                   NOP;                        /* 0x0 */
		Function : _Z6secondPf
        /*0000*/                   EXIT ;                      /* 0x0 */
"""

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry stage(.param .u64 out, .param .u32 at)
{
  .shared .align 4 .b8 tile[512];
  .local .align 4 .b8 mine[64];
  .reg .f32 %f<8>;
  .reg .b32 %r<4>;
  .reg .b64 %a<8>;
  ld.param.u64 %a1, [out];
  ld.param.u32 %r1, [at];
  cvta.to.global.u64 %a2, %a1;
  mul.wide.u32 %a3, %r1, 4;
  mov.u64 %a4, mine;
  add.u64 %a5, %a4, %a3;
  ld.global.f32 %f1, [%a2];
  st.local.f32 [%a5], %f1;
  mov.f32 %f6, 0f40000000;
  st.local.f32 [%a5+4], %f6;
  ld.global.u32 %r2, [%a2+4];
  mul.wide.u32 %a6, %r2, 4;
  add.u64 %a7, %a4, %a6;
  ld.local.f32 %f2, [%a7];
  st.shared.f32 [tile], %f2;
  bar.sync 0;
  ld.shared.f32 %f3, [tile+4];
  fma.rn.f32 %f4, %f3, %f1, %f2;
  sqrt.approx.f32 %f5, %f4;
  st.global.f32 [%a2], %f5;
  ret;
}
"""


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel that loads, spills to an array, shares, waits, multiplies and stores."""
    tool = find_cuobjdump()
    ptxas = None if tool is None else Path(tool).with_name("ptxas")
    if ptxas is None or not ptxas.is_file():
        pytest.skip("no ptxas beside cuobjdump: pip install triton")
    folder = tmp_path_factory.mktemp("cubin")
    (folder / "stage.ptx").write_text(PTX)
    made = folder / "stage.cubin"
    command = [ptxas, "-arch=sm_90a", folder / "stage.ptx", "-o", made]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


@pytest.fixture
def absent_gpu(setting: Setting, tmp_path: Path) -> Setting:
    """A GPU target, which need not be here, with a build cache of its own."""
    return Setting(setting.catalog, get_target("h200"), MeasureOptions(), tmp_path / "builds")


@pytest.fixture
def workload(catalog: Catalog, gdn_decode: Definition) -> Workload:
    """The smallest."""
    return catalog.workloads(gdn_decode)[0]


def test_listings() -> None:
    """Predicates and suffixes are no part of an opcode; padding is not counted."""
    first, second = parse_code(LISTING)
    assert (first.name, first.arch) == ("first", "sm_90a")
    assert first.opcodes == {"FFMA": 2, "LDG": 1, "UIADD3": 1}
    assert second.opcodes == {"EXIT": 1}
    assert parse_code("nothing\n") == ()


def test_a_cubin_says_what_its_kernel_takes(cubin: Path) -> None:
    """Resources, spills and the classes of what its source asks for."""
    fields = read_build("sass", [cubin])
    assert (fields["total_us"], fields["kernels"]) == (None, [])
    (kernel,) = fields["compiled"]
    assert (kernel["name"], kernel["arch"]) == ("stage", "sm_90a")
    assert kernel["smem_bytes"] >= 512
    assert kernel["stack_bytes"] >= 64
    assert 0 < kernel["registers"] < 64
    mix = kernel["mix"]
    assert mix["local"] == kernel["spill_instructions"] == 3
    assert (mix["global load"], mix["global store"]) == (2, 1)
    assert (mix["shared load"], mix["shared store"]) == (1, 1)
    assert mix["fp32"] >= 1
    assert mix["special"] >= 1
    assert mix["barrier"] >= 1
    assert sum(mix.values()) == sum(kernel["opcodes"].values()) == kernel["instructions"]
    assert list(mix.values()) == sorted(mix.values(), reverse=True)


def test_an_opcode_has_one_class(checkout: Path) -> None:
    """No beginning of a name stands in two classes."""
    path = checkout / "harness" / "kopt_harness" / "profile" / "opcodes.toml"
    classes = tomllib.loads(path.read_text())["class"]
    prefixes = [prefix for each in classes.values() for prefix in each]
    assert len(prefixes) == len(set(prefixes))


def test_profilers_are_of_two_kinds() -> None:
    """One that reads builds watches no call, and the reverse."""
    assert reads_builds("sass")
    assert not reads_builds("torch")
    with pytest.raises(UsageError, match="watches no call"):
        run_profiler("sass", None, None)
    with pytest.raises(UsageError, match="reads no builds"):
        read_build("null", [])


def test_a_cpu_has_no_machine_code_of_a_gpu(setting, workload, make_solution, honest) -> None:
    """The error names a target that has."""
    with pytest.raises(UnavailableError, match="'cpu'") as caught:
        profile_build(setting, make_solution(honest), workload, "sass")
    assert "--target h200" in caught.value.hint
    harness = LocalHarness(
        setting.catalog.root, setting.catalog, "cpu", MeasureOptions(), profiler="sass"
    )
    with pytest.raises(UnavailableError, match="'cpu'"):
        harness.profile(make_solution(honest), workload, DictLedger())
    assert harness.phases_ns == {}


def test_a_build_without_a_kernel_is_no_profile(
    absent_gpu, workload, make_solution, honest
) -> None:
    """PyTorch alone compiles nothing; an empty profile would look like success."""
    with pytest.raises(ProfileError, match="no cubin") as caught:
        profile_build(absent_gpu, make_solution(honest), workload, "sass")
    assert caught.value.exit_code == 3


def test_what_does_not_build_has_no_profile(absent_gpu, workload, make_solution) -> None:
    """The last line of the log is the reason."""
    with pytest.raises(InvalidInputError, match="does not build"):
        profile_build(absent_gpu, make_solution("def run(:\n"), workload, "sass")


def test_a_profile_of_machine_code_is_a_document(cubin: Path) -> None:
    """The fields are those of a profile and survive JSON."""
    made = Profile.model_validate(
        {
            "profiler": "sass",
            "solution": {"name": "x", "definition": "y", "sha256": "0" * 64},
            "target": "h200",
            "uuid": "",
            "axes": {},
            **read_build("sass", [cubin, cubin]),
        }
    )
    assert len(made.compiled) == 2
    assert Profile.model_validate_json(made.model_dump_json()) == made
