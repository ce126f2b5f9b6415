"""C++ solutions are compiled, cached, loaded and called."""

import errno
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kopt_harness.build import _native, build_in_worker, cpp
from kopt_harness.errors import NotFoundError, UnavailableError
from kopt_harness.schema import Solution

_HEADER = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include "tunables.h"
inline void scale(tvm::ffi::TensorView x, double s, tvm::ffi::TensorView y) {
  const float* from = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] * static_cast<float>(s) + KOPT_BIAS;
}
"""
_ENTRY = '#include "../include/scale.h"\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(run, scale);\n'


def _sources(bias: str = "0") -> dict[str, str]:
    return {
        "lib/entry.cpp": _ENTRY,
        "include/scale.h": _HEADER,
        "tunables.h": f"#define KOPT_BIAS {bias}\n",
    }


def test_builds_nested_sources_and_computes(
    make_solution: Callable[..., Solution], cache: Path, call: Callable[..., list[float]]
) -> None:
    """A header beside the entry and a generated header at the root are both found."""
    solution = make_solution("cpp", _sources())
    result = build_in_worker(solution, "cpu", cache)
    assert result.ok, result.log
    assert [artefact.kind for artefact in result.artefacts] == ["shared-object"]
    assert call(result, solution, "numpy") == [3.0 * i for i in range(7)]


def test_each_load_is_a_copy_of_its_own(
    make_solution: Callable[..., Solution], cache: Path, tmp_path: Path, monkeypatch
) -> None:
    """Nothing of the build's file is mapped, and the copy leaves no file behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    solution = make_solution("cpp", _sources("7"))
    folder = Path(build_in_worker(solution, "cpu", cache).path)
    functions = [_native.load_shared_object(folder, solution) for _ in range(2)]
    mapped = {
        line.split(maxsplit=5)[5]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if _native.LIBRARY_NAME in line
    }
    assert len(functions) == len({name for name in mapped if str(tmp_path) in name}) == 2
    assert not any(str(folder) in name for name in mapped)
    assert not [each for each in tmp_path.iterdir() if each.name.startswith("kopt-library-")]


def test_a_full_disk_is_no_fault_of_a_solution(
    make_solution: Callable[..., Solution], cache: Path, monkeypatch
) -> None:
    """The build's own file is loaded then; any other failure to copy is none of that kind."""
    solution = make_solution("cpp", _sources("8"))
    folder = Path(build_in_worker(solution, "cpu", cache).path)

    def fails(number: int) -> None:
        def copy(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(_native.shutil, "copy", copy)

    fails(errno.ENOSPC)
    assert callable(_native.load_shared_object(folder, solution))
    assert str(folder) in Path("/proc/self/maps").read_text()
    fails(errno.EACCES)
    with pytest.raises(PermissionError):
        _native.load_shared_object(folder, solution)


def test_second_build_comes_from_the_cache_under_the_new_name(
    make_solution: Callable[..., Solution], cache: Path
) -> None:
    """The same content is compiled once, whatever it is called."""
    solution = make_solution("cpp", _sources())
    first = build_in_worker(solution, "cpu", cache)
    renamed = solution.model_copy(update={"name": "another-name"})
    second = build_in_worker(renamed, "cpu", cache)
    assert second.cached
    assert second.path == first.path
    assert second.solution.name == "another-name"


def test_compile_error_is_the_candidates_and_leaves_nothing(
    make_solution: Callable[..., Solution], tmp_path: Path
) -> None:
    """The log names the line, no folder stays, and the failure is remembered in memory."""
    solution = make_solution("cpp", {"a.cpp": "int broken( {\n"})
    result = build_in_worker(solution, "cpu", tmp_path)
    assert not result.ok
    assert not result.timed_out
    assert "a.cpp:1" in result.log
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert build_in_worker(solution, "cpu", tmp_path).cached


def test_missing_entry_symbol_is_found_at_build(
    make_solution: Callable[..., Solution], cache: Path
) -> None:
    """A solution that exports another name does not build, and is told which macro it lacks."""
    solution = make_solution("cpp", _sources(), entry="lib/entry.cpp::launch")
    result = build_in_worker(solution, "cpu", cache)
    assert not result.ok
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC(launch" in result.log


def test_undefined_function_is_found_at_build(
    make_solution: Callable[..., Solution], cache: Path
) -> None:
    """A call of a function that no source defines is an error of the build, not of the load."""
    sources = _sources("nowhere()") | {"include/scale.h": f"float nowhere();\n{_HEADER}"}
    result = build_in_worker(make_solution("cpp", sources), "cpu", cache)
    assert not result.ok
    assert "nowhere" in result.log


def test_key_follows_source_target_entry_and_flags(
    make_solution: Callable[..., Solution], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever can change the object changes the key."""
    broken = {"a.cpp": "#error no\n"}  # the key of a failed build is reported too, and is cheap
    keys = [
        build_in_worker(make_solution("cpp", broken), "cpu", cache).key,
        build_in_worker(make_solution("cpp", broken), "h200", cache).key,
        build_in_worker(make_solution("cpp", broken, entry="a.cpp::go"), "cpu", cache).key,
        build_in_worker(make_solution("cpp", {"a.cpp": "#error No\n"}), "cpu", cache).key,
    ]
    monkeypatch.setattr(cpp, "_FLAGS", (*cpp._FLAGS, "-DNDEBUG"))
    keys.append(build_in_worker(make_solution("cpp", broken), "cpu", cache).key)
    assert len(set(keys)) == len(keys)


def test_key_follows_the_compiler(
    make_solution: Callable[..., Solution], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of the compiler makes another build."""
    solution = make_solution("cpp", {"a.cpp": "#error no\n"})
    before = build_in_worker(solution, "cpu", cache).key
    found = _native.find_compiler()
    newer = _native.Compiler(found.path, found.version + " patched", found.native)
    monkeypatch.setattr(_native, "find_compiler", lambda: newer)
    assert build_in_worker(solution, "cpu", cache).key != before


def test_damaged_build_is_made_again(
    make_solution: Callable[..., Solution], tmp_path: Path
) -> None:
    """A folder whose result cannot be read counts as absent."""
    solution = make_solution("cpp", _sources())
    first = build_in_worker(solution, "cpu", tmp_path)
    (Path(first.path) / "result.json").write_text("{")
    again = build_in_worker(solution, "cpu", tmp_path)
    assert again.ok
    assert not again.cached
    assert build_in_worker(solution, "cpu", tmp_path).cached


def test_two_builds_of_one_key_at_once_both_succeed(
    make_solution: Callable[..., Solution], tmp_path: Path
) -> None:
    """The slower one finds its work done, and no staging folder stays."""
    solution = make_solution("cpp", _sources("1"))
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(build_in_worker(solution, "cpu", tmp_path)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.ok for result in results] == [True, True]
    assert results[0].path == results[1].path
    assert list((tmp_path / "staging").iterdir()) == []


def test_missing_compiler_is_unavailable_with_a_hint(
    make_solution: Callable[..., Solution], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without the compiler is told so, and how to get one."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    _native.find_compiler.cache_clear()
    try:
        with pytest.raises(UnavailableError, match="no-such-compiler") as caught:
            build_in_worker(make_solution("cpp", _sources()), "cpu", cache)
    finally:
        _native.find_compiler.cache_clear()
    assert "g++" in caught.value.hint


def test_unknown_target_is_an_error(make_solution: Callable[..., Solution], cache: Path) -> None:
    """A target is looked up before anything is built."""
    with pytest.raises(NotFoundError, match="'h9000'"):
        build_in_worker(make_solution("cpp", _sources()), "h9000", cache)


@pytest.mark.slow
def test_torch_binding_builds_and_computes(
    make_solution: Callable[..., Solution], cache: Path, call: Callable[..., list[float]]
) -> None:
    """A pybind11 module against PyTorch's headers is one more way to bind C++."""
    source = """
    #include <torch/extension.h>
    void run(torch::Tensor x, double s, torch::Tensor y) { y.copy_(x * s); }
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
    """
    solution = make_solution("cpp", {"a.cpp": source}, binding="torch")
    result = build_in_worker(solution, "cpu", cache)
    assert result.ok, result.log
    assert call(result, solution, "torch") == [3.0 * i for i in range(7)]
