"""The mixture-of-experts operator: reference, inputs, cost.

The layer's constants are part of the operator, so even one token needs 1.4 GB of weights.
The weights are drawn once for this file; the official reference, which holds all experts in
float32 (17 GB), runs in the slow test alone. The others cover its routing and the arithmetic
of single experts.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import psutil
import pytest
import torch
from kopt_harness.check import compare_all, null_kernel_reason
from kopt_harness.schema import Definition

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY.parent / "shared" / "data"
NAME = "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048"
FOLDER = REPOSITORY / "kernels" / NAME
OFFICIAL_BYTES = 20 << 30
"""What the official reference needs beside the inputs, with room to spare."""


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{NAME}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _solution() -> ModuleType:
    """The sources of torch-vectorized as one package."""
    folder = FOLDER / "solutions" / "torch-vectorized" / "solution" / "python"
    package = f"{NAME}_torch_vectorized"
    if package not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(folder)]
        sys.modules[package] = parent
    return importlib.import_module(f"{package}.kernel")


class Operator(NamedTuple):
    """The definition, what its folder provides, and the weights."""

    definition: Definition
    reference: ModuleType
    inputs: ModuleType
    cost: ModuleType
    solution: ModuleType
    weights: dict[str, torch.Tensor]

    def draw(self, generator: str, tokens: int, seed: int = 0) -> dict[str, Any]:
        """All inputs in call order."""
        rng = torch.Generator().manual_seed(seed)
        bound = self.definition.bind({"seq_len": tokens})
        drawn = self.inputs.GENERATORS[generator].draw(bound, rng, static=self.weights)
        assert not set(drawn) & set(self.weights)
        return {name: (drawn | self.weights)[name] for name in self.definition.inputs}

    def solve(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """What torch-vectorized writes into a poisoned output."""
        output = torch.full(inputs["hidden_states"].shape, torch.nan, dtype=torch.bfloat16)
        self.solution.run(*inputs.values(), output)
        return {"output": output}


@pytest.fixture(scope="module")
def operator() -> Iterator[Operator]:
    """The operator with its weights, which are freed after this file."""
    definition = Definition.model_validate_json((FOLDER / "definition.json").read_text())
    inputs = _module(FOLDER / "inputs.py")
    rng = torch.Generator().manual_seed(0)
    weights = inputs.draw_static(definition.bind({"seq_len": 1}), rng)
    modules = (_module(FOLDER / "reference.py"), inputs, _module(FOLDER / "cost.py"), _solution())
    yield Operator(definition, *modules, weights)
    weights.clear()


def _selected(operator: Operator, inputs: dict[str, Any]) -> torch.Tensor:
    selected: torch.Tensor = operator.reference._selection(
        inputs["routing_logits"], inputs["routing_bias"]
    )[0]
    return selected


def _local_counts(operator: Operator, inputs: dict[str, Any]) -> torch.Tensor:
    counts = torch.bincount(_selected(operator, inputs).flatten(), minlength=256)
    return counts[inputs["local_expert_offset"] :][:32]


def test_every_generator_draws_what_the_definition_declares(operator: Operator) -> None:
    """Shapes and dtypes match; scalars are Python numbers; the weights are static."""
    assert set(operator.weights) == set(operator.definition.kopt.static_inputs)
    for tokens in (1, 37):
        shapes = {s.name: s for s in operator.definition.input_shapes({"seq_len": tokens})}
        for generator in operator.inputs.GENERATORS:
            for key, value in operator.draw(generator, tokens).items():
                if key not in shapes:
                    assert isinstance(value, int if key == "local_expert_offset" else float)
                    continue
                assert tuple(value.shape) == shapes[key].shape
                assert str(value.dtype) == f"torch.{shapes[key].dtype}"
                assert value.stride() == torch.empty(shapes[key].shape, device="meta").stride()


def test_inputs_follow_the_seed(operator: Operator) -> None:
    """The same seed gives the same inputs, another seed others in every tensor drawn."""
    first, again, other = (operator.draw("typical", 5, seed) for seed in (1, 1, 2))
    for key, value in first.items():
        if isinstance(value, torch.Tensor) and key not in operator.weights:
            assert torch.equal(value.view(torch.uint8), again[key].view(torch.uint8))
            assert not torch.equal(value.view(torch.uint8), other[key].view(torch.uint8))


def test_weights_differ_between_experts_and_fill_their_range(operator: Operator) -> None:
    """No two experts share their first block, and blocks reach about 448."""
    for weights in operator.weights.values():
        blocks = weights[:, :128, :128].float()
        assert blocks.flatten(1).unique(dim=0).shape[0] == 32
        assert 100 < blocks.std() < 125
        assert blocks.abs().amax(dim=(1, 2)).median() > 400


@pytest.mark.parametrize("tokens", [901, 3000])
def test_routing_is_as_skewed_as_in_traces(operator: Operator, tokens: int) -> None:
    """The busiest local expert has 1.3 to 4 times the average; a third of the tokens has none."""
    for seed in range(3):
        inputs = operator.draw("typical", tokens, seed)
        counts = _local_counts(operator, inputs).float()
        assert 1.0 <= counts.sum() / tokens < 2.0
        assert 1.3 < counts.max() / counts.mean() < 4.0
        local = _selected(operator, inputs) // 32 == inputs["local_expert_offset"] // 32
        assert 0.2 < local.any(dim=1).float().mean() < 0.8


def test_the_drawn_device_has_work(operator: Operator) -> None:
    """At least one local assignment; typical ones no fewer than the cost model assumes."""
    for tokens in (1, 7, 16, 58):
        bound = operator.definition.bind({"seq_len": tokens})
        for seed in range(5):
            counts = _local_counts(operator, operator.draw("typical", tokens, seed))
            assert counts.sum() >= operator.cost.local_assignments(bound)
            assert (counts > 0).sum() >= 0.8 * operator.cost.active_experts(bound)
            for generator in operator.inputs.GENERATORS:
                inputs = operator.draw(generator, tokens, seed)
                assert inputs["local_expert_offset"] in range(0, 256, 32)
                assigned = int(_local_counts(operator, inputs).sum())
                assert (assigned == 0) == (generator == "none-local")


def test_a_stress_device_serves_every_token_with_the_same_two_experts(operator: Operator) -> None:
    """Two local experts have all tokens each."""
    counts = _local_counts(operator, operator.draw("two-experts", 200)).tolist()
    assert sorted(counts)[-2:] == [200, 200]


def test_no_selection_hangs_on_rounding(operator: Operator) -> None:
    """Float32 and float64 routing select the same experts for thousands of tokens."""
    routing = importlib.import_module(f"{NAME}_torch_vectorized.routing")
    for generator in operator.inputs.GENERATORS:
        inputs = operator.draw(generator, 3000, seed=2)
        single = routing.route(inputs["routing_logits"], inputs["routing_bias"], 2.5)
        double = _selected(operator, inputs)
        assert torch.equal(single.expert_TK.sort(dim=1).values, double.sort(dim=1).values)
        assert ((single.weight_TK.sum(dim=1) - 2.5).abs() < 1e-5).all()


def test_routing_agrees_with_the_definition_token_by_token(operator: Operator) -> None:
    """A plain loop over groups and experts selects the same eight."""
    inputs = operator.draw("typical", 40, seed=9)
    score = torch.sigmoid(inputs["routing_logits"].double()) + inputs["routing_bias"].double()
    for biased, selected in zip(score.tolist(), _selected(operator, inputs).tolist(), strict=True):
        groups = [biased[start : start + 32] for start in range(0, 256, 32)]
        best_two = [sum(sorted(group)[-2:]) for group in groups]
        kept = sorted(range(8), key=best_two.__getitem__)[-4:]
        allowed = [expert for expert in range(256) if expert // 32 in kept]
        assert set(sorted(allowed, key=biased.__getitem__)[-8:]) == set(selected)


def _product(x: torch.Tensor, weights: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Float64 product of an fp8 matrix and a vector, one 128 x 128 block after the other."""
    parts = []
    for row in range(0, weights.shape[0], 128):
        total = torch.zeros(128, dtype=torch.float64)
        for column in range(0, weights.shape[1], 128):
            block = weights[row : row + 128, column : column + 128].double()
            factor = scale[row // 128, column // 128].double()
            total += factor * (block @ x[column : column + 128])
        parts.append(total)
    return torch.cat(parts)


def _layer_of_one_token(inputs: dict[str, Any], token: int, selected: list[int]) -> torch.Tensor:
    score = torch.sigmoid(inputs["routing_logits"][token].double())
    x = inputs["hidden_states"][token].double().view(56, 128)
    x = (x * inputs["hidden_states_scale"][:, token, None].double()).flatten()
    result = torch.zeros(7168, dtype=torch.float64)
    for expert in selected:
        local = expert - inputs["local_expert_offset"]
        if not 0 <= local < 32:
            continue
        both = _product(x, inputs["gemm1_weights"][local], inputs["gemm1_weights_scale"][local])
        up, gate = both[:2048], both[2048:]
        inner = up * gate / (1.0 + torch.exp(-gate))
        weight = inputs["routed_scaling_factor"] * score[expert] / score[selected].sum()
        result += weight * _product(
            inner, inputs["gemm2_weights"][local], inputs["gemm2_weights_scale"][local]
        )
    return result


def test_tokens_agree_with_float64_block_by_block(operator: Operator) -> None:
    """Scales belong to their blocks of 128, up comes before gate, and silu is on the gate."""
    inputs = operator.draw("typical", 3, seed=4)
    selected = _selected(operator, inputs)
    local = (selected // 32 == inputs["local_expert_offset"] // 32).any(dim=1)
    (output,) = operator.reference.precise(*inputs.values())
    assert output.dtype == torch.float32
    token = int(local.int().argmax())
    wanted = _layer_of_one_token(inputs, token, selected[token].tolist())
    assert (output[token].double() - wanted).norm() / wanted.norm() < 1e-5
    assert not output[~local].any()


@pytest.mark.parametrize("generator", ["typical", "quiet-device", "two-experts", "strong-bias"])
def test_torch_vectorized_is_right_and_zeros_are_not(operator: Operator, generator: str) -> None:
    """The first incumbent passes wherever a tier applies; tokens with experts have outputs of 3."""
    kind = operator.inputs.GENERATORS[generator].kind
    inputs = operator.draw(generator, 2, seed=6)
    (output,) = operator.reference.precise(*inputs.values())
    (rounded,) = operator.reference.run(*inputs.values())
    assert torch.equal(rounded, output.to(torch.bfloat16))
    spread = output.std(dim=1)
    assert 1.0 < spread[spread > 0].median() < 10.0
    expected = {"output": output}
    tiers = compare_all(operator.definition, inputs, expected, operator.solve(inputs), kind=kind)
    assert tiers["strict"].verdict == "pass"
    assert tiers["contest"].verdict == ("pass" if kind == "contest" else "n/a")
    assert null_kernel_reason(operator.definition, inputs, expected) is None
    zeros = {"output": torch.zeros_like(rounded)}
    assert compare_all(operator.definition, inputs, expected, zeros)["contest"].verdict == "fail"


def test_every_input_matters(operator: Operator) -> None:
    """A solution that mixes up scales, biases or experts fails the strict tier."""
    inputs = operator.draw("typical", 1, seed=8)
    (output,) = operator.reference.precise(*inputs.values())
    changes = {
        "hidden_states_scale": inputs["hidden_states_scale"].flip(0),
        "gemm1_weights_scale": inputs["gemm1_weights_scale"].roll(1, dims=2),
        "gemm2_weights_scale": inputs["gemm2_weights_scale"].roll(1, dims=1),
        "local_expert_offset": (inputs["local_expert_offset"] + 32) % 256,
        "routed_scaling_factor": 1.0,
        "routing_logits": inputs["routing_logits"].flip(1),
    }
    for name, value in changes.items():
        actual = operator.solve(inputs | {name: value})
        tiers = compare_all(operator.definition, inputs, {"output": output}, actual)
        assert tiers["strict"].verdict == "fail", name


def test_costs_follow_uniform_routing(operator: Operator) -> None:
    """One token activates one expert; thousands activate all 32."""
    one = operator.definition.bind({"seq_len": 1})
    assert operator.cost.active_experts(one) == pytest.approx(1.0)
    weights = 6144 * 7168 + 4 * 48 * 56
    assert weights < operator.cost.compulsory_bytes(one) < 1.001 * weights
    assert operator.cost.flops(one) == 2 * 6144 * 7168 + 4 * 2048
    many = operator.definition.bind({"seq_len": 14107})
    assert operator.cost.active_experts(many) == pytest.approx(32.0)
    tokens = 14107 * (2 * 7168 + 4 * 256) + 0.6 * 14107 * (7168 + 4 * 56)
    assert operator.cost.compulsory_bytes(many) > 32 * weights + tokens
    assert operator.cost.flops(many) == 14107 * operator.cost.flops(one)


def test_the_definition_declares_the_contests_operator(operator: Operator) -> None:
    """Axes, tensors, dtypes and order are those of the official definition."""
    path = DATA / "definitions" / f"{NAME}.json"
    if not path.exists():
        pytest.skip("the official definitions are not here")
    official = json.loads(path.read_text())
    for key in ("inputs", "outputs"):
        own = {n: (s.shape, s.dtype) for n, s in getattr(operator.definition, key).items()}
        wanted = {
            n: (s["shape"] and tuple(s["shape"]), s["dtype"]) for n, s in official[key].items()
        }
        assert list(own.items()) == list(wanted.items())
    assert {n: (a.type, a.value) for n, a in operator.definition.axes.items()} == {
        n: (a["type"], a.get("value")) for n, a in official["axes"].items()
    }


def test_workloads_are_the_contests() -> None:
    """Every uuid with its axes, in order."""
    path = DATA / "workloads" / f"{NAME}.csv"
    if not path.exists():
        pytest.skip("the official workloads are not here")
    with path.open() as file:
        official = [
            {"uuid": row["uuid"], "axes": {"seq_len": int(row["seq_len"])}}
            for row in csv.DictReader(file)
        ]
    lines = (FOLDER / "workloads.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == official


@pytest.mark.slow
def test_the_reference_agrees_with_the_official_one(operator: Operator) -> None:
    """Relative error at most 1e-5 in norm, with the official output left in float32."""
    path = DATA / "definitions" / f"{NAME}.json"
    if not path.exists():
        pytest.skip("the official definitions are not here")
    if psutil.virtual_memory().available < OFFICIAL_BYTES:
        pytest.skip("the official reference needs 20 GB of free memory")
    text = json.loads(path.read_text())["reference"]
    scope: dict[str, Any] = {}
    exec(text.replace("torch.bfloat16", "torch.float32"), scope)
    inputs = operator.draw("typical", 2, seed=6)
    (ours,) = operator.reference.precise(*inputs.values())
    theirs = scope["run"](*inputs.values()).double()
    assert (ours - theirs).norm() / theirs.norm() < 1e-5


@pytest.mark.gpu
def test_inputs_reference_and_solution_work_on_a_gpu(operator: Operator) -> None:
    """Everything stays on the device, and the GPU's reference agrees with the CPU's."""
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    bound = operator.definition.bind({"seq_len": 3})
    rng = torch.Generator(device="cuda").manual_seed(0)
    static = operator.inputs.draw_static(bound, rng)
    drawn = operator.inputs.GENERATORS["typical"].draw(bound, rng, static=static) | static
    inputs = {name: drawn[name] for name in operator.definition.inputs}
    (output,) = operator.reference.precise(*inputs.values())
    solved = torch.full(output.shape, torch.nan, dtype=torch.bfloat16, device="cuda")
    operator.solution.run(*inputs.values(), solved)
    host = {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    (exact,) = operator.reference.precise(*host.values())
    assert (output.cpu() - exact).norm() / exact.norm() < 1e-5
    tiers = compare_all(operator.definition, inputs, {"output": output}, {"output": solved})
    assert tiers["strict"].verdict == "pass"
