"""Peers replayed from a CUDA graph."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
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


class _Graph:
    """Records that it was captured, and in which order it was replayed."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def capture_begin(self, *, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        self._log.append("capture")

    def capture_end(self) -> None:
        self._log.append("end")

    def replay(self) -> None:
        self._log.append("replay")


def test_each_call_but_the_first_of_a_shape_is_captured_and_replayed(
    make_solution: Callable[..., Solution], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The generated source, with a device that only takes notes."""
    log: list[str] = []
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: _Graph(log))
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda side: nullcontext())
    for source in graphed(make_solution(PLAIN)).sources:
        (tmp_path / source.path).write_text(source.content)
    package = ModuleType("replayed")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "replayed", package)
    run = importlib.import_module("replayed.graph_replay").run
    for extent, expected in ((3, []), (3, ["capture", "end", "replay"]), (4, [])):
        log.clear()
        x, out = torch.rand(extent), torch.zeros(extent)
        run(x, out)
        assert log == expected
        assert torch.equal(out, 2 * x)
