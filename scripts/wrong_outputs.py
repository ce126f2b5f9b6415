"""Wrong outputs that the contest's rule lets through, on real definitions.

Each is what some solution could return: the reference's outputs with one thing wrong.
tests/harness/test_strict_catches.py holds kopt's two tiers against them, and
scripts/compare_with_flashinfer_bench.py asks an installed FlashInfer-Bench as well. Imported
by both; running it does nothing.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from kopt_harness.check import check_outputs, compare_contest, compare_strict
from kopt_harness.schema import Definition, Reason

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
ATTENTION = "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"
DECODE = "gdn_decode_qk4_v8_d128_k_last"
INDEXER = "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64"
MOE = "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048"
SMALL = {
    ATTENTION: {"num_tokens": 2, "num_pages": 64},
    DECODE: {"batch_size": 2},
    INDEXER: {"batch_size": 4, "max_num_pages": 64, "num_pages": 400},
    MOE: {"seq_len": 11},
}

Tensors = dict[str, Any]


class Call(NamedTuple):
    """One call of a definition's reference on inputs of its first generator."""

    definition: Definition
    folder: Path
    inputs: Tensors
    exact: Tensors
    """Unrounded outputs by name."""

    def declared(self) -> Tensors:
        """The outputs in their declared dtypes."""
        outputs = self.definition.outputs
        return {name: exact.to(_dtype(outputs[name].dtype)) for name, exact in self.exact.items()}


class WrongOutput(NamedTuple):
    """Something wrong, and on what."""

    id: str
    what: str
    """One sentence."""
    definition: str
    spoil: Callable[[Call], Tensors]
    """The outputs of a solution with that fault."""
    prepare: Callable[[Tensors], Tensors] = dict
    """Changes drawn inputs before the reference sees them."""


class Tiers(NamedTuple):
    """What kopt says of outputs: a verdict, and why, for each tier."""

    contest: str
    contest_reason: Reason | None
    strict: str
    strict_reason: Reason | None


def load(path: Path) -> ModuleType:
    """A file of a definition's folder as a module."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_definition(name: str) -> Definition:
    """A definition of this checkout."""
    text = (KERNELS / name / "definition.json").read_text()
    return Definition.model_validate_json(text)


def call(wrong: WrongOutput, seed: int = 0) -> Call:
    """Draws inputs and computes the reference."""
    definition = read_definition(wrong.definition)
    folder = KERNELS / wrong.definition
    axes = definition.bind(SMALL[wrong.definition])
    rng = torch.Generator().manual_seed(seed)
    source = load(folder / "inputs.py")
    generator = next(iter(source.GENERATORS.values()))
    if hasattr(source, "draw_static"):
        static = source.draw_static(axes, rng)
        drawn = static | generator.draw(axes, rng, static=static)
    else:
        drawn = generator.draw(axes, rng)
    inputs = wrong.prepare({name: drawn[name] for name in definition.inputs})
    exact = load(folder / "reference.py").precise(*inputs.values())
    return Call(definition, folder, inputs, dict(zip(definition.outputs, exact, strict=True)))


def judge(made: Call, actual: Tensors) -> Tiers:
    """Both of kopt's tiers; an output of another form than declared fails the strict one."""
    definition, check = made.definition, made.folder / "check.py"
    axes = definition.bind(SMALL[definition.name])
    refused = check_outputs(definition, axes, actual)
    if check.exists():
        rule = load(check)
        contest = rule.compare("contest", definition, made.inputs, made.exact, actual)
        if refused:
            return Tiers(contest.verdict, contest.reason, "fail", refused)
        strict = rule.compare("strict", definition, made.inputs, made.exact, actual)
    else:
        contest = compare_contest(definition, made.exact, actual)
        strict = compare_strict(definition, made.exact, actual)
    return Tiers(contest.verdict, contest.reason, strict.verdict, strict.reason)


def _dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found


def _tiny(inputs: Tensors) -> Tensors:
    """A state and values of less than a thousandth of their usual size."""
    factor = 2.0**-12
    return inputs | {name: inputs[name] * factor for name in ("state", "v")}


def _one_nan(inputs: Tensors) -> Tensors:
    state = inputs["state"].clone()
    state[0, 0, 0, 0] = torch.nan
    return inputs | {"state": state}


def _zeros(made: Call) -> Tensors:
    return {name: torch.zeros_like(output) for name, output in made.declared().items()}


def _any_number_for_nan(made: Call) -> Tensors:
    return {name: torch.nan_to_num(output, nan=1e6) for name, output in made.declared().items()}


def _state_through_bf16(made: Call) -> Tensors:
    outputs = made.declared()
    return outputs | {"new_state": outputs["new_state"].bfloat16().float()}


def _lse_through_bf16(made: Call) -> Tensors:
    outputs = made.declared()
    return outputs | {"lse": outputs["lse"].bfloat16().float()}


def _lse_missing(made: Call) -> Tensors:
    return {"output": made.declared()["output"]}


def _scaled(made: Call) -> Tensors:
    return {"output": (made.exact["output"] * 1.29).bfloat16()}


def _row_of_rubbish(made: Call) -> Tensors:
    output = made.declared()["output"]
    output[3] = 1e30
    return {"output": output}


def _selected_in_bf16(made: Call) -> Tensors:
    """The 2048 best tokens by scores rounded to bf16."""
    inputs = made.inputs
    raw = inputs["k_index_cache_fp8"].view(torch.uint8)
    pages = raw.reshape(raw.shape[0], -1)[inputs["block_table"].long()]
    values = pages[..., : 64 * 128].contiguous().view(torch.float8_e4m3fn).float()
    scales = pages[..., 64 * 128 :].contiguous().view(torch.float32)
    keys = (values.unflatten(2, (64, 128)) * scales[..., None]).flatten(1, 2)
    heads = torch.relu(inputs["q_index_fp8"].float() @ keys.transpose(1, 2))
    scores = (inputs["weights"][:, None] @ heads)[:, 0].bfloat16().float()
    place = torch.arange(scores.shape[1])
    lengths = inputs["seq_lens"][:, None]
    scores = scores.masked_fill(place >= lengths, -math.inf)
    best = scores.sort(dim=1, descending=True, stable=True).indices[:, :2048]
    tokens = inputs["block_table"].long().gather(1, best // 64) * 64 + best % 64
    return {"topk_indices": tokens.masked_fill(best >= lengths, -1).int()}


WRONG_OUTPUTS = (
    WrongOutput(
        "tiny-as-zeros",
        "Outputs below the absolute tolerance are replaced by zeros",
        DECODE,
        _zeros,
        _tiny,
    ),
    WrongOutput("scaled", "The whole output is 29 % too large", MOE, _scaled),
    WrongOutput("rubbish-row", "One row of eleven (9 %) is 1e30", MOE, _row_of_rubbish),
    WrongOutput("lse-missing", "The second output is not returned", ATTENTION, _lse_missing),
    WrongOutput(
        "nan-reference",
        "The reference has NaN where the output has 1e6",
        DECODE,
        _any_number_for_nan,
        _one_nan,
    ),
    WrongOutput(
        "state-through-bf16",
        "The float32 state is computed in bfloat16",
        DECODE,
        _state_through_bf16,
    ),
    WrongOutput(
        "lse-through-bf16", "The float32 lse is computed in bfloat16", ATTENTION, _lse_through_bf16
    ),
    WrongOutput(
        "scores-in-bf16",
        "Tokens are selected by scores rounded to bfloat16",
        INDEXER,
        _selected_in_bf16,
    ),
)
"""All of them; an honest output passes both tiers (``Call.declared``)."""
