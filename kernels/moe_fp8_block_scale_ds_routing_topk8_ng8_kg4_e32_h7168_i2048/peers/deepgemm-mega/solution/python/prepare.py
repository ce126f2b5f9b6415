"""Puts the operator's inputs into the layout of DeepGEMM's fused kernel, in one launch.

The library wants eight rows of the gate projection and eight of the up projection in turn, which a
server arranges once, when it loads its weights. Here the arranged copy outlives a call. Since
inputs may be others the next time, each call compares a sample of every eight rows with the
copy, on the device, and arranges those again that differ.
"""

import torch
import triton
import triton.language as tl

_WORD = 4
"""Bytes that are moved as one element."""
_TURN = tl.constexpr(8)
"""Rows of one projection before as many of the other."""
_SAMPLE = tl.constexpr(32)
"""Words of a group of rows that are compared."""
_TOP = tl.constexpr(8)
"""Experts of a token."""
_NEVER = 127
"""A byte that is no number in e4m3: copies that were not written yet differ from all weights."""


@triton.jit
def _token(
    row,
    x_ptr,
    x_scale_ptr,
    expert_ptr,
    weight_ptr,
    to_x_ptr,
    to_scale_ptr,
    to_expert_ptr,
    to_weight_ptr,
    tokens,
    offset,
    EXPERTS: tl.constexpr,
    WORDS: tl.constexpr,
    WIDE: tl.constexpr,
    SCALES: tl.constexpr,
    MANY: tl.constexpr,
):
    """One token: its channels, its scales, and its experts, -1 for those that are not local."""
    place = tl.arange(0, WIDE)
    words = tl.load(x_ptr + row * WORDS + place, mask=place < WORDS)
    tl.store(to_x_ptr + row * WORDS + place, words, mask=place < WORDS)
    block = tl.arange(0, MANY)
    scale = tl.load(x_scale_ptr + block * tokens + row, mask=block < SCALES)
    tl.store(to_scale_ptr + row * SCALES + block, scale, mask=block < SCALES)
    choice = row * _TOP + tl.arange(0, _TOP)
    local = tl.load(expert_ptr + choice).to(tl.int64) - offset
    here = (local >= 0) & (local < EXPERTS)
    tl.store(to_expert_ptr + choice, tl.where(here, local, -1))
    tl.store(to_weight_ptr + choice, tl.load(weight_ptr + choice))


@triton.jit
def _arrange(
    turn,
    from_ptr,
    to_ptr,
    TURNS: tl.constexpr,
    WORDS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Gate and up rows of one turn, unless their samples are in the copy already."""
    expert = (turn // TURNS).to(tl.int64)
    first = turn % TURNS * _TURN
    up_ptr = from_ptr + (expert * 2 * TURNS * _TURN + first) * WORDS
    gate_ptr = up_ptr + TURNS * _TURN * WORDS
    target_ptr = to_ptr + turn.to(tl.int64) * 2 * _TURN * WORDS
    lane = tl.arange(0, _SAMPLE)
    other = tl.load(gate_ptr + lane) != tl.load(target_ptr + lane)
    other |= tl.load(up_ptr + lane) != tl.load(target_ptr + _TURN * WORDS + lane)
    if tl.sum(other.to(tl.int32), 0) > 0:
        place = tl.arange(0, WIDE)
        for row in range(_TURN):
            at = row * WORDS + place
            gate = tl.load(gate_ptr + at, mask=place < WORDS)
            up = tl.load(up_ptr + at, mask=place < WORDS)
            tl.store(target_ptr + at, gate, mask=place < WORDS)
            tl.store(target_ptr + _TURN * WORDS + at, up, mask=place < WORDS)


@triton.jit
def _swap(expert, from_ptr, to_ptr, HALF: tl.constexpr, WIDE: tl.constexpr):
    """Scales of one expert: those of the gate projection before those of the up projection."""
    place = tl.arange(0, WIDE)
    from_ptr += expert * 2 * HALF
    to_ptr += expert * 2 * HALF
    tl.store(to_ptr + HALF + place, tl.load(from_ptr + place, mask=place < HALF), mask=place < HALF)
    gate = tl.load(from_ptr + HALF + place, mask=place < HALF)
    tl.store(to_ptr + place, gate, mask=place < HALF)


@triton.jit
def prepare(
    x_ptr,
    x_scale_ptr,
    expert_ptr,
    weight_ptr,
    w_ptr,
    w_scale_ptr,
    to_x_ptr,
    to_scale_ptr,
    to_expert_ptr,
    to_weight_ptr,
    to_w_ptr,
    to_w_scale_ptr,
    tokens,
    offset,
    EXPERTS: tl.constexpr,
    TURNS: tl.constexpr,
    WORDS: tl.constexpr,
    WIDE: tl.constexpr,
    SCALES: tl.constexpr,
    MANY: tl.constexpr,
    HALF: tl.constexpr,
    HALF_WIDE: tl.constexpr,
):
    """A program a token, then one for each turn of weight rows, then one for an expert's scales."""
    part = tl.program_id(0)
    if part < tokens:
        _token(
            part,
            x_ptr,
            x_scale_ptr,
            expert_ptr,
            weight_ptr,
            to_x_ptr,
            to_scale_ptr,
            to_expert_ptr,
            to_weight_ptr,
            tokens,
            offset,
            EXPERTS,
            WORDS,
            WIDE,
            SCALES,
            MANY,
        )
    elif part < tokens + EXPERTS * TURNS:
        _arrange(part - tokens, w_ptr, to_w_ptr, TURNS, WORDS, WIDE)
    else:
        _swap(part - tokens - EXPERTS * TURNS, w_scale_ptr, to_w_scale_ptr, HALF, HALF_WIDE)


class Prepared:
    """Weights and scales of the first projection as the library reads them."""

    def __init__(self, weights, scale):
        """Nothing is copied yet.

        Args:
            weights: (E, 2 I, H) fp8.
            scale: (E, 2 I / 128, H / 128) float32.
        """
        raw = torch.full(weights.shape, _NEVER, dtype=torch.uint8, device=weights.device)
        self.weights = raw.view(weights.dtype)
        self.scale = torch.empty_like(scale)

    def update(self, buffer, x, x_scale, expert, weight, weights, scale, offset):
        """Fills the library's buffer, and the copies where they are not of these weights.

        Args:
            buffer: with ``x``, ``x_sf``, ``topk_idx`` and ``topk_weights``.
            x: (T, H) fp8.
            x_scale: (H / 128, T) float32.
            expert: (T, 8) ids.
            weight: (T, 8) float32.
            weights: (E, 2 I, H) fp8, up before gate.
            scale: (E, 2 I / 128, H / 128) float32.
            offset: id of the first local expert.
        """
        tokens, hidden = x.shape
        experts, rows, _ = weights.shape
        turns = rows // (2 * _TURN.value)
        half = scale[0].numel() // 2
        prepare[(tokens + experts * turns + experts,)](
            x.view(torch.int32),
            x_scale,
            expert,
            weight,
            weights.view(torch.int32),
            scale,
            buffer.x.view(torch.int32),
            buffer.x_sf,
            buffer.topk_idx,
            buffer.topk_weights,
            self.weights.view(torch.int32),
            self.scale,
            tokens,
            offset,
            EXPERTS=experts,
            TURNS=turns,
            WORDS=hidden // _WORD,
            WIDE=triton.next_power_of_2(hidden // _WORD),
            SCALES=x_scale.shape[0],
            MANY=triton.next_power_of_2(x_scale.shape[0]),
            HALF=half,
            HALF_WIDE=triton.next_power_of_2(half),
            num_warps=2,
        )
