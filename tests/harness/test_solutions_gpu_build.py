"""The GPU solutions that ship cross-compile without a GPU, and compute what they should."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from kopt_harness.build import build_in_worker
from kopt_harness.build.loading import load
from kopt_harness.catalog import Catalog
from kopt_harness.errors import UnavailableError
from kopt_harness.pack import load as load_solution
from kopt_harness.pack import pack, read_tunables
from kopt_harness.root import find_root
from kopt_harness.schema import Artefact, BuildResult
from kopt_harness.targets import get_target

ROOT = Path(__file__).parents[2]
DEFINITION = ROOT / "kernels" / "gdn_decode_qk4_v8_d128_k_last"
SOLUTIONS = {
    name: DEFINITION / "solutions" / f"{name}-recurrent" for name in ("cuda", "cute", "triton")
}
HEADS, HEAD_SIZE, WARP = 8, 128, 32
RETAINED = sorted((ROOT / "artifacts" / "retained").glob("*/h200/solution.json"))
LARGE_BATCH = 64
PACKAGES = {"cuda": "tvm_ffi", "cute": "cutlass", "triton": "triton"}

Build = Callable[[str, str], BuildResult]


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds a solution for a target once; skips where the toolchain is not installed."""
    folder = tmp_path_factory.mktemp("builds")
    definition = Catalog(find_root(ROOT)).resolve("gdn_decode")

    @cache
    def make(name: str, target: str) -> BuildResult:
        _require(PACKAGES[name])
        solution = pack(SOLUTIONS[name]).solution
        axes = {"batch_size": LARGE_BATCH}
        try:
            return build_in_worker(solution, target, folder, definition=definition, axes=axes)
        except UnavailableError as error:
            pytest.skip(str(error))

    return make


def _kernels(result: BuildResult) -> list[Artefact]:
    return [artefact for artefact in result.artefacts if artefact.registers is not None]


@pytest.mark.parametrize("target", ["h200", "b200"])
@pytest.mark.parametrize("name", sorted(SOLUTIONS))
def test_solution_cross_compiles_without_spills(build: Build, name: str, target: str) -> None:
    """Every kernel is machine code of the target, keeps its state in registers, and is there."""
    result = build(name, target)
    assert result.ok, result.log
    kernels = _kernels(result)
    assert kernels, result.log
    for kernel in kernels:
        assert kernel.arch == get_target(target).arch
        assert "decode_step" in kernel.name
        assert kernel.registers > 0
        assert kernel.spill_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("target", ["h200", "b200"])
def test_prefill_cross_compiles_without_spills(tmp_path: Path, target: str) -> None:
    """With the values that the tunables have by default."""
    catalog = Catalog(find_root(ROOT))
    definition = catalog.resolve("gdn_prefill")
    solution = catalog.solution(definition, "cuda-prefill").solution
    axes = {"total_seq_len": 983, "num_seqs": 2, "len_cu_seqlens": 3}
    try:
        result = build_in_worker(solution, target, tmp_path, definition=definition, axes=axes)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert result.ok, result.log
    kernels = _kernels(result)
    assert kernels, result.log
    assert {kernel.arch for kernel in kernels} == {get_target(target).arch}
    assert {kernel.spill_bytes for kernel in kernels} == {0}


@pytest.mark.parametrize("file", RETAINED, ids=lambda file: file.parts[-3])
def test_what_is_retained_for_h200_builds_for_b200(tmp_path: Path, file: Path) -> None:
    """The bytes of the evidence, which a folder may have left behind."""
    catalog = Catalog(find_root(ROOT))
    solution = load_solution(file, known=catalog).solution
    definition = catalog.resolve(solution.definition)
    axes = catalog.workloads(definition)[0].axes
    try:
        result = build_in_worker(solution, "b200", tmp_path, definition=definition, axes=axes)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert result.ok, result.log
    kernels = _kernels(result)
    assert kernels, result.log
    assert {kernel.arch for kernel in kernels} == {"sm_100a"}


@pytest.mark.parametrize(("name", "count"), [("cuda", 7), ("cute", 2), ("triton", 1)])
def test_one_kernel_per_variant(build: Build, name: str, count: int) -> None:
    """CUDA has six shapes and one without state; the others compile what the axes need."""
    assert len(_kernels(build(name, "h200"))) == count


@pytest.mark.parametrize(("name", "large"), [("cuda", "MIDDLE"), ("cute", "LARGE")])
def test_every_setting_of_the_tunables_is_a_valid_shape(name: str, large: str) -> None:
    """CTAs divide the rows of a head, and a warp has whole passes, whatever a search picks."""
    tunables = read_tunables(SOLUTIONS[name])
    for size in ("SMALL", large):
        for rows in tunables[f"{size}_ROWS_PER_WARP"].values:
            for warps in tunables[f"{size}_WARPS"].values:
                assert HEAD_SIZE % (rows * warps) == 0
            for lanes in tunables["LANES_PER_ROW"].values:
                assert rows % (WARP // lanes) == 0
                assert rows // (WARP // lanes) <= lanes


def test_cuda_solution_refuses_what_its_kernel_cannot_read(build: Build) -> None:
    """Tensors of another dtype, of another shape or off the GPU are errors that name them."""
    result = build("cuda", "h200")
    run = load(Path(result.path), pack(SOLUTIONS["cuda"]).solution)
    half = torch.bfloat16
    q = torch.zeros(1, 1, 4, HEAD_SIZE, dtype=half)
    v = torch.zeros(1, 1, HEADS, HEAD_SIZE, dtype=half)
    state = torch.zeros(1, HEADS, HEAD_SIZE, HEAD_SIZE)
    head, gate = torch.zeros(HEADS), torch.zeros(1, 1, HEADS, dtype=half)
    rest = (head, gate, head, gate, 1.0, v.clone(), state.clone())
    with pytest.raises(ValueError, match="q must be on a GPU"):
        run(q, q, v, None, *rest)
    with pytest.raises(TypeError, match="q has another element type"):
        run(q.float(), q, v, state, *rest)
    with pytest.raises(ValueError, match="q has another shape"):
        run(q[..., :64], q, v, state, *rest)


_INTERPRET = """
import importlib, importlib.util, json, sys
from pathlib import Path
import torch

definition, package = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(package.parent))

def module(name):
    spec = importlib.util.spec_from_file_location(name, definition / f"{name}.py")
    found = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found

inputs, reference = module("inputs"), module("reference")
run = importlib.import_module(f"{package.name}.gdn_decode").run
axes = json.loads(sys.argv[3])

def worst_row(actual, expected):
    error = (actual.float() - expected).norm(dim=-1)
    return (error / expected.norm(dim=-1).clamp_min(1e-30)).max().item()

report = {}
for name, generator in inputs.GENERATORS.items():
    drawn = generator.draw(axes, torch.Generator().manual_seed(7))
    expected = reference.precise(*drawn.values())
    dtypes = (torch.bfloat16, torch.float32)
    actual = [torch.full_like(e, float("nan"), dtype=d) for e, d in zip(expected, dtypes)]
    run(*drawn.values(), *actual)
    report[name] = [worst_row(a, e) for a, e in zip(actual, expected)]
print(json.dumps(report))
"""


@pytest.mark.parametrize("num_warps", [1, 2])
def test_triton_solution_agrees_with_the_reference(tmp_path: Path, num_warps: int) -> None:
    """In Triton's interpreter, on every generator, whole and cut rows."""
    _require("triton")
    package = tmp_path / "candidate"
    tunables = {"BV": 32, "NUM_WARPS": num_warps}
    for source in pack(SOLUTIONS["triton"], tunables=tunables).solution.sources:
        path = package / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.content)
    axes = {"batch_size": 1, "seq_len": 1, "num_q_heads": 4, "num_k_heads": 4}
    axes |= {"num_v_heads": HEADS, "head_size": HEAD_SIZE}
    done = subprocess.run(
        [sys.executable, "-c", _INTERPRET, str(DEFINITION), str(package), json.dumps(axes)],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert "typical" in report
    for output, new_state in report.values():
        assert output < 2**-7  # the interpreter cuts bfloat16 off where a GPU rounds
        assert new_state < 1e-6
