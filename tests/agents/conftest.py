"""Stand-ins for agents: programs on the path, and an endpoint on this machine."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent


def _load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_toys = _load(HERE.parent / "controller/conftest.py", "kopt_tests_toys")
_load(HERE / "rounds.py", "kopt_tests_agents")
_endpoint = _load(HERE / "stand_ins/endpoint.py", "kopt_tests_endpoint")

Scripts = Sequence[Sequence[Sequence[Any]]]


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Worktrees of one test alone."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


@pytest.fixture
def toy(tmp_path: Path) -> Any:
    """A small root with a definition, two solutions and a simulated device."""
    (tmp_path / "root").mkdir()
    return _toys.make_toy(tmp_path / "root")


@pytest.fixture
def toy_draft() -> Callable[..., dict[str, str]]:
    """Files of a draft for the toy definition, by path below its folder."""

    def make(body: str = "y.copy_(x + 1)", name: str = "tuned-by-agent") -> dict[str, str]:
        return {
            "config.toml": _toys.PLAIN.replace('"plain"', f'"{name}"'),
            "solution/python/kernel.py": f"def run(x, y):\n    {body}\n",
        }

    return make


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Scripts], Path]:
    """Puts a stand-in on the path that plays one script after the other."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-a-key-that-nobody-may-see")
    monkeypatch.setenv("CODEX_API_KEY", "sk-codex-a-key-that-nobody-may-see")
    source = (HERE / "stand_ins/program.py").read_text()

    def put(name: str, scripts: Scripts) -> Path:
        path = folder / name
        text = source.replace("SCRIPTS = []", f"SCRIPTS = json.loads({json.dumps(scripts)!r})")
        path.write_text(text.replace("#!/usr/bin/env python3", f"#!{sys.executable}", 1))
        path.chmod(0o755)
        return path

    return put


@pytest.fixture
def endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Sequence[dict[str, Any]]], Any]]:
    """Serves an endpoint that gives one answer after the other."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-a-key-that-nobody-may-see")
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    running: list[Any] = []

    def start(answers: Sequence[dict[str, Any]]) -> Any:
        server = _endpoint.serve(answers)
        running.append(server)
        return server.__enter__()

    yield start
    for server in running:
        server.__exit__(None, None, None)


def writes(draft: dict[str, str], name: str = "fast") -> list[list[Any]]:
    """Steps that leave a draft."""
    return [["write", f"drafts/{name}/{path}", text] for path, text in draft.items()]


@pytest.fixture
def leaves() -> Callable[..., list[list[Any]]]:
    """Steps of a script that leave a draft."""
    return writes
