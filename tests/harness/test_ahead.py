"""Building ahead: what is asked for later is in the cache by then, or gets its verdict later."""

from __future__ import annotations

from pathlib import Path

from kopt_harness.ahead import build_ahead
from kopt_harness.evaluate import build
from kopt_harness.schema import Solution
from kopt_harness.setting import Setting


def test_what_was_built_ahead_is_taken_from_the_cache(
    setting: Setting, tmp_path: Path, make_solution, honest: str
) -> None:
    """All of them, one that does not build among them, and one that the lint refuses."""
    good = [make_solution(f"{honest}\n# {number}\n", name=f"good-{number}") for number in range(3)]
    broken = make_solution("def run(:\n", name="broken")
    refused = make_solution(f"{honest}\nimport ctypes\nctypes.pythonapi\n", name="refused")
    here = Setting(setting.catalog, setting.target, setting.options, builds=tmp_path)
    build_ahead(here, [good[0], broken, refused, *good[1:]])
    assert all(build(here, solution).cached for solution in good)
    assert not build(here, broken).ok


def test_a_missing_toolchain_is_said_by_whoever_needs_it(
    setting: Setting, tmp_path: Path, monkeypatch, make_solution, honest: str
) -> None:
    """Nothing is raised ahead; the other ones are built all the same."""
    good = make_solution(honest, name="good")
    spec = good.spec.model_copy(update={"language": "cuda", "entry_point": "kernel.cu::run"})
    source = good.sources[0].model_copy(update={"path": "kernel.cu", "content": "int run;"})
    data = good.model_dump() | {"name": "cuda", "spec": spec, "sources": (source,)}
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    here = Setting(setting.catalog, setting.target, setting.options, builds=tmp_path / "builds")
    build_ahead(here, [Solution.model_validate(data), good])
    assert build(here, good).cached


def test_nothing_to_build_is_nothing_to_do(setting: Setting, tmp_path: Path) -> None:
    """No cache is made."""
    here = Setting(setting.catalog, setting.target, setting.options, builds=tmp_path / "builds")
    build_ahead(here, [])
    assert not (tmp_path / "builds").exists()
