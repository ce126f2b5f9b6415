"""A small root with a definition, two solutions and a simulated device."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from kopt_controller.campaign import Campaign, CampaignResult, start_campaign
from kopt_controller.config import RunConfig
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness, bowl
from kopt_harness.catalog import Catalog
from kopt_harness.root import Root
from kopt_harness.schema import Solution

DEFINITION = {
    "name": "toy_op_n",
    "description": "adds one to a vector",
    "op_type": "toy",
    "axes": {"n": {"type": "var"}},
    "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
    "kopt": {
        "alias": "toy",
        "strict": {"y": {"rel": 1e-6, "source": "one rounding"}},
        "regime_axes": ["n"],
    },
}
COST = """\
def compulsory_bytes(axes):
    return 8 * axes["n"]


def flops(axes):
    return axes["n"]
"""
EXTENTS = (1, 2, 16, 64)

PLAIN = """\
[solution]
name = "plain"
definition = "toy_op_n"
author = "kopt"

[build]
language = "python"
entry_point = "kernel.py::run"
target_hardware = ["cpu"]
"""
TUNED = (
    PLAIN.replace("plain", "tuned")
    + """
[tunables.TILE]
values = [1, 2, 4, 8, 16]
default = 1
directions = ["tiling"]

[tunables.UNROLL]
values = [1, 2, 4, 8]
default = 1
directions = ["vectorisation"]
"""
)


class Toy(NamedTuple):
    """The root, and a device on which ``tuned`` with TILE 8 and UNROLL 4 is best."""

    root: Root
    catalog: Catalog
    device: SimulatedDevice

    def campaign(self, device: SimulatedDevice | None = None, **config: object) -> Campaign:
        """A new run with seeds fixed."""
        chosen = device or self.device
        return start_campaign(
            self.root,
            "toy",
            RunConfig.model_validate({"target": "cpu", "search_seed": 1, **config}),
            lambda target, _: SimulatedHarness(target.name, chosen),
            lambda _: None,
        )

    def solution(self, name: str) -> Solution:
        """A solution folder, packed with its defaults."""
        return self.catalog.solution(self.catalog.resolve("toy"), name).solution


def write_solution(folder: Path, config: str) -> None:
    """A solution folder that packs; it is never run."""
    (folder / "solution" / "python").mkdir(parents=True)
    (folder / "config.toml").write_text(config)
    (folder / "solution" / "python" / "kernel.py").write_text("def run(x, y):\n    y[:] = x + 1\n")


@pytest.fixture
def make_solution() -> Callable[[Path, str], None]:
    """Writes a solution folder."""
    return write_solution


@pytest.fixture
def plain_config() -> str:
    """The ``config.toml`` of a solution of the toy definition."""
    return PLAIN


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """A fresh root in a folder of its own."""
    return make_toy(tmp_path)


class Searched(NamedTuple):
    """A toy root in which a campaign has run."""

    toy: Toy
    campaign: CampaignResult


@pytest.fixture(scope="session")
def searched_toy(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """Three rounds are closed; for tests that only read."""
    toy = make_toy(tmp_path_factory.mktemp("searched"))
    return Searched(toy, toy.campaign(rounds=3).execute())


def make_toy(path: Path) -> Toy:
    """Writes the root."""
    folder = path / "kernels" / "toy_op_n"
    folder.mkdir(parents=True)
    (folder / "definition.json").write_text(json.dumps(DEFINITION))
    (folder / "cost.py").write_text(COST)
    lines = [
        json.dumps({"uuid": f"0000000{i}-toy", "axes": {"n": n}}) for i, n in enumerate(EXTENTS)
    ]
    (folder / "workloads.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "retained.toml").write_text('# Incumbents.\n[cpu]\nsolution = "plain"\n')
    write_solution(folder / "solutions" / "plain", PLAIN)
    write_solution(folder / "solutions" / "tuned", TUNED)
    root = Root(path)
    device = SimulatedDevice(
        latency_us=bowl({"plain": 50.0, "tuned": 10.0}, {"TILE": 8, "UNROLL": 4}),
        launches=lambda solution: 9 if solution.name == "plain" else 1,
        blocks=5,
        noise=0.003,
    )
    return Toy(root, Catalog(root), device)


@pytest.fixture
def repo_root() -> Path:
    """The checkout."""
    return Path(__file__).parents[2]
