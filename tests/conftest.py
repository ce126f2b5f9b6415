"""Fixtures that tests of the harness share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.options import MeasureOptions
from kopt_harness.root import Root
from kopt_harness.schema import BuildSpec, Definition, Solution, SourceFile
from kopt_harness.setting import Setting

CHECKOUT = Path(__file__).parents[1]

_IS_BESIDE_OTHERS = "PYTEST_XDIST_WORKER" in os.environ
if _IS_BESIDE_OTHERS:
    # More threads than cores wait for each other, and OpenMP's spin.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

HONEST = """
import torch

def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    batch = q.shape[0]
    scale = scale or 128 ** -0.5
    decay = torch.exp(-torch.exp(A_log) * torch.nn.functional.softplus(a.float() + dt_bias))
    beta = torch.sigmoid(b.float())
    keys = k.float().view(batch, 4, 128).repeat_interleave(2, 1)
    queries = q.float().view(batch, 4, 128).repeat_interleave(2, 1)
    old = torch.zeros_like(new_state) if state is None else state
    old = old * decay.view(batch, 8, 1, 1)
    held = (old @ keys[..., None])[..., 0]
    error = beta.view(batch, 8, 1) * (v.float().view(batch, 8, 128) - held)
    fresh = old + error[..., None] * keys[..., None, :]
    result = scale * (fresh @ queries[..., None])[..., 0]
    output.copy_(result.view(batch, 1, 8, 128))
    new_state.copy_(fresh)
"""
"""A correct gdn_decode in plain PyTorch; tests change it in one place."""


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The repository."""
    return CHECKOUT


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build cache for tests of what was built: the solutions that ship are compiled once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if _IS_BESIDE_OTHERS else base) / "builds"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def scratch_root(tmp_path_factory: pytest.TempPathFactory, builds: Path) -> Root:
    """A root with the project's definitions and an archive of its own."""
    folder = tmp_path_factory.mktemp("root")
    for name in ("kernels", "configs"):
        (folder / name).symlink_to(CHECKOUT / name)
    root = Root(folder)
    root.local.mkdir(parents=True)
    (root.local / "builds").symlink_to(builds)
    return root


@pytest.fixture(scope="session")
def catalog(scratch_root: Root) -> Catalog:
    """The project's definitions."""
    return Catalog(scratch_root)


@pytest.fixture(scope="session")
def gdn_decode(catalog: Catalog) -> Definition:
    """The definition that most tests use."""
    return catalog.resolve("gdn_decode")


@pytest.fixture(scope="session")
def setting(catalog: Catalog) -> Setting:
    """The CPU of this machine, with small budgets."""
    options = MeasureOptions(trials=2, bench_calls=4, calls_per_slot=1, blocks_min=2, blocks_max=3)
    return Setting.here(catalog, "cpu", options)


MakeSolution = Callable[..., Solution]


@pytest.fixture(scope="session")
def make_solution(gdn_decode: Definition) -> MakeSolution:
    """Packs Python source as a gdn_decode solution."""

    def make(
        source: str, *, name: str = "made", entry: str = "run", destination_passing: bool = True
    ) -> Solution:
        spec = BuildSpec(
            language="python",
            target_hardware=("cpu",),
            entry_point=f"kernel.py::{entry}",
            destination_passing_style=destination_passing,
        )
        return Solution(
            name=name,
            definition=gdn_decode.name,
            author="tests",
            spec=spec,
            sources=(SourceFile(path="kernel.py", content=source),),
        )

    return make


@pytest.fixture
def honest() -> str:
    """Source of a correct solution."""
    return HONEST


@pytest.fixture(scope="module")
def session(setting: Setting, gdn_decode: Definition, catalog: Catalog) -> Iterator[object]:
    """A warm judge for the two smallest sizes; candidates are opened by tests."""
    from kopt_harness.session import Session

    workloads = [catalog.workloads(gdn_decode)[index] for index in (0, 10)]
    with Session(setting, gdn_decode, workloads) as warm:
        yield warm
