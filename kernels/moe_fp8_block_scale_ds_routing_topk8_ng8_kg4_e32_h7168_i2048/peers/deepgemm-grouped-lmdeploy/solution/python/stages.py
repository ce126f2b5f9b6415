"""Triton kernels of this project around DeepGEMM's grouped products.

A pair is a token and one of its eight selected experts. Pairs whose expert is local have a row:
experts have the same room each, or follow each other from multiples of 128. Scales of rows are
stored block of channels first, as the library's copies into shared memory want them.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

STEP = 128
"""Rows of a tile of the library: no tile holds rows of two experts."""
_BLOCK = 128
"""Channels of one scale."""
_WORD = 4
"""Bytes that are moved as one element."""
_PAIRS = 2048
"""Pairs that are looked at in one step."""
_PIECE = 512
"""Channels of a program that activates."""
_COLUMNS = 1024
"""Channels of a program that adds up."""


class Routed(NamedTuple):
    """Where the rows of pairs are."""

    expert: torch.Tensor
    """(T, 8) ids."""
    row: torch.Tensor
    """(T, 8) int32, meaningless where the expert is not local."""
    end: torch.Tensor
    """(E,) int32: rows of each expert, or the ends of theirs where they follow each other."""
    offset: int
    """Id of the first local expert."""
    rows: int
    pitch: int
    """Rows between one block of scales and the next."""


@triton.jit
def _pack(
    expert_ptr,
    row_ptr,
    end_ptr,
    pairs,
    offset,
    room,
    EXPERTS: tl.constexpr,
    BINS: tl.constexpr,
    PAIRS: tl.constexpr,
    STEP: tl.constexpr,
):
    """A program a local expert: its pairs get rows in their order."""
    mine = tl.program_id(0)
    lane = tl.arange(0, PAIRS)
    first = mine * room
    if room == 0:
        counts = tl.zeros((BINS,), dtype=tl.int32)
        for start in range(0, pairs, PAIRS):
            inside = start + lane < pairs
            local = tl.load(expert_ptr + start + lane, mask=inside, other=-1).to(tl.int32) - offset
            here = inside & (local >= 0) & (local < EXPERTS)
            counts += tl.histogram(tl.where(here, local, EXPERTS), BINS)
        whole = (counts + STEP - 1) // STEP * STEP
        first = tl.sum(tl.where(tl.arange(0, BINS) < mine, whole, 0), 0)
    count = 0
    for start in range(0, pairs, PAIRS):
        inside = start + lane < pairs
        local = tl.load(expert_ptr + start + lane, mask=inside, other=-1).to(tl.int32) - offset
        hit = (inside & (local == mine)).to(tl.int32)
        rank = tl.cumsum(hit, 0) - 1
        tl.store(row_ptr + start + lane, first + count + rank, mask=hit > 0)
        count += tl.sum(hit, 0)
    tl.store(end_ptr + mine, tl.where(room == 0, first + count, count))


def pack(expert, experts, offset, room):
    """Rows for the pairs of local experts.

    Args:
        expert: (T, 8) ids.
        experts: number of local ones.
        offset: id of the first local expert.
        room: rows of each expert; 0 where they follow each other.

    Returns:
        A ``Routed``; there are as many rows as the worst routing could need.
    """
    rows = experts * room if room else expert.numel() + experts * STEP
    row = torch.empty(expert.shape, dtype=torch.int32, device=expert.device)
    end = row.new_empty(experts)
    _pack[(experts,)](
        expert,
        row,
        end,
        expert.numel(),
        offset,
        room,
        EXPERTS=experts,
        BINS=triton.next_power_of_2(experts + 1),
        PAIRS=_PAIRS,
        STEP=STEP,
        num_warps=8,
    )
    return Routed(expert, row, end, int(offset), rows, room or rows)


@triton.jit
def _gather(
    x_ptr,
    x_scale_ptr,
    expert_ptr,
    row_ptr,
    to_ptr,
    to_scale_ptr,
    tokens,
    offset,
    pitch,
    EXPERTS: tl.constexpr,
    TOP: tl.constexpr,
    WORDS: tl.constexpr,
    WIDE: tl.constexpr,
    SCALES: tl.constexpr,
    MANY: tl.constexpr,
):
    """A program a token: channels and scales go to the row of each of its local experts."""
    token = tl.program_id(0)
    place = tl.arange(0, WIDE)
    block = tl.arange(0, MANY)
    words = tl.load(x_ptr + token * WORDS + place, mask=place < WORDS)
    scale = tl.load(x_scale_ptr + block * tokens + token, mask=block < SCALES)
    for choice in range(TOP):
        local = tl.load(expert_ptr + token * TOP + choice).to(tl.int32) - offset
        if (local >= 0) & (local < EXPERTS):
            row = tl.load(row_ptr + token * TOP + choice).to(tl.int64)
            tl.store(to_ptr + row * WORDS + place, words, mask=place < WORDS)
            at = (row // pitch * SCALES + block) * pitch + row % pitch
            tl.store(to_scale_ptr + at, scale, mask=block < SCALES)


def gather(x, scale, routed):
    """Copies of tokens in the rows of their pairs.

    Args:
        x: (T, H) fp8.
        scale: (H / 128, T) float32.
        routed: from ``pack``.

    Returns:
        (R, H) fp8 and scales, (E, H / 128, room) flattened to two dimensions or (H / 128, R).
    """
    tokens, hidden = x.shape
    blocks = scale.shape[0]
    to_x = torch.empty((routed.rows, hidden), dtype=x.dtype, device=x.device)
    to_scale = scale.new_empty(routed.rows // routed.pitch * blocks, routed.pitch)
    _gather[(tokens,)](
        x.view(torch.int32),
        scale,
        routed.expert,
        routed.row,
        to_x.view(torch.int32),
        to_scale,
        tokens,
        routed.offset,
        routed.pitch,
        EXPERTS=routed.end.numel(),
        TOP=routed.expert.shape[1],
        WORDS=hidden // _WORD,
        WIDE=triton.next_power_of_2(hidden // _WORD),
        SCALES=blocks,
        MANY=triton.next_power_of_2(blocks),
    )
    return to_x, to_scale


@triton.jit
def _activate(
    both_ptr,
    expert_ptr,
    row_ptr,
    to_ptr,
    to_scale_ptr,
    offset,
    pitch,
    EXPERTS: tl.constexpr,
    INNER: tl.constexpr,
    PIECE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program a pair and piece: silu(gate) * up, and a scale for every 128 channels."""
    pair = tl.program_id(0)
    local = tl.load(expert_ptr + pair).to(tl.int32) - offset
    if (local >= 0) & (local < EXPERTS):
        row = tl.load(row_ptr + pair).to(tl.int64)
        block = tl.program_id(1) * (PIECE // BLOCK) + tl.arange(0, PIECE // BLOCK)
        place = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        up = tl.load(both_ptr + row * 2 * INNER + place).to(tl.float32)
        gate = tl.load(both_ptr + row * 2 * INNER + INNER + place).to(tl.float32)
        value = up * gate * tl.sigmoid(gate)
        scale = tl.maximum(tl.max(tl.abs(value), 1), 1e-10) / 448.0
        quantised = (value / scale[:, None]).to(to_ptr.dtype.element_ty)
        tl.store(to_ptr + row * INNER + place, quantised)
        at = (row // pitch * (INNER // BLOCK) + block) * pitch + row % pitch
        tl.store(to_scale_ptr + at, scale)


def activate(both, routed):
    """SwiGLU of the first product, quantised.

    Args:
        both: (R, 2 I) bf16, up before gate.
        routed: from ``pack``.

    Returns:
        (R, I) fp8 and float32 scales in the order of ``gather``.
    """
    inner = both.shape[1] // 2
    blocks = inner // _BLOCK
    out = torch.empty((both.shape[0], inner), dtype=torch.float8_e4m3fn, device=both.device)
    shape = (routed.rows // routed.pitch * blocks, routed.pitch)
    scale = torch.empty(shape, dtype=torch.float32, device=both.device)
    piece = min(_PIECE, inner)
    _activate[(routed.expert.numel(), inner // piece)](
        both,
        routed.expert,
        routed.row,
        out,
        scale,
        routed.offset,
        routed.pitch,
        EXPERTS=routed.end.numel(),
        INNER=inner,
        PIECE=piece,
        BLOCK=_BLOCK,
    )
    return out, scale


@triton.jit
def _combine(
    result_ptr,
    expert_ptr,
    row_ptr,
    weight_ptr,
    out_ptr,
    offset,
    EXPERTS: tl.constexpr,
    TOP: tl.constexpr,
    HIDDEN: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A program a token and some channels: the weighted sum over its local experts."""
    token = tl.program_id(0)
    place = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for choice in range(TOP):
        local = tl.load(expert_ptr + token * TOP + choice).to(tl.int32) - offset
        if (local >= 0) & (local < EXPERTS):
            row = tl.load(row_ptr + token * TOP + choice).to(tl.int64)
            part = tl.load(result_ptr + row * HIDDEN + place, mask=place < HIDDEN)
            total += part.to(tl.float32) * tl.load(weight_ptr + token * TOP + choice)
    tl.store(
        out_ptr + token.to(tl.int64) * HIDDEN + place,
        total.to(out_ptr.dtype.element_ty),
        mask=place < HIDDEN,
    )


def combine(results, routed, weight, out):
    """Weighted sum of the rows of a token's local experts; zeros where it has none.

    Args:
        results: (R, H) bf16.
        routed: from ``pack``.
        weight: (T, 8) float32.
        out: (T, H) bf16, written.
    """
    tokens, hidden = out.shape
    _combine[(tokens, triton.cdiv(hidden, _COLUMNS))](
        results,
        routed.expert,
        routed.row,
        weight,
        out,
        routed.offset,
        EXPERTS=routed.end.numel(),
        TOP=routed.expert.shape[1],
        HIDDEN=hidden,
        COLUMNS=_COLUMNS,
    )
