"""``vary`` of each definition: what it says it expects is what the reference computes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from kopt_harness.check import compare_all
from kopt_harness.schema import Definition

KERNELS = Path(__file__).parents[2] / "kernels"
MOE = "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048"
SMALL: dict[str, tuple[dict[str, int], ...]] = {
    "gdn_decode_qk4_v8_d128_k_last": ({"batch_size": 1}, {"batch_size": 3}),
    "gdn_prefill_qk4_v8_d128_k_last": (
        {"total_seq_len": 1, "num_seqs": 1, "len_cu_seqlens": 2},
        {"total_seq_len": 150, "num_seqs": 7, "len_cu_seqlens": 8},
    ),
    "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64": (
        {"num_tokens": 1, "num_pages": 40},
        {"num_tokens": 3, "num_pages": 40},
    ),
    "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64": (
        {"batch_size": 1, "max_num_pages": 1, "num_pages": 200},
        {"batch_size": 4, "max_num_pages": 45, "num_pages": 300},
    ),
}
CALLS = 3


def load(folder: Path, name: str) -> ModuleType:
    """A module of a definition's folder."""
    spec = importlib.util.spec_from_file_location(
        f"vary_{folder.name}_{name}", folder / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Operator(NamedTuple):
    """A definition and its modules."""

    definition: Definition
    inputs: ModuleType
    reference: ModuleType
    check: ModuleType | None


@cache
def operator(name: str) -> Operator:
    """One definition."""
    folder = KERNELS / name
    return Operator(
        Definition.model_validate_json((folder / "definition.json").read_text()),
        load(folder, "inputs"),
        load(folder, "reference"),
        load(folder, "check") if (folder / "check.py").is_file() else None,
    )


class Drawn(NamedTuple):
    """One input set, what is expected of it, and what changes it."""

    definition: Definition
    values: dict[str, Any]
    expected: dict[str, torch.Tensor]
    vary: Callable[[], None]
    recomputed: Callable[[], dict[str, torch.Tensor]]


def draw(
    name: str, generator: str, axes: dict[str, int], static: dict[str, Any] | None = None
) -> Drawn:
    """A set, as the pool of a judge holds it."""
    found = operator(name)
    bound = found.definition.bind(axes)
    rng = torch.Generator().manual_seed(11)
    if static is None and found.definition.kopt.static_inputs:
        static = found.inputs.draw_static(bound, rng)
    keywords = {"static": static} if static else {}
    drawn = found.inputs.GENERATORS[generator].draw(bound, rng, **keywords) | (static or {})
    values = {each: drawn[each] for each in found.definition.inputs}

    def recomputed() -> dict[str, torch.Tensor]:
        outputs = found.reference.precise(*values.values())
        return dict(zip(found.definition.outputs, outputs, strict=True))

    expected = recomputed()
    return Drawn(
        found.definition,
        values,
        expected,
        lambda: found.inputs.vary(values, expected, bound, rng),
        recomputed,
    )


def tensors(values: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A copy of all bytes."""
    return {
        name: value.reshape(-1).view(torch.uint8).clone()
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    }


def differing(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    """Names of the tensors whose bytes differ."""
    return {name for name in before if not torch.equal(before[name], after[name])}


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Within 1e-6 of the whole output in the 2-norm, and 1e-5 of its rms anywhere."""
    finite = expected.isfinite()
    assert torch.equal(actual.where(~finite, 0.0), expected.where(~finite, 0.0))
    reference = expected.where(finite, 0.0).double()
    difference = actual.where(finite, 0.0).double() - reference
    assert float(difference.norm()) <= 1e-6 * float(reference.norm())
    rms = float(reference.square().mean().sqrt())
    assert float(difference.abs().max()) <= 1e-5 * rms


CASES = [
    (name, generator, number)
    for name in SMALL
    for number in range(2)
    for generator in load(KERNELS / name, "inputs").GENERATORS
]


@pytest.mark.parametrize(("name", "generator", "number"), CASES)
def test_what_is_expected_of_a_varied_set_is_what_the_reference_computes(
    name: str, generator: str, number: int
) -> None:
    """Over several calls in a row, and every call changes the contents."""
    drawn = draw(name, generator, SMALL[name][number])
    static = set(drawn.definition.kopt.static_inputs)
    places = {n: v.data_ptr() for n, v in drawn.values.items() if isinstance(v, torch.Tensor)}
    for _ in range(CALLS):
        before = tensors(drawn.values)
        drawn.vary()
        changed = differing(before, tensors(drawn.values))
        assert changed
        assert not changed & static, "sets share these"
        recomputed = drawn.recomputed()
        for output, exact in recomputed.items():
            if exact.dtype.is_floating_point:
                assert_close(drawn.expected[output], exact)
            else:
                # A tie at the cut may be broken in another way than the reference breaks it.
                tiers = compare_all(
                    drawn.definition,
                    drawn.values,
                    recomputed,
                    drawn.expected,
                    operator(name).check,  # type: ignore[arg-type]
                )
                assert {tier.verdict for tier in tiers.values()} == {"pass"}
    assert places == {
        n: v.data_ptr() for n, v in drawn.values.items() if isinstance(v, torch.Tensor)
    }


@pytest.mark.parametrize("name", SMALL)
def test_the_answer_to_a_set_before_it_was_varied_is_wrong_afterwards(name: str) -> None:
    """Nobody who remembers an answer is right."""
    drawn = draw(name, "typical", SMALL[name][1])
    outputs = drawn.definition.outputs
    old = {
        output: tensor.to(getattr(torch, outputs[output].dtype)).clone()
        for output, tensor in drawn.expected.items()
    }
    drawn.vary()
    tiers = compare_all(
        drawn.definition,
        drawn.values,
        drawn.expected,
        old,
        operator(name).check,  # type: ignore[arg-type]
    )
    assert tiers["strict"].verdict == "fail"


def test_signs_alone_change_in_a_decoding_step() -> None:
    """So that the expected outputs stay exact however often a set is varied."""
    drawn = draw("gdn_decode_qk4_v8_d128_k_last", "large-state", {"batch_size": 5})
    sizes = {n: v.abs() for n, v in drawn.values.items() if isinstance(v, torch.Tensor)}
    for _ in range(20):
        drawn.vary()
    for name in ("q", "k", "v", "state"):
        assert torch.equal(drawn.values[name].abs(), sizes[name])
        assert not torch.equal(drawn.values[name], sizes[name])
    for output, exact in drawn.recomputed().items():
        assert torch.equal(drawn.expected[output], exact)


def test_holes_of_a_selection_stay_where_they_are() -> None:
    """A short context keeps its padding at the end."""
    name = "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"
    drawn = draw(name, "short-context", {"num_tokens": 4, "num_pages": 64})
    for _ in range(CALLS):
        drawn.vary()
    filled = drawn.values["sparse_indices"] >= 0
    assert bool((filled[:, :-1] >= filled[:, 1:]).all())


def test_pages_of_a_row_stay_distinct() -> None:
    """A block table never names a page twice."""
    name = "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64"
    for generator in ("typical", "ties"):
        axes = {"batch_size": 6, "max_num_pages": 40, "num_pages": 300}
        drawn = draw(name, generator, axes)
        for _ in range(CALLS):
            drawn.vary()
        for row in drawn.values["block_table"]:
            assert row.unique().numel() == row.numel()
            assert 0 <= int(row.min()) <= int(row.max()) < 300


@pytest.mark.parametrize("tokens", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_blocks_and_tokens_of_a_mixture_of_experts(tokens: int) -> None:
    """All 32 experts share the weights of one, so that they need 44 MB instead of 1.4 GB."""
    found = operator(MOE)
    weights = small_weights(found.definition)
    # Few experts are active on these inputs; each costs the reference the same time.
    drawn = draw(MOE, "two-experts", {"seq_len": tokens}, static=weights)
    own = {name: value for name, value in drawn.values.items() if name not in weights}
    for _ in range(CALLS):
        before = tensors(own)
        drawn.vary()
        assert "gemm2_weights_scale" in differing(before, tensors(own))
    assert_close(drawn.expected["output"], drawn.recomputed()["output"])
    assert float(drawn.expected["output"].abs().max()) > 0.0


def test_scales_of_a_mixture_of_experts_do_not_drift() -> None:
    """After many calls a block is as it was drawn, or doubled."""
    found = operator(MOE)
    bound = found.definition.bind({"seq_len": 2})
    rng = torch.Generator().manual_seed(3)
    values = found.inputs.GENERATORS["typical"].draw(bound, rng)
    drawn = values["gemm2_weights_scale"].clone()
    expected = {"output": torch.ones(2, bound["hidden_size"])}
    for _ in range(1000):
        found.inputs.vary(values, expected, bound, rng)
    factor = values["gemm2_weights_scale"] / drawn
    assert set(factor.unique().tolist()) == {1.0, 2.0}
    assert set(expected["output"].unique().tolist()) <= {1.0, 2.0}


def small_weights(definition: Definition) -> dict[str, torch.Tensor]:
    """Expanded along the experts: the memory of one expert, 44 MB."""
    rng = torch.Generator().manual_seed(0)
    shapes = {s.name: s.shape for s in definition.input_shapes({"seq_len": 1})}
    return {
        name: torch.randn(*shapes[name][1:], generator=rng)
        .mul_(112.0)
        .clamp_(-448.0, 448.0)
        .to(torch.float8_e4m3fn)
        .expand(shapes[name])
        for name in definition.kopt.static_inputs
    }


def test_varying_a_decoding_step_touches_little_of_its_state() -> None:
    """It comes before every timed call: one sequence of 64, and no more, is written."""
    drawn = draw("gdn_decode_qk4_v8_d128_k_last", "typical", {"batch_size": 64})
    before = drawn.values["state"].clone()
    drawn.vary()
    changed = (drawn.values["state"] != before).flatten(1).any(1)
    assert int(changed.sum()) == 1
