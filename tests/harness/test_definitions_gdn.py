from __future__ import annotations

import csv
import importlib.util
import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from kopt_harness.check import compare_all, null_kernel_reason
from kopt_harness.schema import Definition

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY.parent / "shared" / "data"
DECODE = "gdn_decode_qk4_v8_d128_k_last"
PREFILL = "gdn_prefill_qk4_v8_d128_k_last"
BOTH = pytest.mark.parametrize("name", [DECODE, PREFILL])

SMALL = {
    DECODE: {"batch_size": 3},
    PREFILL: {"total_seq_len": 150, "num_seqs": 5, "len_cu_seqlens": 6},
}


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{path.parents[0].name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Operator(NamedTuple):
    """One definition and what its folder provides."""

    definition: Definition
    reference: ModuleType
    inputs: ModuleType
    cost: ModuleType
    solution: ModuleType

    def draw(self, generator: str, seed: int = 0, **axes: int) -> dict[str, Any]:
        """Inputs of a small workload, or of ``axes``."""
        bound = self.definition.bind(axes or SMALL[self.definition.name])
        rng = torch.Generator().manual_seed(seed)
        drawn: dict[str, Any] = self.inputs.GENERATORS[generator].draw(bound, rng)
        return drawn

    def precise(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Unrounded outputs, by name."""
        outputs = self.reference.precise(*inputs.values())
        return dict(zip(self.definition.outputs, outputs, strict=True))

    def solve(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """What torch-vectorized writes into poisoned outputs."""
        expected = self.precise(inputs)
        outputs = {
            name: torch.full_like(tensor, math.nan, dtype=_dtype(self.definition, name))
            for name, tensor in expected.items()
        }
        self.solution.run(*inputs.values(), *outputs.values())
        return outputs


def _dtype(definition: Definition, output: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, definition.outputs[output].dtype)
    return dtype


def _operator(name: str) -> Operator:
    folder = REPOSITORY / "kernels" / name
    return Operator(
        Definition.model_validate_json((folder / "definition.json").read_text()),
        _module(folder / "reference.py"),
        _module(folder / "inputs.py"),
        _module(folder / "cost.py"),
        _module(folder / "solutions" / "torch-vectorized" / "solution" / "python" / "kernel.py"),
    )


def _relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    difference = actual.double() - expected.double()
    return float(difference.norm() / expected.double().norm())


class Head(NamedTuple):
    """What one value head of one sequence sees, in float64."""

    q: torch.Tensor
    """(T, K), as ``k``."""
    k: torch.Tensor
    v: torch.Tensor
    """(T, V)."""
    decay: torch.Tensor
    """(T,), as ``beta``."""
    beta: torch.Tensor


def _token_by_token(head: Head, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence as the definition states it: unscaled read-outs (T, V), state (V, K)."""
    outputs = []
    for q, k, v, decay, beta in zip(*head, strict=True):
        state = decay * state
        state = state + beta * torch.outer(v - state @ k, k)
        outputs.append(state @ q)
    return torch.stack(outputs), state


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small products on one thread: more threads than free cores spin instead of working."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@BOTH
def test_every_generator_draws_what_the_definition_declares(name: str) -> None:
    """Names in call order, shapes and dtypes match; None only where it is allowed."""
    operator = _operator(name)
    shapes = {shape.name: shape for shape in operator.definition.input_shapes(SMALL[name])}
    for generator in operator.inputs.GENERATORS:
        drawn = operator.draw(generator)
        assert list(drawn) == list(operator.definition.inputs)
        for key, value in drawn.items():
            spec = operator.definition.inputs[key]
            if value is None:
                assert spec.optional
            elif spec.shape is None:
                assert isinstance(value, float)
            else:
                assert tuple(value.shape) == shapes[key].shape
                assert str(value.dtype) == f"torch.{spec.dtype}"
                assert value.is_contiguous()


@BOTH
def test_the_first_generator_is_that_of_real_use(name: str) -> None:
    """``typical`` comes first and is the only distribution of the contest."""
    generators = _operator(name).inputs.GENERATORS
    assert next(iter(generators)) == "typical"
    assert [g.name for g in generators.values() if g.kind == "contest"] == ["typical"]
    assert all(key == generator.name for key, generator in generators.items())


@BOTH
def test_inputs_follow_the_seed(name: str) -> None:
    """The same seed gives the same inputs, another seed others in every random tensor."""
    operator = _operator(name)
    first, again, other = (operator.draw("typical", seed) for seed in (1, 1, 2))
    for key, value in first.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, again[key])
            assert not torch.equal(value, other[key])


@BOTH
def test_typical_inputs_are_of_realistic_size(name: str) -> None:
    """Unit queries and keys, decays strictly between 0 and 1, a state that is not negligible."""
    inputs = _operator(name).draw("typical")
    for key in ("q", "k"):
        assert (inputs[key].float().norm(dim=-1) - 1).abs().max() < 1e-2
    rate, step = inputs["A_log"].exp(), torch.nn.functional.softplus(inputs["dt_bias"])
    assert 1 <= rate.min() <= rate.max() <= 16
    assert 0.9e-3 < step.min() <= step.max() < 1.1e-1
    assert 0.05 < inputs["state"].square().mean().sqrt() < 1.0
    assert 0.3 < inputs["v"].float().square().mean().sqrt() < 2.0


def test_the_tokens_are_split_exactly() -> None:
    """Sequences of at least one token in typical inputs; their sum is the number of tokens."""
    operator = _operator(PREFILL)
    for seed in range(20):
        bounds = operator.draw("typical", seed)["cu_seqlens"]
        assert bounds[0] == 0
        assert bounds[-1] == 150
        assert bounds.diff().min() >= 1


def test_stress_splits_hold_empty_sequences_and_single_tokens() -> None:
    """Among the ragged lengths are 0 and 1, also with more sequences than tokens."""
    operator = _operator(PREFILL)
    for seed in range(20):
        lengths = operator.draw("ragged", seed)["cu_seqlens"].diff()
        assert lengths.sum() == 150
        assert (lengths == 0).any()
        assert lengths.min() >= 0
    crowded = {"total_seq_len": 2, "num_seqs": 9, "len_cu_seqlens": 10}
    lengths = operator.draw("typical", **crowded)["cu_seqlens"].diff()
    assert (len(lengths), lengths.sum()) == (9, 2)
    drawn = [operator.draw("ragged", seed)["cu_seqlens"].diff() for seed in range(20)]
    assert any((lengths == 1).any() for lengths in drawn)


@BOTH
def test_references_are_finite_on_every_generator(name: str) -> None:
    """No generator drives the operator out of range."""
    operator = _operator(name)
    for generator in operator.inputs.GENERATORS:
        for output in operator.precise(operator.draw(generator)).values():
            assert output.isfinite().all()


@BOTH
def test_run_is_the_rounded_precise_result(name: str) -> None:
    """``run`` has the declared dtypes and differs from ``precise`` by rounding alone."""
    operator = _operator(name)
    inputs = operator.draw("typical")
    precise = operator.precise(inputs)
    outputs = operator.reference.run(*inputs.values())
    for (key, exact), output in zip(precise.items(), outputs, strict=True):
        assert output.dtype == _dtype(operator.definition, key)
        assert torch.equal(output, exact.to(output.dtype))
        assert exact.dtype == torch.float32


@pytest.mark.parametrize("generator", ["typical", "ragged", "extreme-gates", "large-state"])
def test_the_chunked_reference_is_the_recurrence(generator: str) -> None:
    """The prefill reference equals the definition's token-by-token recurrence in float64."""
    operator = _operator(PREFILL)
    inputs = operator.draw(generator, seed=3)
    output, new_state = operator.precise(inputs).values()
    step = torch.nn.functional.softplus(inputs["a"].float() + inputs["dt_bias"]).double()
    decay = torch.exp(-inputs["A_log"].double().exp() * step)
    beta = torch.sigmoid(inputs["b"].double())
    q, k, v = (inputs[key].double() for key in "qkv")
    bounds = inputs["cu_seqlens"].tolist()
    for seq, (start, end) in enumerate(pairwise(bounds)):
        rows = slice(start, end)
        for h in range(8 if end > start else 0):
            head = Head(q[rows, h // 2], k[rows, h // 2], v[rows, h], decay[rows, h], beta[rows, h])
            read, state = _token_by_token(head, inputs["state"][seq, h].double())
            assert _relative_error(output[rows, h], inputs["scale"] * read) < 1e-6
            assert _relative_error(new_state[seq, h], state) < 1e-6


@BOTH
def test_a_missing_state_stands_for_zeros_and_a_zero_scale_for_the_default(name: str) -> None:
    """None and a tensor of zeros give the same result, as do 0, None and 1/sqrt(128)."""
    operator = _operator(name)
    zero = operator.draw("zero-state")
    expected = operator.precise(zero)
    for change in ({"state": None}, {"scale": 0.0}, {"scale": None}):
        for key, output in operator.precise(zero | change).items():
            assert torch.equal(output, expected[key])
        solved = operator.solve(zero | change)
        assert compare_all(operator.definition, zero, expected, solved)["strict"].verdict == "pass"


def test_decode_is_a_prefill_of_one_token_each() -> None:
    """Both references agree where their operators coincide."""
    decode, prefill = _operator(DECODE), _operator(PREFILL)
    inputs = decode.draw("typical", batch_size=4)
    output, new_state = decode.precise(inputs).values()
    flat = {
        key: value[:, 0] if key in {"q", "k", "v", "a", "b"} else value
        for key, value in inputs.items()
    }
    scale = flat.pop("scale")
    flat |= {"cu_seqlens": torch.arange(5), "scale": scale}
    other, other_state = prefill.precise(flat).values()
    assert _relative_error(other, output[:, 0]) < 1e-6
    assert _relative_error(other_state, new_state) < 1e-6


def test_an_empty_sequence_leaves_a_zero_state() -> None:
    """Its row of the new state is zero, not a copy, in the reference and in the solution."""
    operator = _operator(PREFILL)
    inputs = operator.draw("typical")
    inputs["cu_seqlens"] = torch.tensor([0, 0, 70, 70, 150, 150])
    for new_state in (operator.precise(inputs)["new_state"], operator.solve(inputs)["new_state"]):
        norms = new_state.flatten(1).norm(dim=1)
        assert (norms == 0).tolist() == [True, False, True, False, True]
    inputs["cu_seqlens"] = torch.zeros(6, dtype=torch.int64)
    empty = inputs | {key: inputs[key][:0] for key in ("q", "k", "v", "a", "b")}
    output, new_state = operator.precise(empty).values()
    assert output.shape == (0, 8, 128)
    assert not new_state.any()


@BOTH
@pytest.mark.parametrize("seed", [0, 1])
def test_torch_vectorized_is_right_on_every_generator(name: str, seed: int) -> None:
    """The first incumbent passes both tiers wherever they apply."""
    operator = _operator(name)
    for generator in operator.inputs.GENERATORS.values():
        inputs = operator.draw(generator.name, seed)
        tiers = compare_all(
            operator.definition,
            inputs,
            operator.precise(inputs),
            operator.solve(inputs),
            kind=generator.kind,
        )
        verdicts = {tier.verdict for tier in tiers.values()}
        assert verdicts == ({"pass"} if generator.kind == "contest" else {"pass", "n/a"})


@BOTH
@pytest.mark.parametrize(
    "change",
    [
        {"state": None},
        {"scale": 1.0},
        {"A_log": torch.zeros(8)},
        {"dt_bias": torch.zeros(8)},
        "a",
        "b",
        "k",
        "q",
        "v",
    ],
    ids=lambda change: change if isinstance(change, str) else next(iter(change)),
)
def test_every_input_matters(name: str, change: dict[str, Any] | str) -> None:
    """A solution that ignores an input, or mixes its heads up, fails the strict tier."""
    operator = _operator(name)
    inputs = operator.draw("typical")
    expected = operator.precise(inputs)
    if isinstance(change, str):
        heads = 1 if name == PREFILL else 2
        change = {change: inputs[change].roll(1, dims=heads)}
    wrong = operator.solve(inputs | change)
    assert compare_all(operator.definition, inputs, expected, wrong)["strict"].verdict == "fail"


@BOTH
def test_every_generator_tells_a_kernel_from_none(name: str) -> None:
    """Outputs of zeros are wrong on all inputs."""
    operator = _operator(name)
    for generator in operator.inputs.GENERATORS:
        inputs = operator.draw(generator)
        assert null_kernel_reason(operator.definition, inputs, operator.precise(inputs)) is None


def test_a_state_kept_in_bfloat16_is_not_accepted_in_decode() -> None:
    """Rounding the new state to bfloat16, which the contest's tolerance permits, is refused."""
    operator = _operator(DECODE)
    inputs = operator.draw("typical")
    expected = operator.precise(inputs)
    solved = operator.solve(inputs)
    solved["new_state"] = solved["new_state"].to(torch.bfloat16).float()
    tiers = compare_all(operator.definition, inputs, expected, solved)
    assert (tiers["contest"].verdict, tiers["strict"].verdict) == ("pass", "fail")


@pytest.mark.parametrize("generator", ["typical", "extreme-gates", "long-memory", "large-state"])
def test_tensor_core_precision_is_accepted_in_prefill(
    generator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrix products of bfloat16 operands with float32 accumulation are within the bound."""
    operator = _operator(PREFILL)
    inputs = operator.draw(generator, 4, total_seq_len=400, num_seqs=2, len_cu_seqlens=3)
    expected = operator.precise(inputs)
    monkeypatch.setattr(operator.solution, "_chunk", _tensor_core_chunk)
    solved = operator.solve(inputs)
    assert _relative_error(solved["new_state"], expected["new_state"]) > 1e-3
    tiers = compare_all(operator.definition, inputs, expected, solved, kind="stress")
    assert tiers["strict"].verdict == "pass"


def test_a_read_that_cancels_is_judged_by_its_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor cores on a query at a right angle to the state's one key are not taken for wrong."""
    operator = _operator(PREFILL)
    inputs = operator.draw("long-memory", 5, total_seq_len=400, num_seqs=1, len_cu_seqlens=2)
    inputs["state"] = None
    inputs["b"] = torch.full_like(inputs["b"], -40.0)
    inputs["b"][10] = 4.0
    query, key = inputs["q"].float(), inputs["k"].float()[10]
    for head in range(key.shape[0]):
        along = (query[300, head] @ key[head]) / key[head].square().sum()
        query[300, head] -= 0.98 * along * key[head]
    inputs["q"] = query.to(torch.bfloat16)
    expected = operator.precise(inputs)
    sizes = operator.reference.magnitudes(*inputs.values())["output"]
    assert (expected["output"][300].norm(dim=-1) < 0.1 * sizes[300]).any()
    monkeypatch.setattr(operator.solution, "_chunk", _tensor_core_chunk)
    solved = operator.solve(inputs)

    def verdict(**given: Any) -> str:
        tiers = compare_all(operator.definition, inputs, expected, solved, kind="stress", **given)
        return tiers["strict"].verdict

    assert verdict() == "fail"
    assert verdict(magnitudes={"output": sizes.reshape(-1)}.__getitem__) == "pass"


def test_magnitudes_are_what_rows_measure_without_cancellation() -> None:
    """On ordinary inputs most rows are about as large as their magnitude; signs do not matter."""
    operator = _operator(PREFILL)
    inputs = operator.draw("typical", 6, total_seq_len=300, num_seqs=3, len_cu_seqlens=4)
    sizes = operator.reference.magnitudes(*inputs.values())["output"]
    ratio = operator.precise(inputs)["output"].double().norm(dim=-1) / sizes
    assert 0.5 < ratio.median() < 4.0
    turned = inputs | {"q": -inputs["q"]}
    again = operator.reference.magnitudes(*turned.values())["output"]
    assert torch.equal(sizes, again)


def _tensor_core_chunk(*operands: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A chunk as tensor cores compute it: the operands of every product are bfloat16."""
    q, k, v, total, beta, state = operands

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16).float()

    growth = total.exp().float()[..., None]
    decay = (total[..., :, None] - total[..., None, :]).clamp(max=0.0).exp().float().tril()
    keys = k.transpose(-1, -2)
    system = torch.eye(k.shape[-2]) + (beta * decay * (k @ keys)).tril(-1)
    inverse = rounded(torch.linalg.inv(system))
    state_t = rounded(state).transpose(-1, -2)
    update = rounded(
        inverse @ rounded(beta * v) - rounded(inverse @ rounded(beta * growth * k)) @ state_t
    )
    read = growth * (q @ state_t) + rounded(decay * (q @ keys)) @ update
    left = (total[..., -1:] - total).exp().float()[..., None]
    written = rounded(update * left).transpose(-1, -2) @ k
    return read, growth[..., -1:, :] * state + written


@BOTH
def test_compulsory_bytes_are_those_of_all_inputs_and_outputs(name: str) -> None:
    """The cost model reads every tensor once and writes every output once, for each workload."""
    operator = _operator(name)
    for line in (REPOSITORY / "kernels" / name / "workloads.jsonl").read_text().splitlines():
        axes = json.loads(line)["axes"]
        definition = operator.definition
        tensors = (*definition.input_shapes(axes), *definition.output_shapes(axes))
        bound = definition.bind(axes)
        assert operator.cost.compulsory_bytes(bound) == sum(t.nbytes for t in tensors)
        tokens = axes.get("total_seq_len") or axes["batch_size"]
        assert operator.cost.flops(bound) == 7 * 8 * 128 * 128 * tokens


@BOTH
def test_definitions_declare_the_contests_operator(name: str) -> None:
    """Axes, tensors, dtypes and order are those of the official definition."""
    path = DATA / "definitions" / f"{name}.json"
    if not path.exists():
        pytest.skip("the official definitions are not here")
    official = json.loads(path.read_text())
    definition = _operator(name).definition
    for key in ("inputs", "outputs"):
        own = {n: (s.shape, s.dtype, s.optional) for n, s in getattr(definition, key).items()}
        wanted = {
            n: (s["shape"] and tuple(s["shape"]), s["dtype"], s.get("optional", False))
            for n, s in official[key].items()
        }
        assert list(own.items()) == list(wanted.items())
    assert {n: (a.type, a.value) for n, a in definition.axes.items()} == {
        n: (a["type"], a.get("value")) for n, a in official["axes"].items()
    }


@BOTH
def test_workloads_are_the_contests(name: str) -> None:
    """Every uuid with its axes, in order."""
    path = DATA / "workloads" / f"{name}.csv"
    if not path.exists():
        pytest.skip("the official workloads are not here")
    with path.open() as file:
        official = [
            {"uuid": row.pop("uuid"), "axes": {k: int(v) for k, v in row.items()}}
            for row in csv.DictReader(file)
        ]
    lines = (REPOSITORY / "kernels" / name / "workloads.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == official


@BOTH
@pytest.mark.parametrize("generator", ["typical", "extreme-gates", "no-state"])
def test_references_agree_with_the_official_ones(name: str, generator: str) -> None:
    """Relative error at most 1e-5 in norm, with the official output left in float32."""
    path = DATA / "definitions" / f"{name}.json"
    if not path.exists():
        pytest.skip("the official definitions are not here")
    text = json.loads(path.read_text())["reference"].replace("torch.bfloat16", "torch.float32")
    official: dict[str, Any] = {}
    exec(text, official)
    operator = _operator(name)
    inputs = operator.draw(generator, seed=5)
    ours = operator.precise(inputs).values()
    for own, theirs in zip(ours, official["run"](*inputs.values()), strict=True):
        assert _relative_error(own, theirs) < 1e-5
