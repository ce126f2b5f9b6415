"""Seeded inputs of the mixture-of-experts layer.

Routing: logits are normal around -1 with an offset per expert and per group, so that experts
and groups are unequally popular: of 32 experts the busiest has about twice the average load,
as in traces of the model. Eight experts per token over eight groups of 32 give a device T
assignments on average; the device is drawn among those at or above that average that also
have at least as many active experts as uniform routing would give them (where one has). About
half of the tokens have no local expert. Draws in which a token's selection hangs on a
difference below 1e-5 are repeated for that token: there, float32 routing may differ by
rounding alone.

Values: tokens are normal with a few large channels, quantised per 128 channels to 448;
weights are normal with the variances that keep projections at 1, so outputs of a token with
local experts have a standard deviation of about 3: the contest's absolute tolerance of 1 does
not hide wrong rows. The weights (1.4 GB) are shared by all input sets; their scales are not.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

_BLOCK = 128
_GROUPS = 8
_GROUPS_KEPT = 4
_TOP = 8

_POOL = 1 << 25
"""Bytes of drawn fp8 weights; matrices are windows at random places of it."""

_CHUNK_ROWS = 128
"""Weight rows in one window: neighbouring blocks of rows come from unrelated places."""

_SIGMA = 112.0
"""Standard deviation of an fp8 weight: the largest of 128 x 128 normals is 4 sigma = 448."""

_MARGIN = 1e-5
_REDRAWS = 8


class Generator(NamedTuple):
    """A named distribution of inputs."""

    name: str
    kind: str
    """``contest`` (real use) or ``stress``."""
    draw: Callable
    """``draw(axes, rng, static=None)`` with all axes bound: all but the static inputs, on
    ``rng.device``; ``static`` holds those."""


class _Routing(NamedTuple):
    """Who is selected, and how safely."""

    selected: torch.Tensor
    """(T, 8) expert ids."""
    margin: torch.Tensor
    """(T,) smallest difference that decides the selection, in units of the score."""


def _normal(rng, *shape):
    return torch.randn(*shape, generator=rng, device=rng.device)


def _fp8_windows(pool, rng, *shape):
    """Weights of a shape, in windows of 128 rows of the pool; copied 8 bytes at a time."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    windows = pool.view(torch.int64).unfold(0, _CHUNK_ROWS * columns // 8, 1)
    count = rows // _CHUNK_ROWS
    place = torch.randint(windows.shape[0], (count,), generator=rng, device=rng.device)
    return windows.index_select(0, place).view(torch.float8_e4m3fn).view(shape)


def draw_static(axes, rng):
    """The weights of both projections.

    Args:
        axes: all axes, bound.
        rng: source of randomness; its device is that of the weights.

    Returns:
        ``gemm1_weights`` (32, 4096, 7168) and ``gemm2_weights`` (32, 7168, 2048), fp8.
    """
    pool = (_normal(rng, _POOL) * _SIGMA).clamp_(-448.0, 448.0)
    pool = pool.to(torch.float8_e4m3fn)
    experts, hidden = axes["num_local_experts"], axes["hidden_size"]
    return {
        "gemm1_weights": _fp8_windows(pool, rng, experts, axes["gemm1_out_size"], hidden),
        "gemm2_weights": _fp8_windows(pool, rng, experts, hidden, axes["intermediate_size"]),
    }


def _block_scales(rng, *shape, deviation):
    """Scales under which weights of deviation 112 get ``deviation``, spread by a fifth."""
    return (deviation / _SIGMA) * torch.exp(0.2 * _normal(rng, *shape))


def _route(logits, bias):
    score = torch.sigmoid(logits.double()) + bias.double()
    by_group = score.unflatten(1, (_GROUPS, -1))
    groups = by_group.topk(2, dim=2).values.sum(dim=2).topk(_GROUPS_KEPT + 1, dim=1)
    kept = torch.zeros(by_group.shape[:2], dtype=torch.bool, device=logits.device)
    kept.scatter_(1, groups.indices[:, :_GROUPS_KEPT], True)
    best = by_group.masked_fill(~kept[..., None], -1.0).flatten(1).topk(_TOP + 1, dim=1)
    group_margin = groups.values[:, -2] - groups.values[:, -1]
    margin = torch.minimum(group_margin, best.values[:, -2] - best.values[:, -1])
    return _Routing(best.indices[:, :_TOP], margin)


def _clear_logits(draw, bias):
    """Logits from ``draw()``, redrawn for tokens whose selection is nearly undecided."""
    logits = draw()
    for _ in range(_REDRAWS):
        unclear = _route(logits, bias).margin < _MARGIN
        if not unclear.any():
            break
        logits = torch.where(unclear[:, None], draw(), logits)
    return logits


def _local_offset(axes, rng, selected):
    """First expert of a device with at least average load, at random where there are several."""
    tokens, local = axes["seq_len"], axes["num_local_experts"]
    counts = torch.bincount(selected.flatten(), minlength=axes["num_experts"]).view(-1, local)
    load, active = counts.sum(dim=1), (counts > 0).sum(dim=1)
    uniform = local * (1.0 - (1.0 - _TOP / axes["num_experts"]) ** tokens)
    average = tokens * _TOP * local / axes["num_experts"]
    fits = (load >= average) & (active >= math.floor(uniform))
    luck = torch.rand(load.shape, generator=rng, device=rng.device)
    # Where no device fits, the one with most active experts comes closest.
    preference = torch.where(fits, 1000.0, 0.0) + luck + torch.where(fits, 0.0, active.float())
    return int(preference.argmax()) * local


def _tokens(axes, rng):
    """(T, H) fp8 and (S, T) scales: normal channels, of which 1 in 256 is 8 times as large."""
    tokens, hidden, blocks = axes["seq_len"], axes["hidden_size"], axes["num_hidden_blocks"]
    large = torch.rand(hidden, generator=rng, device=rng.device) < 1.0 / 256.0
    values = _normal(rng, tokens, hidden) * torch.where(large, 8.0, 1.0)
    values = values.view(tokens, blocks, _BLOCK)
    scale = values.abs().amax(dim=2).clamp_(min=1e-6) / 448.0
    quantised = (values / scale[..., None]).to(torch.float8_e4m3fn).view(tokens, hidden)
    # A clone, because contiguous() keeps the odd strides of a single token's transpose.
    by_block = scale.t().clone(memory_format=torch.contiguous_format)
    return {"hidden_states": quantised, "hidden_states_scale": by_block}


def _inputs(axes, rng, logits, bias, offset):
    local, hidden_blocks = axes["num_local_experts"], axes["num_hidden_blocks"]
    inner, outer = axes["num_intermediate_blocks"], axes["num_gemm1_out_blocks"]
    return {
        "routing_logits": logits,
        "routing_bias": bias,
        **_tokens(axes, rng),
        "gemm1_weights_scale": _block_scales(
            rng, local, outer, hidden_blocks, deviation=axes["hidden_size"] ** -0.5
        ),
        "gemm2_weights_scale": _block_scales(
            rng, local, hidden_blocks, inner, deviation=10.0 * axes["intermediate_size"] ** -0.5
        ),
        "local_expert_offset": offset,
        "routed_scaling_factor": 2.5,
    }


def _skewed_logits(axes, rng):
    """Logits and bias of a router with unequally popular experts and groups."""
    tokens, experts = axes["seq_len"], axes["num_experts"]
    popularity = 0.2 * _normal(rng, experts) - 1.0
    popularity += 0.1 * _normal(rng, _GROUPS).repeat_interleave(experts // _GROUPS)
    bias = (0.02 * _normal(rng, experts)).to(torch.bfloat16)
    return _clear_logits(lambda: popularity + _normal(rng, tokens, experts), bias), bias


def _typical(axes, rng):
    """A device with average load or more."""
    logits, bias = _skewed_logits(axes, rng)
    offset = _local_offset(axes, rng, _route(logits, bias).selected)
    return _inputs(axes, rng, logits, bias, offset)


def _quiet_device(axes, rng):
    """The device with the fewest assignments, at least one: most tokens have no local expert."""
    logits, bias = _skewed_logits(axes, rng)
    local = axes["num_local_experts"]
    group = _route(logits, bias).selected // local
    load = torch.bincount(group.flatten(), minlength=axes["num_experts"] // local)
    offset = int(load.where(load > 0, load.max() + 1).argmin()) * local
    return _inputs(axes, rng, logits, bias, offset)


def _two_experts(axes, rng):
    """Every token selects the same two experts of this device, and others at random."""
    tokens, experts, local = axes["seq_len"], axes["num_experts"], axes["num_local_experts"]
    group = torch.randint(_GROUPS, (1,), generator=rng, device=rng.device)
    pick = torch.randperm(local, generator=rng, device=rng.device)[:2]
    popularity = torch.full((experts,), -1.0, device=rng.device)
    # Both of one group: their sum of nearly 2 carries the group into the four that are kept.
    popularity[group * local + pick] = 8.0
    bias = (0.02 * _normal(rng, experts)).to(torch.bfloat16)
    logits = _clear_logits(lambda: popularity + _normal(rng, tokens, experts), bias)
    return _inputs(axes, rng, logits, bias, int(group) * local)


def _strong_bias(axes, rng):
    """A bias that decides the selection alone, of either sign; scores from 0 to 1."""
    tokens, experts = axes["seq_len"], axes["num_experts"]
    bias = (2.0 * _normal(rng, experts)).to(torch.bfloat16)
    logits = _clear_logits(lambda: 3.0 * _normal(rng, tokens, experts), bias)
    offset = _local_offset(axes, rng, _route(logits, bias).selected)
    return _inputs(axes, rng, logits, bias, offset)


def _assigned(axes, rng, group, wanted):
    """Inputs in which a token selects just those experts of a device that are wanted of it.

    Args:
        axes: all axes, bound.
        rng: source of randomness.
        group: (1,) group of experts that is the device.
        wanted: (T, 32) bool, at most 8 in a row; the rest of the 8 are experts elsewhere.
    """
    tokens, experts, local = axes["seq_len"], axes["num_experts"], axes["num_local_experts"]
    mine = torch.arange(experts, device=rng.device) // local == group
    height = torch.full((tokens, experts), -2.5, device=rng.device)
    height[:, mine] = torch.where(wanted, 4.0, -6.0)
    bias = (0.002 * _normal(rng, experts)).to(torch.bfloat16)
    logits = _clear_logits(lambda: height + 0.5 * _normal(rng, tokens, experts), bias)
    return _inputs(axes, rng, logits, bias, int(group) * local)


def _group(rng):
    return torch.randint(_GROUPS, (1,), generator=rng, device=rng.device)


def _none_local(axes, rng):
    """No token has an expert here: outputs that are not written, and empty launches, show."""
    wanted = torch.zeros(
        axes["seq_len"], axes["num_local_experts"], dtype=torch.bool, device=rng.device
    )
    return _assigned(axes, rng, _group(rng), wanted)


def _all_local(axes, rng):
    """A quarter of the tokens has all 8 experts here, the others none: buffers for 1 show."""
    tokens, local = axes["seq_len"], axes["num_local_experts"]
    rank = torch.rand(tokens, local, generator=rng, device=rng.device).argsort(dim=1)
    order = torch.randperm(tokens, generator=rng, device=rng.device)
    chosen = order < (tokens + 3) // 4
    return _assigned(axes, rng, _group(rng), (rank < _TOP) & chosen[:, None])


def _ragged_experts(axes, rng):
    """Experts with 0, 1 and around 64 and 128 tokens: tiles that are cut off or padded show."""
    tokens, local = axes["seq_len"], axes["num_local_experts"]
    edges = [n for n in (0, 1, 2, 63, 64, 65, 127, 128, 129) if n <= tokens]
    pick = torch.randint(len(edges), (local,), generator=rng, device=rng.device)
    pick[0] = len(edges) - 1  # not none of all
    load = torch.zeros(tokens, device=rng.device)
    wanted = torch.zeros(tokens, local, dtype=torch.bool, device=rng.device)
    left = 2 * tokens  # twice the average load, so that no token has many of them
    place = torch.randperm(local, generator=rng, device=rng.device)
    for expert, which in zip(place.tolist(), pick.tolist(), strict=True):
        count = edges[which] if edges[which] <= left else 0
        luck = torch.rand(tokens, generator=rng, device=rng.device)
        least = (load + luck).argsort()[:count]
        wanted[least, expert] = True
        load[least] += 1.0
        left -= count
    return _assigned(axes, rng, _group(rng), wanted)


def _near_ties(axes, rng):
    """Scores of all experts within some thousandths: routing in half precision shows."""
    tokens, experts = axes["seq_len"], axes["num_experts"]
    bias = torch.zeros(experts, dtype=torch.bfloat16, device=rng.device)
    logits = _clear_logits(lambda: 0.008 * _normal(rng, tokens, experts) - 1.0, bias)
    offset = _local_offset(axes, rng, _route(logits, bias).selected)
    return _inputs(axes, rng, logits, bias, offset)


def _wide_scales(axes, rng):
    """Scales of neighbouring blocks apart by powers of two: one scale for several shows."""
    inputs = _typical(axes, rng)
    for name in ("gemm1_weights_scale", "gemm2_weights_scale", "hidden_states_scale"):
        scale = inputs[name]
        power = torch.randint(-5, 4, scale.shape, generator=rng, device=rng.device)
        inputs[name] = scale * torch.exp2(power.float())
    return inputs


def _generator(name, kind, draw):
    """A generator whose inputs do not depend on the static ones."""
    return Generator(name, kind, lambda axes, rng, static=None: draw(axes, rng))  # noqa: ARG005


GENERATORS = {
    generator.name: generator
    for generator in (
        _generator("typical", "contest", _typical),
        _generator("quiet-device", "stress", _quiet_device),
        _generator("two-experts", "stress", _two_experts),
        _generator("strong-bias", "stress", _strong_bias),
        _generator("none-local", "stress", _none_local),
        _generator("all-local", "stress", _all_local),
        _generator("ragged-experts", "stress", _ragged_experts),
        _generator("near-ties", "stress", _near_ties),
        _generator("wide-scales", "stress", _wide_scales),
    )
}


_VARIED_TOKENS = 64
"""Tokens that change places in one call."""


def _cycle(tensor, order, dim):
    """Moves each of ``order`` along an axis to the place of the next one, in place."""
    raw = tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
    raw.index_copy_(dim, order, raw.index_select(dim, order.roll(1)))


def vary(values, expected, axes, rng):
    """Changes a small random part of a set in place, and what is expected of it.

    Up to 64 tokens change places, with their outputs. Of the 56 blocks of output channels one
    is scaled by a power of two, through the scales of the second projection: doubled where
    it is as it was drawn, halved where it was doubled before.

    Args:
        values: inputs by name.
        expected: unrounded outputs by name.
        axes: all axes, bound.
        rng: source of randomness, on the device of the inputs.
    """
    order = torch.randperm(axes["seq_len"], generator=rng, device=rng.device)[:_VARIED_TOKENS]
    _cycle(values["routing_logits"], order, 0)
    _cycle(values["hidden_states"], order, 0)
    _cycle(values["hidden_states_scale"], order, 1)
    _cycle(expected["output"], order, 0)

    blocks = axes["num_hidden_blocks"]
    block = torch.randint(blocks, (1,), generator=rng, device=rng.device)
    scale = values["gemm2_weights_scale"]
    drawn = 10.0 * axes["intermediate_size"] ** -0.5 / _SIGMA
    factor = torch.where(scale[:, block].mean() < 1.5 * drawn, 2.0, 0.5)
    scale[:, block] *= factor
    expected["output"].unflatten(1, (blocks, _BLOCK))[:, block] *= factor
