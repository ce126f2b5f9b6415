"""Each adversarial generator shows the shortcut that it is made for, and no honest solution.

A shortcut is what a hurried kernel does: a few lines of PyTorch with one thing left out. Where
inputs of real use do not show it, a test says so: that is what the generator is for.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from kopt_harness.catalog import Catalog
from kopt_harness.check import compare_all
from kopt_harness.ledger import DictLedger
from kopt_harness.replay import replay
from kopt_harness.schema import Definition, TierResult, Verdict
from kopt_harness.setting import Setting

KERNELS = Path(__file__).parents[2] / "kernels"
DECODE, PREFILL, ATTENTION, TOPK, MOE = "gdn_decode", "gdn_prefill", "dsa_sparse", "dsa_topk", "moe"
AXES: dict[str, dict[str, int]] = {
    DECODE: {"batch_size": 3},
    PREFILL: {"total_seq_len": 400, "num_seqs": 6, "len_cu_seqlens": 7},
    ATTENTION: {"num_tokens": 3, "num_pages": 64},
    TOPK: {"batch_size": 3, "max_num_pages": 91, "num_pages": 600},
    MOE: {"seq_len": 2},
}
ADVERSARIAL = {
    DECODE: ("long-memory", "tiny-values", "huge-values"),
    PREFILL: ("chunk-borders", "one-long", "tiny-values", "huge-values"),
    ATTENTION: ("empty-tiles", "needles"),
    TOPK: ("near-ties", "one-place", "negative-scores", "magnitudes"),
    MOE: ("none-local", "all-local", "ragged-experts", "near-ties", "wide-scales"),
}
SMALL = [(alias, name) for alias in AXES if alias != MOE for name in ADVERSARIAL[alias]]

Outputs = dict[str, torch.Tensor]

_LAST: list[Any] = []
"""Inputs and what is expected of them."""


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"adversarial_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Operator(NamedTuple):
    """A definition, what its folder provides, and the inputs that all sets share."""

    alias: str
    definition: Definition
    reference: ModuleType
    inputs: ModuleType
    check: ModuleType | None
    solution: ModuleType
    static: dict[str, torch.Tensor]

    def draw(self, generator: str, seed: int = 0, **axes: int) -> dict[str, Any]:
        """Inputs in call order."""
        rng = torch.Generator().manual_seed(seed)
        bound = self.definition.bind(axes or AXES[self.alias])
        keywords = {"static": self.static} if self.static else {}
        drawn = self.inputs.GENERATORS[generator].draw(bound, rng, **keywords) | self.static
        return {name: drawn[name] for name in self.definition.inputs}

    def expected(self, inputs: dict[str, Any]) -> Outputs:
        """Unrounded outputs by name; those of the last inputs are remembered."""
        if not _LAST or _LAST[0] is not inputs:
            outputs = self.reference.precise(*inputs.values())
            _LAST[:] = inputs, dict(zip(self.definition.outputs, outputs, strict=True))
        found: Outputs = _LAST[1]
        return found

    def declared(self, outputs: Outputs) -> Outputs:
        """Outputs in their declared types."""
        return {
            name: output.to(getattr(torch, self.definition.outputs[name].dtype))
            for name, output in outputs.items()
        }

    def honest(self, inputs: dict[str, Any]) -> Outputs:
        """What torch-vectorized leaves in poisoned outputs."""
        poisoned = {
            name: torch.full_like(output, -7 if output.dtype == torch.int32 else math.nan)
            for name, output in self.declared(self.expected(inputs)).items()
        }
        self.solution.run(*inputs.values(), *poisoned.values())
        return poisoned

    def judge(
        self, inputs: dict[str, Any], actual: Outputs, *, kind: str = "stress"
    ) -> dict[Any, TierResult]:
        """Both tiers of outputs in any floating type."""
        expected = self.expected(inputs)
        declared = self.declared(actual)
        return compare_all(self.definition, inputs, expected, declared, self.check, kind=kind)  # type: ignore[arg-type]

    def strict(self, inputs: dict[str, Any], actual: Outputs) -> str:
        """The verdict of the strict tier."""
        return self.judge(inputs, actual)["strict"].verdict


@cache
def operator(alias: str) -> Operator:
    """Loaded once; the weights of the experts are 1.4 GB."""
    (folder,) = KERNELS.glob(f"{alias}*")
    definition = Definition.model_validate_json((folder / "definition.json").read_text())
    inputs = _module(folder / "inputs.py")
    sources = folder / "solutions" / "torch-vectorized" / "solution" / "python"
    if alias == MOE:
        package = ModuleType("adversarial_moe_solution")
        package.__path__ = [str(sources)]
        sys.modules[package.__name__] = package
        solution = importlib.import_module(f"{package.__name__}.kernel")
    else:
        solution = _module(sources / "kernel.py")
    static = {}
    if definition.kopt.static_inputs:
        rng = torch.Generator().manual_seed(99)
        static = inputs.draw_static(definition.bind(AXES[alias]), rng)
    has_check = (folder / "check.py").is_file()
    return Operator(
        alias,
        definition,
        _module(folder / "reference.py"),
        inputs,
        _module(folder / "check.py") if has_check else None,
        solution,
        static,
    )


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """More threads than free cores spin instead of working."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def experts() -> Iterator[Operator]:
    """The mixture of experts; its weights are given back at the end."""
    yield operator(MOE)
    operator.cache_clear()
    _LAST.clear()


@pytest.mark.parametrize("alias", list(ADVERSARIAL))
def test_adversarial_generators_say_what_they_show(alias: str) -> None:
    """Kind stress, and a docstring of what shows."""
    (folder,) = KERNELS.glob(f"{alias}*")
    inputs = _module(folder / "inputs.py")
    for name in ADVERSARIAL[alias]:
        assert inputs.GENERATORS[name].kind == "stress"
        text = getattr(inputs, f"_{name.replace('-', '_')}").__doc__
        assert "show" in text or "no NaN" in text


@pytest.mark.parametrize(("alias", "generator"), SMALL)
def test_an_honest_solution_passes(alias: str, generator: str) -> None:
    """torch-vectorized, on three draws of the generator."""
    one = operator(alias)
    for seed in range(3):
        inputs = one.draw(generator, seed)
        assert one.strict(inputs, one.honest(inputs)) == "pass"


@pytest.mark.parametrize(("alias", "name"), [(DECODE, "cpp-recurrent"), (PREFILL, "cpp-chunked")])
def test_the_compiled_solutions_pass(
    catalog: Catalog, setting: Setting, alias: str, name: str
) -> None:
    """In processes of their own, on distinct inputs of these generators alone."""
    definition = catalog.resolve(alias)
    workloads = catalog.workloads(definition)
    chosen = sorted(workloads, key=lambda w: catalog.cost(definition, w.axes).flops)[:40:20]
    result = replay(
        setting,
        catalog.solution(definition, name).solution,
        chosen,
        DictLedger(),
        trials=12,
        generators=ADVERSARIAL[alias],
    )
    assert result.evaluation.verdict == Verdict.PASS, result.evaluation.reasons
    assert not result.evaluation.flags
    assert result.distinct == len(result.trials) == 12


def _zeros(one: Operator, inputs: dict[str, Any]) -> Outputs:
    return {name: torch.zeros_like(output) for name, output in one.expected(inputs).items()}


@pytest.mark.parametrize("alias", [DECODE, PREFILL])
def test_zeros_hide_in_the_contests_tolerance_but_not_in_the_strict_tier(alias: str) -> None:
    """tiny-values: the contest's rule accepts zeros for a result, the strict one does not."""
    one = operator(alias)
    inputs = one.draw("tiny-values")
    tiers = one.judge(inputs, _zeros(one, inputs), kind="contest")
    assert (tiers["contest"].verdict, tiers["strict"].verdict) == ("pass", "fail")


@pytest.mark.parametrize("alias", [DECODE, PREFILL])
def test_a_state_in_half_precision_overflows(alias: str) -> None:
    """huge-values: float16 holds what real use needs, and not these."""
    one = operator(alias)

    def half(inputs: dict[str, Any]) -> Outputs:
        small = inputs | {"state": inputs["state"].half().float(), "v": inputs["v"].half().float()}
        return one.expected(small)

    huge, typical = one.draw("huge-values"), one.draw("typical")
    assert all(output.isfinite().all() for output in half(typical).values())
    assert one.strict(huge, half(huge)) == "fail"


def test_an_old_state_that_is_dropped_shows() -> None:
    """long-memory of decode: the state is nearly all there is."""
    one = operator(DECODE)
    inputs = one.draw("long-memory")
    dropped = one.expected(inputs | {"state": None})
    expected = one.expected(inputs)
    assert one.strict(inputs, dropped) == "fail"
    for name, output in expected.items():
        assert (output - dropped[name]).norm() > 0.9 * output.norm()


def test_a_scale_of_zero_taken_at_its_word_shows() -> None:
    """long-memory of decode: 0 stands for the default, not for an output of zeros."""
    one = operator(DECODE)
    inputs = one.draw("long-memory")
    outputs = one.expected(inputs)
    assert one.strict(inputs, outputs | {"output": torch.zeros_like(outputs["output"])}) == "fail"


def _lengths(inputs: dict[str, Any]) -> list[int]:
    return inputs["cu_seqlens"].diff().tolist()


def _without_last_tokens(one: Operator, inputs: dict[str, Any]) -> Outputs:
    """A single token behind the last whole chunk is not done."""
    outputs = {name: output.clone() for name, output in one.expected(inputs).items()}
    for end, length in zip(inputs["cu_seqlens"].tolist()[1:], _lengths(inputs), strict=True):
        if length % 64 == 1 and length > 1:
            outputs["output"][end - 1] = 0.0
    return outputs


def test_a_token_behind_a_whole_chunk_shows() -> None:
    """chunk-borders: lengths of 65 and 129 occur in every draw, in real use seldom."""
    one = operator(PREFILL)
    missed = 0
    for seed in range(4):
        typical = one.draw("typical", seed)
        missed += one.strict(typical, _without_last_tokens(one, typical)) == "pass"
        inputs = one.draw("chunk-borders", seed, total_seq_len=500, num_seqs=9, len_cu_seqlens=10)
        assert one.strict(inputs, _without_last_tokens(one, inputs)) == "fail"
    assert missed >= 3


def test_chunk_borders_have_lengths_around_them() -> None:
    """All tokens are given out, and a draw with room for it has most of the lengths."""
    one = operator(PREFILL)
    inputs = one.draw("chunk-borders", 1, total_seq_len=4000, num_seqs=30, len_cu_seqlens=31)
    lengths = _lengths(inputs)
    assert sum(lengths) == 4000
    assert min(lengths) >= 0
    assert len({1, 63, 64, 65, 127, 128, 129} & set(lengths)) >= 6


@pytest.mark.parametrize("tokens", [0, 1, 2, 6, 400])
@pytest.mark.parametrize("generator", ["chunk-borders", "one-long"])
def test_bounds_rise_to_the_number_of_tokens(generator: str, tokens: int) -> None:
    """Also where there are fewer tokens than sequences."""
    one = operator(PREFILL)
    for seed in range(5):
        axes = {"total_seq_len": tokens, "num_seqs": 6, "len_cu_seqlens": 7}
        bounds = one.draw(generator, seed, **axes)["cu_seqlens"]
        assert bounds.dtype == torch.int64
        assert (bounds[0], bounds[-1]) == (0, tokens)
        assert (bounds.diff() >= 0).all()


def test_work_shared_out_by_the_mean_length_shows() -> None:
    """one-long: a sequence is cut off at four times the mean; none of real use is so long."""
    one = operator(PREFILL)

    def cut(inputs: dict[str, Any]) -> Outputs:
        outputs = {name: output.clone() for name, output in one.expected(inputs).items()}
        most = 4 * inputs["q"].shape[0] // len(_lengths(inputs))
        for start, length in zip(inputs["cu_seqlens"].tolist(), _lengths(inputs), strict=False):
            outputs["output"][start + most : start + length] = 0.0
        return outputs

    for seed in range(3):
        typical, long = one.draw("typical", seed), one.draw("one-long", seed)
        assert one.strict(typical, cut(typical)) == "pass"
        assert one.strict(long, cut(long)) == "fail"


@pytest.mark.parametrize("generator", ["chunk-borders", "one-long", "tiny-values", "huge-values"])
def test_the_chunked_reference_is_the_sequential_one(generator: str) -> None:
    """Within 1e-6 of the recurrence, token by token in float64, of the largest outputs."""
    one = operator(PREFILL)
    inputs = one.draw(generator, 2, total_seq_len=200, num_seqs=4, len_cu_seqlens=5)
    output, new_state = one.expected(inputs).values()
    step = torch.nn.functional.softplus(inputs["a"].float() + inputs["dt_bias"]).double()
    decay = torch.exp(-inputs["A_log"].double().exp() * step)
    beta = torch.sigmoid(inputs["b"].double())
    q, k = (inputs[name].double().repeat_interleave(2, dim=1) for name in "qk")
    v, scale = inputs["v"].double(), inputs["scale"] or 128**-0.5
    bounds = inputs["cu_seqlens"].tolist()
    for seq, (start, end) in enumerate(pairwise(bounds)):
        state = inputs["state"][seq].double() if end > start else torch.zeros(8, 128, 128)
        for t in range(start, end):
            state = decay[t, :, None, None] * state
            error = v[t] - (state @ k[t, ..., None])[..., 0]
            state = state + (beta[t, :, None] * error)[..., None] * k[t][:, None]
            read = scale * (state @ q[t, ..., None])[..., 0]
            assert (output[t] - read).norm() <= 1e-6 * read.norm()
        assert (new_state[seq] - state).norm() <= 1e-6 * state.norm()


def _online(inputs: dict[str, Any], *, guarded: bool) -> Outputs:
    """Tile by tile with a running maximum, as a fused kernel does it."""
    ckv, kpe = inputs["ckv_cache"].flatten(0, 1), inputs["kpe_cache"].flatten(0, 1)
    ids = inputs["sparse_indices"].long()
    q_nope, q_pe = inputs["q_nope"].float(), inputs["q_pe"].float()
    top = torch.full(q_nope.shape[:2], -math.inf)
    total, sums = torch.zeros_like(top), torch.zeros_like(q_nope)
    for tile in ids.split(64, dim=1):
        keys = ckv[tile.clamp(min=0)].float()
        logits = q_nope @ keys.transpose(1, 2)
        logits += q_pe @ kpe[tile.clamp(min=0)].float().transpose(1, 2)
        logits = (logits * inputs["sm_scale"]).masked_fill((tile < 0)[:, None], -math.inf)
        raised = torch.maximum(top, logits.amax(2))
        shift = raised.masked_fill(raised == -math.inf, 0.0) if guarded else raised
        fade, weights = torch.exp(top - shift), torch.exp(logits - shift[..., None])
        total = total * fade + weights.sum(2)
        sums = sums * fade[..., None] + weights @ keys
        top = raised
    output = sums / total.clamp(min=1e-30)[..., None]
    return {"output": output, "lse": (top + total.log()) / math.log(2.0)}


def test_a_tile_of_holes_gives_no_nan() -> None:
    """empty-tiles: exp(-inf - -inf), which short and long rows of real use do not meet first."""
    one = operator(ATTENTION)
    for seed in range(3):
        for name in ("typical", "short-context"):
            usual = one.draw(name, seed)
            assert one.strict(usual, _online(usual, guarded=False)) == "pass"
        inputs = one.draw("empty-tiles", seed)
        assert one.strict(inputs, _online(inputs, guarded=True)) == "pass"
        assert one.strict(inputs, _online(inputs, guarded=False)) == "fail"


def test_stopping_at_the_first_hole_shows() -> None:
    """empty-tiles: holes come first, so that nothing would be attended to."""
    one = operator(ATTENTION)
    inputs = one.draw("empty-tiles")
    seen = (inputs["sparse_indices"] < 0).int().cumsum(1) == 0
    ended = inputs | {"sparse_indices": inputs["sparse_indices"].masked_fill(~seen, -1)}
    assert not seen.any()
    assert one.strict(inputs, one.expected(ended)) == "fail"
    assert (inputs["sparse_indices"] >= 0).any(dim=1).all()


@pytest.mark.parametrize("place", [0, 1, 63, 64, 2046, 2047])
def test_a_place_that_is_left_out_costs_a_whole_head(place: int) -> None:
    """needles: one missing token of 2048 changes some head by more than half its size."""
    one = operator(ATTENTION)
    worst = 0.0
    for seed in range(4):
        inputs = one.draw("needles", seed)
        ids = inputs["sparse_indices"].clone()
        ids[:, place] = -1
        right, wrong = one.expected(inputs), one.expected(inputs | {"sparse_indices": ids})
        off = (right["output"] - wrong["output"]).norm(dim=2) / right["output"].norm(dim=2)
        worst = max(worst, float(off.max()))
    assert worst > 0.5
    assert one.strict(inputs, wrong) == "fail"


def test_exponentials_without_the_maximum_show() -> None:
    """extreme-logits: they overflow, which they do not in real use."""
    one = operator(ATTENTION)

    def plain(inputs: dict[str, Any]) -> Outputs:
        tile = inputs["sparse_indices"].long()
        keys = inputs["ckv_cache"].flatten(0, 1)[tile.clamp(min=0)].float()
        places = inputs["kpe_cache"].flatten(0, 1)[tile.clamp(min=0)].float()
        logits = inputs["q_nope"].float() @ keys.transpose(1, 2)
        logits += inputs["q_pe"].float() @ places.transpose(1, 2)
        weights = torch.exp(logits * inputs["sm_scale"]).masked_fill((tile < 0)[:, None], 0.0)
        total = weights.sum(2)
        return {"output": (weights @ keys) / total[..., None], "lse": total.log2()}

    typical, extreme = one.draw("typical"), one.draw("extreme-logits")
    assert one.strict(typical, plain(typical)) == "pass"
    assert one.strict(extreme, plain(extreme)) == "fail"


Rank = Callable[[torch.Tensor], torch.Tensor]


def _selected(
    one: Operator, inputs: dict[str, Any], rank: Rank, *, fill: float = -math.inf, parts: int = 1
) -> Outputs:
    """The 2048 tokens of highest rank, with a quota for each of ``parts`` of a row."""
    table = inputs["block_table"].long()
    rows, width = table.shape
    place = torch.arange(width * 64).expand(rows, -1)
    scores = one.solution._scores(
        inputs["q_index_fp8"], inputs["k_index_cache_fp8"], inputs["weights"], inputs["block_table"]
    )
    ranks = rank(scores).masked_fill(place >= inputs["seq_lens"][:, None], fill)
    if parts > 1:
        quota = 2 * 2048 // parts
        kept = torch.zeros_like(ranks, dtype=torch.bool)
        for part in place[0].chunk(parts):
            best = ranks[:, part].topk(min(quota, part.numel()), dim=1).indices
            kept.scatter_(1, part[best], True)
        ranks = ranks.masked_fill(~kept, -math.inf)
    # Rows that select all of their tokens are right without a score.
    every = place < inputs["seq_lens"][:, None]
    is_short = inputs["seq_lens"][:, None] <= 2048
    ranks = torch.where(is_short, torch.where(every, 1.0, -1.0), ranks)
    best = ranks.topk(2048, dim=1).indices
    token = table.gather(1, best // 64) * 64 + best % 64
    token = token.masked_fill(is_short & ~every.gather(1, best), -1)
    return {"topk_indices": token}


def _bits(count: int) -> Rank:
    """Float32 with ``count`` bits of mantissa: 10 for TF32, 7 for bfloat16."""

    def rank(scores: torch.Tensor) -> torch.Tensor:
        step = 1 << (23 - count)
        return ((scores.view(torch.int32) + step // 2) & -step).view(torch.float32)

    return rank


@pytest.mark.parametrize("bits", [7, 10, 16])
def test_ranking_by_fewer_bits_shows(bits: int) -> None:
    """near-ties: bfloat16, TF32, and keys that are nearly float32."""
    one = operator(TOPK)
    for seed in range(3):
        inputs = one.draw("near-ties", seed)
        assert one.strict(inputs, _selected(one, inputs, _bits(23))) == "pass"
        assert one.strict(inputs, _selected(one, inputs, _bits(bits))) == "fail"


def test_near_ties_are_one_or_two_floats_apart() -> None:
    """Around the cut of a long row no two scores are equal, and none is further off."""
    one = operator(TOPK)
    inputs = one.draw("near-ties", 1)
    row = int(inputs["seq_lens"].argmax())
    scores = one.solution._scores(
        inputs["q_index_fp8"], inputs["k_index_cache_fp8"], inputs["weights"], inputs["block_table"]
    )[row, : inputs["seq_lens"][row]]
    ordered = scores.view(torch.int32).sort(descending=True).values
    gaps = -ordered.diff()
    assert gaps.min() >= 1
    assert gaps.float().median() <= 3


def test_a_quota_for_each_part_of_a_row_shows() -> None:
    """one-place: twice the fair share for each of eight parts is enough in real use."""
    one = operator(TOPK)
    for seed in range(3):
        typical, clustered = one.draw("typical", seed), one.draw("one-place", seed)
        assert one.strict(typical, _selected(one, typical, lambda s: s, parts=8)) == "pass"
        assert one.strict(clustered, _selected(one, clustered, lambda s: s)) == "pass"
        assert one.strict(clustered, _selected(one, clustered, lambda s: s, parts=8)) == "fail"


def test_zero_for_no_score_shows() -> None:
    """negative-scores: behind the end of a row is no score, which is less than any."""
    one = operator(TOPK)
    for seed in range(3):
        inputs = one.draw("negative-scores", seed)
        assert one.strict(inputs, _selected(one, inputs, lambda s: s)) == "pass"
        assert one.strict(inputs, _selected(one, inputs, lambda s: s, fill=0.0)) == "fail"


def test_floats_ranked_by_their_bits_show() -> None:
    """negative-scores: as integers, the bits of negative floats rise as the floats fall."""
    one = operator(TOPK)
    inputs = one.draw("negative-scores")

    def bits(scores: torch.Tensor) -> torch.Tensor:
        return (scores.view(torch.int32) & 0x7FFFFFFF).view(torch.float32)

    assert one.strict(inputs, _selected(one, inputs, bits)) == "fail"


def test_scores_that_leave_half_precision_show() -> None:
    """magnitudes: float16 rounds in real use, but here it overflows or vanishes."""
    one = operator(TOPK)
    caught = 0
    for seed in range(4):
        inputs = one.draw("magnitudes", seed)
        caught += one.strict(inputs, _selected(one, inputs, lambda s: s.half().float())) == "fail"
    assert caught == 4


def _counts(one: Operator, inputs: dict[str, Any]) -> torch.Tensor:
    """(32,) tokens of each local expert."""
    chosen, _ = one.reference._selection(inputs["routing_logits"], inputs["routing_bias"])
    local = chosen - inputs["local_expert_offset"]
    return torch.bincount(local[(local >= 0) & (local < 32)], minlength=32)


@pytest.mark.parametrize("generator", ADVERSARIAL[MOE])
def test_an_honest_mixture_of_experts_passes(experts: Operator, generator: str) -> None:
    """torch-vectorized in float32, and its SwiGLU outputs in fp8 where the bound allows it."""
    inputs = experts.draw(generator, 1)
    assert experts.strict(inputs, experts.honest(inputs)) == "pass"


def test_a_device_without_work_still_writes_zeros(experts: Operator) -> None:
    """none-local: what was in the output before is not the answer."""
    inputs = experts.draw("none-local")
    stale = {"output": torch.full((2, 7168), math.nan)}
    assert not _counts(experts, inputs).any()
    assert experts.strict(inputs, _zeros(experts, inputs)) == "pass"
    assert experts.strict(inputs, stale) == "fail"


def _capped(one: Operator, inputs: dict[str, Any], *, a_token: int, an_expert: int) -> Outputs:
    """What is left when only so many local experts of a token, and tokens of an expert, are done.

    Whatever is over is taken to be an expert of another device.
    """
    chosen, scores = one.reference._selection(inputs["routing_logits"], inputs["routing_bias"])
    offset = inputs["local_expert_offset"]
    of_expert: dict[int, int] = {}
    for token in range(chosen.shape[0]):
        kept = 0
        for place in range(8):
            expert = int(chosen[token, place]) - offset
            if not 0 <= expert < 32:
                continue
            kept += 1
            of_expert[expert] = of_expert.get(expert, 0) + 1
            if kept > a_token or of_expert[expert] > an_expert:
                chosen[token, place] = (offset + 32 + expert) % 256
    patched = _module(Path(one.reference.__file__ or ""))
    patched._selection = lambda logits, bias: (chosen, scores)  # type: ignore[attr-defined]
    return {"output": patched.precise(*inputs.values())[0]}


def test_room_for_a_few_experts_of_a_token_shows(experts: Operator) -> None:
    """all-local: a token with eight local experts, where real use has one on average."""
    inputs = experts.draw("all-local", 1)
    assert experts.strict(inputs, _capped(experts, inputs, a_token=6, an_expert=99)) == "fail"


def test_room_for_a_balanced_load_shows(experts: Operator) -> None:
    """ragged-experts: twice the average load of an expert is not enough."""
    inputs = experts.draw("ragged-experts", 1)
    assert experts.strict(inputs, _capped(experts, inputs, a_token=8, an_expert=1)) == "fail"


def test_ragged_loads_lie_around_tiles(experts: Operator) -> None:
    """Every expert has a count at an edge of a tile, together at most twice the average."""
    edges = {0, 1, 2, 63, 64, 65, 127, 128, 129}
    for seed in range(3):
        counts = _counts(experts, experts.draw("ragged-experts", seed, seq_len=600)).tolist()
        assert set(counts) <= edges
        assert len(set(counts)) >= 5
        assert sum(counts) <= 2 * 600


def test_routing_in_half_precision_shows(experts: Operator) -> None:
    """near-ties: logits in bfloat16 select other experts of this device for many tokens."""

    def moved(generator: str) -> float:
        inputs = experts.draw(generator, 1, seq_len=256)
        logits, bias = inputs["routing_logits"], inputs["routing_bias"]
        here = []
        for given in (logits, logits.bfloat16().float()):
            chosen, _ = experts.reference._selection(given, bias)
            local = chosen - inputs["local_expert_offset"]
            here.append(local.where((local >= 0) & (local < 32), -1).sort().values)
        return float((here[0] != here[1]).any(dim=1).float().mean())

    assert moved("near-ties") > 0.1
    assert moved("typical") < 0.05


def test_one_scale_for_two_blocks_shows(experts: Operator) -> None:
    """wide-scales: a block's neighbour is not on its scale, in real use nearly so."""
    inputs = experts.draw("wide-scales", 1)
    scale = inputs["gemm1_weights_scale"]
    shared = scale[..., 0::2].repeat_interleave(2, dim=2).contiguous()
    assert experts.strict(inputs, experts.expected(inputs | {"gemm1_weights_scale": shared})) == (
        "fail"
    )


def test_requantised_activations_are_within_the_bound(
    experts: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wide-scales: SwiGLU outputs in fp8 per 128 channels, the honest use of fp8 tensor cores."""
    inputs = experts.draw("wide-scales", 1)
    expected = experts.expected(inputs)

    def requantised(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        up_scale, down, down_scale = weights[1], weights[2], weights[3]
        both = x @ experts.reference._dequantized(weights[0], up_scale).t()
        up, gate = both.chunk(2, dim=1)
        blocks = (torch.nn.functional.silu(gate) * up).unflatten(1, (-1, 128))
        scale = blocks.abs().amax(2, keepdim=True).clamp(min=1e-30) / 448.0
        blocks = (blocks / scale).to(torch.float8_e4m3fn).float() * scale
        return blocks.flatten(1) @ experts.reference._dequantized(down, down_scale).t()

    monkeypatch.setattr(experts.reference, "_expert", requantised)
    (actual,) = experts.reference.precise(*inputs.values())
    monkeypatch.undo()
    assert (actual - expected["output"]).norm() > 0.01 * expected["output"].norm()
    assert experts.strict(inputs, {"output": actual}) == "pass"
