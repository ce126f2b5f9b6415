"""Peers replayed from a CUDA graph."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
from enum import IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from kopt_harness.baselines import find_baseline, peer_names, peers_among
from kopt_harness.build._package import check_sources
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError
from kopt_harness.graphed import graphed
from kopt_harness.lint import lint
from kopt_harness.root import Root
from kopt_harness.schema import Solution
from kopt_harness.targets import get_target, runs_on

CATALOG = Catalog(Root(Path(__file__).resolve().parents[2]))
PEERS = [(each, name) for each in CATALOG.definitions() for name in peer_names(CATALOG, each)]
PLAIN = "def run(x, out):\n    out.copy_(2 * x)\n"


@pytest.mark.parametrize(
    ("definition", "name"), PEERS, ids=lambda each: getattr(each, "name", each)
)
def test_every_peer_can_be_replayed(definition: Any, name: str) -> None:
    """Its own sources and one more; a peer as before, for GPUs alone, and with its flag."""
    plain, replayed = (find_baseline(CATALOG, definition, name + end) for end in ("", "@graph"))
    assert set(plain.sources) < set(replayed.sources)
    assert replayed.sha256 != plain.sha256
    assert replayed.spec.dependencies == plain.spec.dependencies
    assert check_sources(replayed).ok
    assert [flag.code for flag in lint(replayed).flags] == ["lint-library-call"]
    assert runs_on(replayed, get_target("h200"))
    assert not runs_on(replayed, get_target("cpu"))
    assert peers_among(CATALOG, replayed) == {replayed.sha256}


def test_what_has_no_python_entry_is_refused(make_solution: Callable[..., Solution]) -> None:
    """And what is replayed already."""
    definition = CATALOG.resolve("gdn_decode")
    compiled = CATALOG.solution(definition, "cuda-recurrent").solution
    for each in (compiled, graphed(make_solution(PLAIN))):
        with pytest.raises(InvalidInputError, match="cannot be replayed"):
            graphed(each)


class _Runtime(ModuleType):
    """Takes notes, and refuses one step if it is told to."""

    def __init__(self) -> None:
        super().__init__("runtime")
        self.cudaError_t = IntEnum("cudaError_t", {"cudaSuccess": 0, "cudaErrorInvalidValue": 1})
        modes = {"cudaStreamCaptureModeRelaxed": 2}
        self.cudaStreamCaptureMode = IntEnum("cudaStreamCaptureMode", modes)
        self.log: list[tuple[str, ...]] = []
        self.refused = ""

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        def step(*arguments: Any) -> tuple[Any, ...]:
            self.log.append((name, *map(str, arguments)))
            status = self.cudaError_t(int(name == self.refused))
            given = {"cudaStreamEndCapture": "graph", "cudaGraphInstantiate": "executable"}
            return (status, given[name]) if name in given else (status,)

        return step


def _stream(number: int) -> SimpleNamespace:
    return SimpleNamespace(cuda_stream=number, wait_stream=lambda other: None)


REPLAY = [
    ("cudaStreamBeginCapture", "7", "2"),
    ("cudaStreamEndCapture", "7"),
    ("cudaGraphInstantiate", "graph", "0"),
    ("cudaGraphDestroy", "graph"),
    ("cudaGraphLaunch", "executable", "3"),
]


@pytest.fixture
def replayed(
    make_solution: Callable[..., Solution], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[Callable[..., Any], _Runtime]:
    """The generated entry, and the runtime that it asks."""
    runtime = _Runtime()
    bindings = ModuleType("cuda.bindings")
    bindings.runtime = runtime  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: _stream(7))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: _stream(3))
    monkeypatch.setattr(torch.cuda, "stream", lambda side: nullcontext())
    for source in graphed(make_solution(PLAIN)).sources:
        (tmp_path / source.path).write_text(source.content)
    package = ModuleType("replayed")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "replayed", package)
    monkeypatch.delitem(sys.modules, "replayed.graph_replay", raising=False)
    return importlib.import_module("replayed.graph_replay").run, runtime


def test_each_call_but_the_first_of_a_shape_is_captured_and_replayed(
    replayed: tuple[Callable[..., Any], _Runtime],
) -> None:
    """The generated source, with a runtime that only takes notes; nothing else is launched."""
    run, runtime = replayed
    again = [("cudaGraphExecDestroy", "executable"), *REPLAY]
    for extent, expected in ((3, []), (3, REPLAY), (3, again), (4, [])):
        runtime.log.clear()
        x, out = torch.rand(extent), torch.zeros(extent)
        run(x, out)
        assert runtime.log == expected
        assert torch.equal(out, 2 * x)


def test_what_the_runtime_refuses_is_an_error(
    replayed: tuple[Callable[..., Any], _Runtime],
) -> None:
    """A call that cannot be captured does not count as one that was."""
    run, runtime = replayed
    arguments = torch.rand(3), torch.zeros(3)
    run(*arguments)
    runtime.refused = "cudaGraphInstantiate"
    with pytest.raises(RuntimeError, match="cannot be replayed: cudaErrorInvalidValue"):
        run(*arguments)
