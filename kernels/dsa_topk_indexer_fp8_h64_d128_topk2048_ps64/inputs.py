"""Seeded inputs of the token selection.

The cache is shared by all input sets: bf16 normal keys, each token scaled so that its
largest element is 448, as the serving engine stores it. 2048 pages are drawn and the
others repeat their directions under fresh scales, so no two tokens tie. The last pages are
banks that only stress inputs point at: copies of one page (ties), and tokens whose
first element alone decides the score, which lies beside an odd power of two. A third bank
has scores of which each is the next float after another.

Rows use distinct pages. With room for more than 2048 tokens, half of the rows (rounded up)
need the selection; all others have at most 2048.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

_TOPK = 2048
_DRAWN_PAGES = 2048
_BANK_PAGES = 128
"""Of each bank; more than the longest block table of the workloads."""
_BANKS = 3


class Generator(NamedTuple):
    """A named distribution of inputs."""

    name: str
    kind: str
    """``contest`` (real use) or ``stress``."""
    draw: Callable
    """``draw(axes, rng, static=None)`` with all axes bound: all but the static inputs, on
    ``rng.device``; ``static`` holds those."""


class _Lengths(NamedTuple):
    """Bounds of the sequence lengths of a row, both inclusive."""

    low: int
    high: int


def _normal(rng, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=rng, device=rng.device, dtype=dtype)


def _uniform(rng, *shape, low=0.0, high=1.0):
    return low + (high - low) * torch.rand(*shape, generator=rng, device=rng.device)


def _integers(rng, low, high, *shape):
    """Between ``low`` and ``high``, both inclusive."""
    return torch.randint(low, high + 1, shape, generator=rng, device=rng.device)


def _bank_pages(axes):
    return min(_BANK_PAGES, axes["num_pages"] // 4)


def _ladder(rng, pages, size):
    """Scores just below (1 in 5) or just above 2, 8, 32 and 128, apart by 2^-16 to 2^-11."""
    power = torch.exp2(2.0 * _integers(rng, 0, 3, pages, size) + 1.0)
    apart = torch.exp2(_uniform(rng, pages, size, low=-16.0, high=-11.0))
    above = torch.rand(pages, size, generator=rng, device=rng.device) < 0.8
    return power * (1.0 + torch.where(above, apart, -apart))


def _next_floats(rng, pages, size):
    """The float32 numbers that follow on 1/64, each once, in any order."""
    order = torch.randperm(pages * size, generator=rng, device=rng.device)
    return (2.0**-6 * (1.0 + order * 2.0**-23)).view(pages, size)


def draw_static(axes, rng):
    """The packed key cache.

    Args:
        axes: all axes, bound.
        rng: source of randomness; its device is that of the cache.

    Returns:
        ``k_index_cache_fp8`` (num_pages, 64, 1, 132) int8.
    """
    pages, size, dim = axes["num_pages"], axes["page_size"], axes["index_head_dim"]
    drawn = min(_DRAWN_PAGES, pages)
    keys = _normal(rng, drawn, size, dim, dtype=torch.bfloat16)
    largest = keys.abs().amax(dim=2).float().clamp_(min=1e-4)
    values = (keys.float() * (448.0 / largest)[..., None]).to(torch.float8_e4m3fn)
    source = torch.arange(pages, device=rng.device) % drawn
    scales = largest[source] / 448.0
    scales[drawn:] *= _uniform(rng, pages - drawn, size, low=0.8, high=1.25)

    cache = torch.empty(pages, size * (dim + 4), dtype=torch.uint8, device=rng.device)
    cache[:, : size * dim] = values.view(torch.uint8).reshape(drawn, size * dim)[source]
    bank = _bank_pages(axes)
    cache[pages - bank :, : size * dim : dim] = 0x7E  # 448, the largest e4m3 number
    scales[pages - bank :] = _ladder(rng, bank, size) / 448.0
    close = slice(pages - 3 * bank, pages - 2 * bank)
    cache[close, : size * dim] = 0  # nothing else adds to what rounding may explain
    cache[close, : size * dim : dim] = 0x7E
    scales[close] = _next_floats(rng, bank, size)
    cache[:, size * dim :] = scales.view(torch.uint8).reshape(pages, size * 4)
    cache[pages - 2 * bank : pages - bank] = cache[pages - 2 * bank].clone()
    shape = (pages, size, axes["kv_cache_num_heads"], axes["head_dim_with_scale"])
    return {"k_index_cache_fp8": cache.view(torch.int8).view(shape)}


def _table(axes, rng, low, high):
    """(B, P) int32 distinct pages out of [low, high), distinct across rows where they suffice."""
    rows, width, count = axes["batch_size"], axes["max_num_pages"], high - low
    if count < width:
        raise ValueError(f"{count} pages do not fill a block table of {width}; raise num_pages")
    if rows * width <= count:
        pages = torch.randperm(count, generator=rng, device=rng.device)[: rows * width]
        return (low + pages.view(rows, width)).to(torch.int32)
    keys = torch.rand(rows, count, generator=rng, device=rng.device)
    return (low + keys.argsort(dim=1)[:, :width]).to(torch.int32)


def _ordinary_table(axes, rng):
    return _table(axes, rng, 0, axes["num_pages"] - _BANKS * _bank_pages(axes))


def _bank_table(axes, rng, bank):
    """Bank -1 holds neighbouring floats, bank 0 ties, bank 1 the ladder."""
    width = _bank_pages(axes)
    low = axes["num_pages"] - (2 - bank) * width
    return _table(axes, rng, low, low + width)


def _lengths(axes, rng, long):
    """(B,) int32: half of the rows within ``long``, one of them in the last page, others short.

    Where the block table has no room for more than 2048 tokens, one row ends in the last page
    and the others have any length.
    """
    rows, size = axes["batch_size"], axes["page_size"]
    room = axes["max_num_pages"] * size
    lengths = _integers(rng, 1, min(_TOPK, room), rows)
    if room > _TOPK:
        count = (rows + 1) // 2
        lengths[:count] = _integers(rng, long.low, long.high, count)
    lengths[0] = _integers(rng, room - size + 1, room, 1)[0]
    order = torch.randperm(rows, generator=rng, device=rng.device)
    return lengths[order].to(torch.int32)


def _in_last_page(axes):
    room = axes["max_num_pages"] * axes["page_size"]
    return _Lengths(room - axes["page_size"] + 1, room)


def _queries(axes, rng):
    """(B, H, D) fp8 as the contest draws them: normal, cut off at 2."""
    shape = (axes["batch_size"], axes["num_index_heads"], axes["index_head_dim"])
    return _normal(rng, *shape).clamp_(-2.0, 2.0).to(torch.float8_e4m3fn)


def _typical(axes, rng):
    """The contest's distributions; every long row ends in the last page of its table."""
    return {
        "q_index_fp8": _queries(axes, rng),
        "weights": _normal(rng, axes["batch_size"], axes["num_index_heads"]),
        "seq_lens": _lengths(axes, rng, _in_last_page(axes)),
        "block_table": _ordinary_table(axes, rng),
    }


def _deployed(axes, rng):
    """Magnitudes of a serving engine, and long rows of every length.

    A query head is quantised to 448, and the weight carries its scale, 1 / sqrt(heads) and
    1 / sqrt(width).
    """
    heads, dim = axes["num_index_heads"], axes["index_head_dim"]
    query = _normal(rng, axes["batch_size"], heads, dim)
    scale = query.abs().amax(dim=2) / 448.0
    long = _Lengths(_TOPK + 1, axes["max_num_pages"] * axes["page_size"])
    return {
        "q_index_fp8": (query / scale[..., None]).to(torch.float8_e4m3fn),
        "weights": _normal(rng, axes["batch_size"], heads) * scale * (heads * dim) ** -0.5,
        "seq_lens": _lengths(axes, rng, long),
        "block_table": _ordinary_table(axes, rng),
    }


def _ties(axes, rng):
    """Every score occurs once per page, so that the cut falls within a group of ties."""
    return _typical(axes, rng) | {"block_table": _bank_table(axes, rng, 0)}


def _all_equal(axes, rng):
    """All scores of a row are 0: no weights in even rows, no query in odd ones."""
    inputs = _typical(axes, rng)
    inputs["weights"][0::2] = 0.0
    query = inputs["q_index_fp8"].float()
    query[1::2] = 0.0
    inputs["q_index_fp8"] = query.to(torch.float8_e4m3fn)
    return inputs


def _first_element(axes, rng):
    """Queries that read the first element of a key alone, with weights that sum to a power of 2."""
    rows, heads = axes["batch_size"], axes["num_index_heads"]
    query = torch.zeros(rows, heads, axes["index_head_dim"], device=rng.device)
    query[..., 0] = 1.0
    shift = torch.exp2(2.0 * _integers(rng, -3, 4, rows, 1))
    return {
        "q_index_fp8": query.to(torch.float8_e4m3fn),
        "weights": (shift / heads).expand(rows, heads).contiguous(),
    }


def _powers_of_two(axes, rng):
    """Scores on both sides of odd powers of two, closer than half precision can tell."""
    inputs = _typical(axes, rng) | _first_element(axes, rng)
    return inputs | {"block_table": _bank_table(axes, rng, 1)}


def _ragged(axes, rng):
    """Empty rows, single tokens, and lengths around a page and around 2048."""
    inputs = _typical(axes, rng)
    room = axes["max_num_pages"] * axes["page_size"]
    edges = [0, 1, 63, 64, 65, _TOPK - 1, _TOPK, _TOPK + 1, room]
    edges = torch.tensor([edge for edge in edges if edge <= room], device=rng.device)
    pick = _integers(rng, 0, edges.numel() - 1, axes["batch_size"])
    pick[0] = 0
    inputs["seq_lens"] = edges[pick].to(torch.int32)
    return inputs


def _near_ties(axes, rng):
    """Every score one or two floats away from the next: ranks by 16 bits or fewer show."""
    inputs = _typical(axes, rng) | _first_element(axes, rng)
    return inputs | {"block_table": _bank_table(axes, rng, -1)}


def _one_place(axes, rng):
    """Most of the highest scores in 32 pages side by side: a quota for each part shows."""
    inputs = _typical(axes, rng) | _first_element(axes, rng)
    rows, width = axes["batch_size"], axes["max_num_pages"]
    high = min(_TOPK // axes["page_size"], width)
    slot = torch.arange(width, device=rng.device) - _integers(rng, 0, width - high, rows, 1)
    # Rows that select all of their tokens keep to one range of pages.
    raised = (slot >= 0) & (slot < high) & (inputs["seq_lens"][:, None] > _TOPK)
    bank = _bank_table(axes, rng, 1)
    inputs["block_table"] = torch.where(raised, bank, inputs["block_table"])
    return inputs


def _negative_scores(axes, rng):
    """No score above zero: a zero as padding, and floats compared by their bits, show."""
    inputs = _typical(axes, rng)
    inputs["weights"] = -inputs["weights"].abs()
    return inputs


def _magnitudes(axes, rng):
    """Rows of scores from 2^-40 to 2^40: half precision and absolute thresholds show."""
    inputs = _typical(axes, rng)
    power = torch.exp2(_integers(rng, -40, 40, axes["batch_size"], 1).float())
    inputs["weights"] = inputs["weights"] * power
    return inputs


def _generator(name, kind, draw):
    """A generator whose inputs do not depend on the static ones."""
    return Generator(name, kind, lambda axes, rng, static=None: draw(axes, rng))  # noqa: ARG005


GENERATORS = {
    generator.name: generator
    for generator in (
        _generator("typical", "contest", _typical),
        _generator("deployed", "contest", _deployed),
        _generator("ties", "stress", _ties),
        _generator("all-equal", "stress", _all_equal),
        _generator("powers-of-two", "stress", _powers_of_two),
        _generator("ragged", "stress", _ragged),
        _generator("near-ties", "stress", _near_ties),
        _generator("one-place", "stress", _one_place),
        _generator("negative-scores", "stress", _negative_scores),
        _generator("magnitudes", "stress", _magnitudes),
    )
}


def _cycle(tensor, order, dim):
    """Moves each of ``order`` along an axis to the place of the next one, in place."""
    raw = tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
    raw.index_copy_(dim, order, raw.index_select(dim, order.roll(1)))


def vary(values, expected, axes, rng):
    """Changes a set in place, and what is expected of it; no two calls see the same.

    Rows are permuted with their outputs, heads are permuted. A row of at most 2048 tokens,
    which selects all of them, moves to other pages. In a longer row two whole pages change
    places, so that it selects the same tokens; where scores tie at the cut, the expected
    ones stay right, but the reference itself would take others.

    Args:
        values: inputs by name.
        expected: outputs by name.
        axes: all axes, bound.
        rng: source of randomness, on the device of the inputs.
    """
    lengths, table = values["seq_lens"], values["block_table"]
    rows, size = axes["batch_size"], axes["page_size"]
    selected = expected["topk_indices"]
    row = torch.randperm(rows, generator=rng, device=rng.device)
    head = torch.randperm(axes["num_index_heads"], generator=rng, device=rng.device)
    for tensor in (values["q_index_fp8"], values["weights"]):
        _cycle(tensor, row, 0)
        _cycle(tensor, head, 1)
    for tensor in (lengths, table, selected):
        _cycle(tensor, row, 0)

    # Pages of a row are distinct, in one range below or above the banks: so they stay.
    ordinary = axes["num_pages"] - 2 * _bank_pages(axes)
    shift = 1 + torch.randint(ordinary - 1, (1,), generator=rng, device=rng.device)
    is_short = (lengths <= axes["topk"])[:, None]
    table.copy_(torch.where(is_short, (table + shift) % ordinary, table))
    position = torch.arange(axes["topk"], device=rng.device)
    page = (position // size).clamp(max=axes["max_num_pages"] - 1)
    every = table[:, page] * size + position % size
    every = every.masked_fill(position >= lengths[:, None], -1)
    selected.copy_(torch.where(is_short, every, selected))

    whole = (lengths // size)[:, None].clamp(min=1)
    one = (_uniform(rng, rows, 1) * whole).long()
    other = (one + 1 + (_uniform(rng, rows, 1) * (whole - 1)).long()) % whole
    pair, swapped = torch.cat((one, other), dim=1), torch.cat((other, one), dim=1)
    moved = table.scatter(1, pair, table.gather(1, swapped))
    table.copy_(torch.where(is_short, table, moved))
