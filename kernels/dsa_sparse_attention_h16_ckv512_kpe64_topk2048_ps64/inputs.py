"""Seeded inputs of the sparse attention.

The caches are shared by all input sets. Latents leave an RMS norm in the model, so they are
normal with unit variance here, as are positional keys and queries: scaled logits have a
standard deviation of 1.7. So that half a gigabyte takes a second, each page is a window at a
random place of a pool of 32 Mi values: windows overlap, tokens do not line up.

The tokens of a query lie in the pages of its own sequence, up to 65536 tokens in distinct
pages, without repetition and in any order.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

_POOL = 1 << 25
_CONTEXT_PAGES = 1024


class Generator(NamedTuple):
    """A named distribution of inputs."""

    name: str
    kind: str
    """``contest`` (real use) or ``stress``."""
    draw: Callable
    """``draw(axes, rng, static=None)`` with all axes bound: all but the static inputs, on
    ``rng.device``; ``static`` holds those."""


def _normal(rng, *shape):
    return torch.randn(*shape, generator=rng, device=rng.device, dtype=torch.bfloat16)


def _random(rng, *shape):
    return torch.rand(*shape, generator=rng, device=rng.device)


def _cache(pool, rng, pages, size, width):
    """(pages, size, width) windows of a pool of values."""
    windows = pool.unfold(0, size * width, 1)
    place = torch.randint(windows.shape[0], (pages,), generator=rng, device=rng.device)
    return windows.index_select(0, place).view(pages, size, width)


def draw_static(axes, rng):
    """Both caches.

    Args:
        axes: all axes, bound.
        rng: source of randomness; its device is that of the caches.

    Returns:
        ``ckv_cache`` (num_pages, 64, 512) and ``kpe_cache`` (num_pages, 64, 64), bf16.
    """
    pages, size, width = axes["num_pages"], axes["page_size"], axes["head_dim_ckv"]
    pool = _normal(rng, min(_POOL, (pages + 1) * size * width))
    return {
        "ckv_cache": _cache(pool, rng, pages, size, width),
        "kpe_cache": _cache(pool, rng, pages, size, axes["head_dim_kpe"]),
    }


def _selected(axes, rng):
    """(T, K) int32 distinct tokens of each query's own pages, all places filled."""
    tokens, count = axes["num_tokens"], axes["topk"]
    pages, size = axes["num_pages"], axes["page_size"]
    if pages * size < count:
        raise ValueError(f"{pages} pages hold fewer than {count} tokens; raise num_pages")
    context = min(pages, _CONTEXT_PAGES)
    own = _random(rng, tokens, pages).argsort(dim=1)[:, :context]
    place = _random(rng, tokens, context * size).topk(count, dim=1, sorted=False).indices
    place = place.gather(1, _random(rng, tokens, count).argsort(dim=1))
    return (own.gather(1, place // size) * size + place % size).to(torch.int32)


def _inputs(axes, rng, selected):
    tokens, heads = axes["num_tokens"], axes["num_qo_heads"]
    return {
        "q_nope": _normal(rng, tokens, heads, axes["head_dim_ckv"]),
        "q_pe": _normal(rng, tokens, heads, axes["head_dim_kpe"]),
        "sparse_indices": selected,
        "sm_scale": 1.0 / math.sqrt(128 + axes["head_dim_kpe"]),
    }


def _typical(axes, rng):
    """Sequences longer than the selection: all places filled, but for 1 in 128 holes."""
    selected = _selected(axes, rng)
    holes = _random(rng, *selected.shape) < 1.0 / 128.0
    return _inputs(axes, rng, selected.masked_fill_(holes, -1))


def _short(axes, rng):
    """Sequences of 1 to 2047 tokens: all of them are selected, -1 fills the rest."""
    selected = _selected(axes, rng)
    length = 1 + (_random(rng, axes["num_tokens"], 1) * (axes["topk"] - 1)).int()
    position = torch.arange(axes["topk"], device=rng.device)
    return _inputs(axes, rng, selected.masked_fill_(position >= length, -1))


def _holes(axes, rng):
    """From no hole to no token, holes in any place; the first row selects nothing."""
    selected = _selected(axes, rng)
    share = _random(rng, axes["num_tokens"], 1)
    share[0] = 1.0
    holes = _random(rng, *selected.shape) < share
    return _inputs(axes, rng, selected.masked_fill_(holes, -1))


def _single(axes, rng):
    """One token per row, in any place: the output is its latent."""
    selected = _selected(axes, rng)
    keep = torch.randint(axes["topk"], (axes["num_tokens"], 1), generator=rng, device=rng.device)
    position = torch.arange(axes["topk"], device=rng.device)
    return _inputs(axes, rng, selected.masked_fill_(position != keep, -1))


def _extreme(axes, rng):
    """Logits of several hundred: exponentials overflow unless the maximum is subtracted."""
    inputs = _typical(axes, rng)
    inputs["q_nope"] *= 64.0
    inputs["q_pe"] *= 64.0
    return inputs


def _flat(axes, rng):
    """Logits of nearly zero: every selected token weighs the same, masks show at once."""
    inputs = _holes(axes, rng)
    inputs["q_nope"] *= 2.0**-8
    inputs["q_pe"] *= 2.0**-8
    return inputs


def _empty_tiles(axes, rng):
    """Runs of 64 holes at both ends and in between: a tile without a token gives no NaN.

    Without a maximum to subtract, exp(-inf - -inf) shows; so does stopping at the first hole.
    """
    selected = _selected(axes, rng)
    tokens, tiles = axes["num_tokens"], axes["topk"] // 64
    empty = _random(rng, tokens, tiles) < 0.5
    empty[:, :2] = True
    empty[:, -1] = True
    kept = 2 + (_random(rng, tokens, 1) * (tiles - 3)).long()
    empty.scatter_(1, kept, False)
    return _inputs(axes, rng, selected.masked_fill_(empty.repeat_interleave(64, dim=1), -1))


def _needles(axes, rng, static=None):
    """One token per head has most of the weight, in a place where loops begin or end.

    A tail that is left out, or a border that is off by one, shows.
    """
    tokens, heads, count = axes["num_tokens"], axes["num_qo_heads"], axes["topk"]
    selected = _selected(axes, rng)
    edges = [0, 1, 63, 64, 65, 127, 128, 1023, 1024, count - 2, count - 1]
    edges = torch.tensor(edges, device=rng.device)
    pick = torch.randint(edges.numel(), (tokens, heads), generator=rng, device=rng.device)
    needle = selected.gather(1, edges[pick]).long()
    inputs = _inputs(axes, rng, selected)
    caches = static or draw_static(axes, rng)
    for name, cache in (("q_nope", "ckv_cache"), ("q_pe", "kpe_cache")):
        keys = caches[cache].flatten(0, 1)[needle]
        # Along the key: a logit of 10, where the sum of the others is like one of 8.
        inputs[name] = (0.25 * keys + 0.25 * inputs[name]).to(torch.bfloat16)
    return inputs


def _generator(name, kind, draw):
    """A generator whose inputs do not depend on the static ones."""
    return Generator(name, kind, lambda axes, rng, static=None: draw(axes, rng))  # noqa: ARG005


GENERATORS = {
    generator.name: generator
    for generator in (
        _generator("typical", "contest", _typical),
        _generator("short-context", "contest", _short),
        _generator("holes", "stress", _holes),
        _generator("single-token", "stress", _single),
        _generator("extreme-logits", "stress", _extreme),
        _generator("flat-logits", "stress", _flat),
        _generator("empty-tiles", "stress", _empty_tiles),
        Generator("needles", "stress", _needles),
    )
}


def _cycle(tensor, order, dim):
    """Moves each of ``order`` along an axis to the place of the next one, in place."""
    tensor.index_copy_(dim, order, tensor.index_select(dim, order.roll(1)))


def vary(values, expected, axes, rng):
    """Permutes a set in place, and what is expected of it; no two calls see the same.

    Query tokens are permuted, and heads, with both outputs. Half of the places of the
    selected tokens are swapped in pairs where both hold one, so that holes stay where they
    are; the outputs are sums over the selection and stay the same but for their last bit.

    Args:
        values: inputs by name.
        expected: unrounded outputs by name.
        axes: all axes, bound.
        rng: source of randomness, on the device of the inputs.
    """
    selected = values["sparse_indices"]
    place = torch.randperm(axes["topk"], generator=rng, device=rng.device)
    left, right = place[: axes["topk"] // 2].view(2, -1)
    one, other = selected[:, left], selected[:, right]
    both = (one >= 0) & (other >= 0)
    selected[:, left] = torch.where(both, other, one)
    selected[:, right] = torch.where(both, one, other)

    token = torch.randperm(axes["num_tokens"], generator=rng, device=rng.device)
    head = torch.randperm(axes["num_qo_heads"], generator=rng, device=rng.device)
    _cycle(selected, token, 0)
    for tensor in (values["q_nope"], values["q_pe"], expected["output"], expected["lse"]):
        _cycle(tensor, token, 0)
        _cycle(tensor, head, 1)
