"""Python solutions load as one package; what they compile ahead runs without the GPU."""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from kopt_harness.build import build_in_worker
from kopt_harness.schema import Definition, Solution

_RUN = "def run(x, s, y):\n    y[:] = multiply(x, s)\n"

needs_cute = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"
)


def test_nested_entry_with_relative_imports_computes(
    make_solution: Callable[..., Solution], cache: Path, call: Callable[..., list[float]]
) -> None:
    """The entry may lie in a folder and import from beside and above itself."""
    sources = {
        "impl/entry.py": f"from ..tunables import FACTOR\nfrom .parts import multiply\n{_RUN}",
        "impl/parts.py": "from .. import tunables as t\n"
        "def multiply(x, s): return x * s * t.FACTOR\n",
        "tunables.py": "FACTOR = 2\n",
    }
    solution = make_solution("python", sources)
    result = build_in_worker(solution, "cpu", cache)
    assert result.ok, result.log
    assert call(result, solution, "torch") == [6.0 * i for i in range(7)]
    assert list(Path(result.path).rglob("__pycache__")) == []


def test_nothing_is_executed_for_the_cpu(
    make_solution: Callable[..., Solution], cache: Path
) -> None:
    """A module that fails when imported still builds: the check will say so."""
    text = "raise SystemExit('imported')\ndef run(): ...\ndef precompile(axes): ...\n"
    result = build_in_worker(make_solution("python", {"a.py": text}), "cpu", cache)
    assert result.ok, result.log
    assert "imported" not in result.log


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def run(:\n", "a.py:1"),
        ("def other(): ...\n", "'run' is not defined in 'a.py'"),
    ],
)
def test_malformed_source_does_not_build(
    make_solution: Callable[..., Solution], cache: Path, text: str, message: str
) -> None:
    """A syntax error and a missing entry function are found without executing anything."""
    result = build_in_worker(make_solution("python", {"a.py": text}), "cpu", cache)
    assert not result.ok
    assert message in result.log


@pytest.mark.parametrize(
    "text",
    [
        "from .b import run\n",
        "from .b import *\n",
        "from . import b\nrun = b.run\n",
        "try:\n    from .b import run\nexcept ImportError:\n    run = None\n",
    ],
)
def test_entry_function_may_come_from_elsewhere(
    make_solution: Callable[..., Solution], cache: Path, text: str
) -> None:
    """Any way of binding the name at the top level counts."""
    sources = {"a.py": text, "b.py": "def run(): ...\n"}
    assert build_in_worker(make_solution("python", sources), "cpu", cache).ok


_AHEAD = "import os, sys\ndef run(): ...\ndef precompile(axes):\n"


def test_precompile_runs_for_a_gpu_with_all_axes_and_no_gpu(
    make_solution: Callable[..., Solution],
    cache: Path,
    scale: Definition,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is told the architecture, sees no device and nothing of the caller's secrets."""
    monkeypatch.setenv("KOPT_TEST_SECRET", "hunter2")
    text = _AHEAD + "    print(axes, os.environ['CUTE_DSL_ARCH'], dict(os.environ))\n"
    solution = make_solution("python", {"a.py": text})
    result = build_in_worker(solution, "b200", cache, definition=scale, axes={"N": 5})
    assert result.ok, result.log
    assert "{'N': 5} sm_100a" in result.log
    assert "'CUDA_VISIBLE_DEVICES': ''" in result.log
    assert "hunter2" not in result.log
    other = build_in_worker(solution, "b200", cache, definition=scale, axes={"N": 6})
    assert other.key != result.key


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('no such tile')", "no such tile"),
        ("raise SystemExit(3)", "exit code 3"),
        ("os._exit(0)", "no answer"),
        ("os.kill(os.getpid(), 11)", "signal 11"),
        ("os.write(int(sys.argv[1]), b'{'); os._exit(0)", "no answer"),
    ],
)
def test_precompile_that_fails_is_the_candidates_fault(
    make_solution: Callable[..., Solution], cache: Path, body: str, message: str
) -> None:
    """However it ends the process, the result is a build that is not ok."""
    solution = make_solution("python", {"a.py": f"{_AHEAD}    {body}\n"})
    result = build_in_worker(solution, "h200", cache, axes={"N": 5})
    assert not result.ok
    assert message in result.log


def test_endless_precompile_is_ended_with_its_descendants(
    make_solution: Callable[..., Solution], tmp_path: Path
) -> None:
    """At the time limit everything that it started is killed, and it may be tried again."""
    marker = f"kopt-sleeper-{tmp_path.name}"
    body = (
        "    import subprocess, time\n"
        f"    subprocess.Popen(['sh', '-c', 'sleep 60; : {marker}'], start_new_session=True)\n"
        "    print('started', flush=True)\n"
        "    time.sleep(60)\n"
    )
    solution = make_solution("python", {"a.py": _AHEAD + body})
    started = time.monotonic()
    result = build_in_worker(solution, "h200", tmp_path, axes={"N": 5}, timeout_s=3)
    assert time.monotonic() - started < 30
    assert not result.ok
    assert result.timed_out
    assert "time limit" in result.log
    assert "started" in result.log
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not any(marker in word for line in lines for word in line)


_CUTE = """
import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream


@cute.kernel
def scale_kernel(x: cute.Tensor, s: cutlass.Float32, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 128 + thread
    if i < cute.size(x):
        y[i] = x[i] * s


@cute.jit
def scale(x: cute.Tensor, s: cutlass.Float32, y: cute.Tensor, stream: cuda.CUstream):
    blocks = cute.ceil_div(cute.size(x), 128)
    scale_kernel(x, s, y).launch(grid=(blocks, 1, 1), block=(128, 1, 1), stream=stream)


def precompile(axes):
    x, y = (make_fake_compact_tensor(cutlass.Float32, (axes["N"],)) for _ in range(2))
    cute.compile(scale, x, cutlass.Float32(1.0), y, make_fake_stream())


def run(x, s, y):
    raise NotImplementedError
"""


@needs_cute
@pytest.mark.parametrize(("target", "arch"), [("h200", "sm_90a"), ("b200", "sm_100a")])
def test_cute_dsl_cross_compiles(
    make_solution: Callable[..., Solution], cache: Path, target: str, arch: str
) -> None:
    """Cubins that precompile leaves are reported with the registers they take."""
    solution = make_solution("python", {"a.py": _CUTE})
    result = build_in_worker(solution, target, cache, axes={"N": 1000})
    assert result.ok, result.log
    kernels = [artefact for artefact in result.artefacts if artefact.kind == "cubin"]
    assert [kernel.arch for kernel in kernels] == [arch]
    assert "scale_kernel" in kernels[0].name
    assert kernels[0].registers
