"""The two operators of DeepSeek sparse attention: references, inputs, comparators, costs."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from kopt_harness.check import compare_all, null_kernel_reason
from kopt_harness.schema import Definition, TierResult

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY.parent / "shared" / "data"
TOPK = "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64"
ATTENTION = "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"
BOTH = pytest.mark.parametrize("name", [TOPK, ATTENTION])

SMALL = {
    TOPK: {"batch_size": 4, "max_num_pages": 45, "num_pages": 200},
    ATTENTION: {"num_tokens": 3, "num_pages": 64},
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
    check: ModuleType
    solution: ModuleType

    def draw(
        self, generator: str, seed: int = 0, *, device: str = "cpu", **axes: int
    ) -> dict[str, Any]:
        """All inputs of a small workload, or of ``axes``, in call order."""
        bound = self.definition.bind(SMALL[self.definition.name] | axes)
        rng = torch.Generator(device=device).manual_seed(seed)
        static = self.inputs.draw_static(bound, rng)
        drawn = self.inputs.GENERATORS[generator].draw(bound, rng, static=static) | static
        assert set(drawn) == set(self.definition.inputs)
        return {name: drawn[name] for name in self.definition.inputs}

    def precise(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Unrounded outputs, by name."""
        outputs = self.reference.precise(*inputs.values())
        return dict(zip(self.definition.outputs, outputs, strict=True))

    def solve(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """What torch-vectorized writes into poisoned outputs."""
        outputs = {}
        for name, exact in self.precise(inputs).items():
            dtype = getattr(torch, self.definition.outputs[name].dtype)
            poison = math.nan if dtype.is_floating_point else 1_000_000_007
            outputs[name] = torch.full_like(exact, poison, dtype=dtype)
        self.solution.run(*inputs.values(), *outputs.values())
        return outputs

    def compare(self, tier: str, inputs: dict[str, Any], **actual: torch.Tensor) -> TierResult:
        """One tier of outputs against the reference."""
        result = self.check.compare(tier, self.definition, inputs, self.precise(inputs), actual)
        assert isinstance(result, TierResult)
        return result


def _operator(name: str) -> Operator:
    folder = REPOSITORY / "kernels" / name
    return Operator(
        Definition.model_validate_json((folder / "definition.json").read_text()),
        _module(folder / "reference.py"),
        _module(folder / "inputs.py"),
        _module(folder / "cost.py"),
        _module(folder / "check.py"),
        _module(folder / "solutions" / "torch-vectorized" / "solution" / "python" / "kernel.py"),
    )


def _official(name: str, *replace: str) -> Any:
    """The official reference; ``replace`` is a pair of texts."""
    path = DATA / "definitions" / f"{name}.json"
    if not path.exists():
        pytest.skip("the official definitions are not here")
    text = json.loads(path.read_text())["reference"]
    if replace:
        text = text.replace(*replace)
    scope: dict[str, Any] = {}
    exec(text, scope)
    return scope["run"]


def _relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """In norm over finite elements; the others must be equal."""
    finite = expected.isfinite()
    assert torch.equal(actual[~finite], expected[~finite])
    difference = actual[finite].double() - expected[finite].double()
    return float(difference.norm() / expected[finite].double().norm())


def _scores(operator: Operator, inputs: dict[str, Any]) -> torch.Tensor:
    """Float64 scores of all places of the block tables, minus infinity behind the end."""
    keys = operator.reference._keys(inputs["k_index_cache_fp8"][inputs["block_table"].long()])
    scores: torch.Tensor = operator.reference._scores(
        inputs["q_index_fp8"], inputs["weights"], keys
    )
    position = torch.arange(scores.shape[1])
    return scores.masked_fill(position >= inputs["seq_lens"][:, None], -math.inf)


def _select(inputs: dict[str, Any], ranking: torch.Tensor) -> torch.Tensor:
    """The 2048 tokens with the largest ranking, padded."""
    place = ranking.topk(2048, dim=1).indices
    token = inputs["block_table"].long().gather(1, place // 64) * 64 + place % 64
    return token.masked_fill(place >= inputs["seq_lens"][:, None], -1).int()


@BOTH
def test_every_generator_draws_what_the_definition_declares(name: str) -> None:
    """Shapes and dtypes match, and only tensors that are not static are drawn each time."""
    operator = _operator(name)
    shapes = {s.name: s for s in operator.definition.input_shapes(SMALL[name])}
    bound = operator.definition.bind(SMALL[name])
    static = set(operator.definition.kopt.static_inputs)
    assert set(operator.inputs.draw_static(bound, torch.Generator())) == static
    for generator in operator.inputs.GENERATORS.values():
        assert not static & set(generator.draw(bound, torch.Generator()))
        for key, value in operator.draw(generator.name).items():
            if operator.definition.inputs[key].shape is None:
                assert isinstance(value, float)
                continue
            assert tuple(value.shape) == shapes[key].shape
            assert str(value.dtype) == f"torch.{shapes[key].dtype}"
            assert value.stride() == torch.empty(shapes[key].shape, device="meta").stride()


@BOTH
def test_inputs_follow_the_seed(name: str) -> None:
    """The same seed gives the same inputs, another seed others in every tensor."""
    operator = _operator(name)
    first, again, other = (operator.draw("typical", seed) for seed in (1, 1, 2))
    for key, value in first.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.view(torch.uint8), again[key].view(torch.uint8))
            assert not torch.equal(value.view(torch.uint8), other[key].view(torch.uint8))


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
            operator.check,
            kind=generator.kind,
        )
        wanted = {"pass"} if generator.kind == "contest" else {"pass", "n/a"}
        assert {tier.verdict for tier in tiers.values()} == wanted, generator.name


@pytest.mark.gpu
@BOTH
def test_inputs_reference_and_solution_work_on_a_gpu(name: str) -> None:
    """Everything stays on the device, and the GPU's reference agrees with the CPU's."""
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    operator = _operator(name)
    for generator in operator.inputs.GENERATORS.values():
        inputs = operator.draw(generator.name, device="cuda")
        solved = operator.solve(inputs)
        assert all(output.is_cuda for output in solved.values())
        host = {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
        actual = {key: output.cpu() for key, output in solved.items()}
        assert operator.compare("strict", inputs, **solved).verdict == "pass"
        assert operator.compare("strict", host, **actual).verdict == "pass"


@BOTH
def test_every_generator_tells_a_kernel_from_none(name: str) -> None:
    """Outputs of zeros are wrong on all inputs."""
    operator = _operator(name)
    for generator in operator.inputs.GENERATORS:
        inputs = operator.draw(generator)
        expected = operator.precise(inputs)
        assert null_kernel_reason(operator.definition, inputs, expected, operator.check) is None


@BOTH
def test_run_is_the_rounded_precise_result(name: str) -> None:
    """``run`` differs from ``precise`` by a cast to the declared dtype alone."""
    operator = _operator(name)
    inputs = operator.draw("typical")
    outputs = operator.reference.run(*inputs.values())
    for (key, exact), output in zip(operator.precise(inputs).items(), outputs, strict=True):
        assert output.dtype == getattr(torch, operator.definition.outputs[key].dtype)
        assert torch.equal(output, exact.to(output.dtype))


@BOTH
def test_definitions_declare_the_contests_operator(name: str) -> None:
    """Axes, tensors, dtypes and order are those of the official definition."""
    path = DATA / "definitions" / f"{name}.json"
    if not path.exists():
        pytest.skip("the official definitions are not here")
    official = json.loads(path.read_text())
    definition = _operator(name).definition
    for key in ("inputs", "outputs"):
        own = {n: (s.shape, s.dtype) for n, s in getattr(definition, key).items()}
        wanted = {
            n: (s["shape"] and tuple(s["shape"]), s["dtype"]) for n, s in official[key].items()
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


@pytest.mark.parametrize(
    "generator", ["typical", "short-context", "holes", "single-token", "flat-logits"]
)
def test_attention_agrees_with_the_official_reference(generator: str) -> None:
    """Relative error at most 1e-5 in norm, with the official output left in float32."""
    official = _official(ATTENTION, "torch.bfloat16", "torch.float32")
    operator = _operator(ATTENTION)
    inputs = operator.draw(generator, seed=5)
    ours = operator.precise(inputs).values()
    for own, theirs in zip(ours, official(*inputs.values()), strict=True):
        assert _relative_error(own, theirs) < 1e-5


@pytest.mark.parametrize(
    "generator", ["typical", "deployed", "ties", "all-equal", "powers-of-two", "ragged"]
)
def test_selection_agrees_with_the_official_reference(generator: str) -> None:
    """The same sets of tokens; where they differ, the scores are tied within float32."""
    official = _official(TOPK)
    operator = _operator(TOPK)
    inputs = operator.draw(generator, seed=5)
    ours = operator.precise(inputs)["topk_indices"]
    (theirs,) = official(*inputs.values())
    same = ours.sort(dim=1).values == theirs.sort(dim=1).values
    if generator in {"typical", "deployed", "ragged"}:
        assert same.all()
    scores = _scores(operator, inputs)
    for row in (~same.all(dim=1)).nonzero()[:, 0].tolist():
        cut = float(scores[row].topk(2048).values[-1])
        token = inputs["block_table"][row].repeat_interleave(64) * 64
        token += torch.arange(token.numel()) % 64
        swapped = torch.isin(token, ours[row]) ^ torch.isin(token, theirs[row])
        assert ((scores[row][swapped] - cut).abs() <= 1e-6 * abs(cut)).all()


def test_the_selection_is_that_of_a_scalar_computation() -> None:
    """Scores out of Python floats and bytes lead to the reference's tokens."""
    operator = _operator(TOPK)
    inputs = operator.draw("typical", batch_size=1, max_num_pages=33, num_pages=140)
    length = int(inputs["seq_lens"][0])
    raw = inputs["k_index_cache_fp8"].view(torch.uint8).reshape(140, 64 * 132)
    query, weights = inputs["q_index_fp8"][0].double(), inputs["weights"][0].double()
    ranked = []
    for position in range(length):
        page, offset = int(inputs["block_table"][0, position // 64]), position % 64
        values = raw[page, offset * 128 : offset * 128 + 128].view(torch.float8_e4m3fn).double()
        scale = raw[page, 8192 + offset * 4 : 8196 + offset * 4].clone().view(torch.float32)
        score = ((query @ values).clamp(min=0) * scale.double() * weights).sum()
        ranked.append((float(score), page * 64 + offset))
    best = {token for _, token in sorted(ranked, reverse=True)[:2048]}
    assert set(operator.precise(inputs)["topk_indices"][0].tolist()) == best


def test_lengths_need_the_whole_block_table_and_several_selections() -> None:
    """A row ends in the last page, half of the rows are long where the table has room."""
    operator = _operator(TOPK)
    for seed in range(10):
        for generator in ("typical", "deployed"):
            inputs = operator.draw(generator, seed, batch_size=5)
            lengths = inputs["seq_lens"]
            assert 44 * 64 < lengths.max() <= 45 * 64
            assert lengths.min() >= 1
            assert (lengths > 2048).sum() == 3
            for row in inputs["block_table"]:
                assert row.unique().numel() == 45
        short = operator.draw("typical", seed, max_num_pages=20)["seq_lens"]
        assert 19 * 64 < short.max() <= 20 * 64


def test_stress_rows_are_empty_and_short_and_around_the_limit() -> None:
    """Ragged lengths come out of the edges, an empty row always among them."""
    operator = _operator(TOPK)
    edges = {0, 1, 63, 64, 65, 2047, 2048, 2049, 45 * 64}
    seen: set[int] = set()
    for seed in range(20):
        lengths = operator.draw("ragged", seed)["seq_lens"].tolist()
        assert 0 in lengths
        seen |= set(lengths)
    assert seen == edges


def test_ties_fall_on_the_cut() -> None:
    """Members and non-members of the selection have the same score."""
    operator = _operator(TOPK)
    for generator in ("ties", "all-equal"):
        inputs = operator.draw(generator)
        for row in _scores(operator, inputs)[inputs["seq_lens"] > 2048]:
            ordered = row.sort(descending=True).values
            assert ordered[2047] == ordered[2048]


def test_cached_keys_are_packed_page_by_page() -> None:
    """Every token's values reach 448 and its scale restores a key of normal size."""
    operator = _operator(TOPK)
    bound = operator.definition.bind(SMALL[TOPK])
    cache = operator.inputs.draw_static(bound, torch.Generator())["k_index_cache_fp8"]
    raw = cache.reshape(200, -1).view(torch.uint8)[:50]  # the others are banks
    values = raw[:, :8192].contiguous().view(torch.float8_e4m3fn).float().view(50, 64, 128)
    scales = raw[:, 8192:].contiguous().view(torch.float32)
    assert (values.abs().amax(dim=2) == 448).all()
    assert 0.9 < (values * scales[..., None]).square().mean() < 1.1


def test_any_order_and_place_of_padding_is_right() -> None:
    """Shuffled selections, with -1 anywhere, pass both tiers."""
    operator = _operator(TOPK)
    inputs = operator.draw("typical")
    selected = operator.precise(inputs)["topk_indices"]
    shuffled = selected[:, torch.randperm(2048)]
    assert (shuffled[:, -1] >= 0).any()
    for tier in ("contest", "strict"):
        result = operator.compare(tier, inputs, topk_indices=shuffled)
        assert result.verdict == "pass"
        assert result.outputs[0].matched_ratio == 1.0


def test_ties_may_be_broken_in_any_way() -> None:
    """Other members of a group of equal scores are as good as the reference's."""
    operator = _operator(TOPK)
    for generator in ("ties", "all-equal"):
        inputs = operator.draw(generator)
        scores = _scores(operator, inputs)
        place = scores.flip(1).sort(dim=1, descending=True, stable=True).indices
        ranking = torch.empty_like(scores).scatter_(
            1, scores.shape[1] - 1 - place, -torch.arange(scores.shape[1]).double().expand_as(place)
        )
        other = _select(inputs, ranking)
        reference = operator.precise(inputs)["topk_indices"]
        assert not torch.equal(other.sort(dim=1).values, reference.sort(dim=1).values)
        for tier in ("contest", "strict"):
            assert operator.compare(tier, inputs, topk_indices=other).verdict == "pass"


@pytest.mark.parametrize(("gap", "verdict"), [(2.0**-22, "pass"), (2.0**-10, "fail")])
def test_a_swap_at_the_cut_is_right_within_float32_rounding(gap: float, verdict: str) -> None:
    """A token that scores lower by ``gap`` may stand for the last member only if that is tiny."""
    operator = _operator(TOPK)
    inputs = operator.draw("typical", seed=4)
    scores = _scores(operator, inputs)
    row = int(inputs["seq_lens"].argmax())
    order = scores[row].sort(descending=True).indices
    last, outsider = (
        int(inputs["block_table"][row, place // 64] * 64 + place % 64)
        for place in (order[2047], order[2300])
    )
    factor = 1.0 - math.copysign(gap, scores[row, order[2047]])
    raw = inputs["k_index_cache_fp8"].view(torch.uint8).view(200, 64 * 132)
    values = raw[:, :8192].unflatten(1, (64, 128))
    values[outsider // 64, outsider % 64] = values[last // 64, last % 64]
    scales = raw.view(torch.float32)[:, 2048:]
    scales[outsider // 64, outsider % 64] = scales[last // 64, last % 64] * factor
    selected = operator.precise(inputs)["topk_indices"]
    assert (selected[row] == last).any()
    assert not (selected[row] == outsider).any()
    swapped = selected.clone()
    swapped[row] = selected[row].where(selected[row] != last, outsider)
    assert operator.compare("contest", inputs, topk_indices=swapped).verdict == "pass"
    assert operator.compare("strict", inputs, topk_indices=swapped).verdict == verdict


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_selecting_by_rounded_scores_is_wrong(dtype: torch.dtype) -> None:
    """Half precision confuses neighbours of a power of two; a float32 ranking does not."""
    operator = _operator(TOPK)
    inputs = operator.draw("powers-of-two", seed=1, batch_size=8)
    scores = _scores(operator, inputs).masked_fill(
        torch.arange(45 * 64) >= inputs["seq_lens"][:, None], -math.inf
    )
    exact = _select(inputs, scores.float())
    rounded = _select(inputs, scores.to(dtype).float())
    assert operator.compare("strict", inputs, topk_indices=exact).verdict == "pass"
    result = operator.compare("strict", inputs, topk_indices=rounded)
    assert result.verdict == "fail"
    assert result.reason is not None
    assert result.reason.code == "wrong-member"


def test_a_coarse_key_of_rounded_scores_is_caught() -> None:
    """Ranking by the top byte of fp16 and then by the low bytes of float32 misplaces 31.99."""
    operator = _operator(TOPK)
    inputs = operator.draw("powers-of-two", seed=3, batch_size=8)
    scores = _scores(operator, inputs).float()
    coarse = scores.half().view(torch.int16).long() >> 8
    key = (coarse << 24) | (scores.view(torch.int32).long() & 0xFFFFFF)
    key = key.double().masked_fill(scores == -math.inf, -math.inf)
    actual = _select(inputs, key)
    assert operator.compare("strict", inputs, topk_indices=actual).verdict == "fail"


def _change(selected: torch.Tensor, inputs: dict[str, Any], row: int, what: str) -> torch.Tensor:
    """A selection with one thing wrong in ``row``."""
    wrong = selected.clone()
    if what == "repeated":
        wrong[row, 7] = wrong[row, 3]
    elif what == "foreign":
        used = set(inputs["block_table"][row].tolist())
        wrong[row, 7] = 64 * next(page for page in range(200) if page not in used)
    elif what == "behind-the-end":
        length = int(inputs["seq_lens"][row])
        wrong[row, 7] = inputs["block_table"][row, length // 64] * 64 + length % 64
    elif what == "huge":
        wrong[row, 7] = 2**31 - 1
    elif what == "too-few":
        wrong[row, 7] = -1
    elif what == "worst":
        length = int(inputs["seq_lens"][row])
        tokens = inputs["block_table"][row].repeat_interleave(64) * 64
        tokens = (tokens + torch.arange(tokens.numel()) % 64)[:length]
        wrong[row, 0] = tokens[~torch.isin(tokens, selected[row])][0]
    return wrong


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("repeated", "repeated-token"),
        ("foreign", "unreachable-token"),
        ("behind-the-end", "unreachable-token"),
        ("huge", "unreachable-token"),
        ("too-few", "wrong-count"),
        ("worst", "wrong-member"),
    ],
)
def test_a_wrong_selection_is_named(what: str, code: str) -> None:
    """One wrong id of 2048 fails both tiers and is the first wrong element."""
    operator = _operator(TOPK)
    inputs = operator.draw("typical", seed=11)
    row = int(inputs["seq_lens"].argmax())
    inputs["seq_lens"][row] = 44 * 64 + 17  # leaves places behind the end in the last page
    wrong = _change(operator.precise(inputs)["topk_indices"], inputs, row, what)
    for tier in ("contest", "strict"):
        result = operator.compare(tier, inputs, topk_indices=wrong)
        assert result.verdict == "fail"
        assert result.reason is not None
        first = result.outputs[0].first_wrong
        assert first is not None
        assert first.index[0] == row
        if tier == "strict" or code in {"repeated-token", "unreachable-token"}:
            assert result.reason.code == code
        else:
            assert result.reason.code == "wrong-scores"


def test_other_negative_ids_are_padding_in_the_contest_only() -> None:
    """The contest takes every negative id for padding; kopt wants -1."""
    operator = _operator(TOPK)
    inputs = operator.draw("ragged")
    wrong = operator.precise(inputs)["topk_indices"].masked_fill_(
        inputs["seq_lens"][:, None] == 0, -2
    )
    assert operator.compare("contest", inputs, topk_indices=wrong).verdict == "pass"
    result = operator.compare("strict", inputs, topk_indices=wrong)
    assert result.reason is not None
    assert result.reason.code == "wrong-padding"


def test_holes_are_where_the_generator_says() -> None:
    """Few anywhere, a padded end, one empty row, one token, all of them distinct."""
    operator = _operator(ATTENTION)
    typical = operator.draw("typical", seed=3)["sparse_indices"]
    assert 0 < (typical == -1).sum() < 0.05 * typical.numel()
    short = operator.draw("short-context", seed=3)["sparse_indices"] == -1
    assert (short.int().diff(dim=1) >= 0).all()
    assert not short[:, 0].any()
    assert short[:, -1].all()
    empty = (operator.draw("holes", seed=3)["sparse_indices"] == -1).sum(dim=1)
    assert empty[0] == 2048
    assert empty[1] > 0
    assert ((operator.draw("single-token")["sparse_indices"] >= 0).sum(dim=1) == 1).all()
    for row in typical:
        tokens = row[row >= 0]
        assert tokens.unique().numel() == tokens.numel()
        assert tokens.max() < 64 * 64


def test_an_empty_row_has_no_output_and_an_lse_of_minus_infinity() -> None:
    """The reference gives exactly that, and anything else fails the strict tier."""
    operator = _operator(ATTENTION)
    inputs = operator.draw("holes")
    exact = operator.precise(inputs)
    assert not exact["output"][0].any()
    assert (exact["lse"][0] == -math.inf).all()
    for name, value in (("lse", -1e30), ("lse", math.inf), ("output", 1e-3), ("output", math.nan)):
        actual = operator.solve(inputs)
        actual[name][0, 2] = value
        assert operator.compare("strict", inputs, **actual).verdict == "fail"


def test_infinities_fail_the_contest_tier() -> None:
    """Also where the reference is infinite: the contest's comparator refuses both."""
    operator = _operator(ATTENTION)
    inputs = operator.draw("holes")
    result = operator.compare("contest", inputs, **operator.solve(inputs))
    assert result.verdict == "fail"
    assert result.outputs[0].output == "lse"
    inputs = operator.draw("typical")
    actual = operator.solve(inputs)
    actual["output"][1, 3, 5] = math.nan
    result = operator.compare("contest", inputs, **actual)
    assert result.outputs[0].first_wrong is not None
    assert result.outputs[0].first_wrong.index == (1, 3, 5)


@pytest.mark.parametrize("output", ["output", "lse"])
def test_both_outputs_of_the_attention_are_compared(output: str) -> None:
    """A wrong lse fails beside a right output, and the other way round."""
    operator = _operator(ATTENTION)
    inputs = operator.draw("typical")
    actual = operator.solve(inputs)
    actual[output][2] *= 1.05
    for tier in ("contest", "strict"):
        result = operator.compare(tier, inputs, **actual)
        assert result.verdict == "fail"
        assert [error.output for error in result.outputs if not error.ok] == [output]


def test_an_attention_that_takes_holes_for_token_0_or_for_an_end_is_wrong() -> None:
    """Holes are neither read as an id nor as the end of the selection."""
    operator = _operator(ATTENTION)
    for seed in (0, 1):
        inputs = operator.draw("typical", seed)
        indices = inputs["sparse_indices"]
        ended = indices.masked_fill((indices == -1).int().cumsum(dim=1) > 0, -1)
        for wrong in (indices.clamp(min=0), ended):
            actual = operator.solve(inputs | {"sparse_indices": wrong})
            assert operator.compare("strict", inputs, **actual).verdict == "fail"


def test_costs_follow_their_assumptions() -> None:
    """Bytes and operations of hand-counted workloads."""
    topk, attention = _operator(TOPK), _operator(ATTENTION)
    short = topk.definition.bind({"batch_size": 2, "max_num_pages": 32, "num_pages": 11923})
    assert topk.cost.flops(short) == 0
    assert topk.cost.compulsory_bytes(short) == 2 * (8192 + 4)
    long = topk.definition.bind({"batch_size": 3, "max_num_pages": 91, "num_pages": 11923})
    row = 91 * (8448 + 4) + 64 * 128 + 64 * 4
    assert topk.cost.compulsory_bytes(long) == 2 * row + 3 * (8192 + 4)
    assert topk.cost.flops(long) == 2 * 91 * 64 * 64 * (2 * 128 + 3)
    eight = attention.definition.bind({"num_tokens": 8, "num_pages": 8462})
    gathered = 2048 * (2 * 576 + 4)
    ends = 16 * (2 * 576 + 2 * 512 + 4)
    assert attention.cost.compulsory_bytes(eight) == 8 * (gathered + ends)
    assert attention.cost.flops(eight) == 8 * 16 * 2048 * (2 * 576 + 2 * 512 + 4)
