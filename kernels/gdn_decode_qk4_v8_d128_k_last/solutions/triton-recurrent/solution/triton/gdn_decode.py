"""One decode step of the gated delta rule in Triton: one kernel, one pass over the state.

Target: NVIDIA GPUs from sm_80; written for sm_90a (H200), also built for sm_100a (B200).

Shapes (B sequences, HV = 8 value heads, H = 4 query/key heads, V = K = 128): q, k (B, 1, H, K),
v (B, 1, HV, V), a, b (B, 1, HV) bfloat16; A_log, dt_bias (HV,) float32; state (B, HV, V, K)
float32 or None; output (B, 1, HV, V) bfloat16; new_state as state.

Idea: with the gates g and beta of a head and S one row of its state,

    delta = beta * (v - g * (k . S));  S' = g * S + delta * k
    o = scale * (q . S') = scale * (g * (q . S) + (q . k) * delta)

so both dot products are taken over the old row, which is read once and written once. A tile of
rows is held as (pieces, rows, columns of a piece): the compiler then lays LANES_PER_ROW lanes over
a row and keeps the pieces in registers, and a reduction takes log2(LANES_PER_ROW) shuffles.

Bound: memory, 64 KiB in and 64 KiB out per sequence and head; for few sequences the latency of a
launch and of one chain of load, dot, shuffles and store.
"""

import math

import torch
import triton
import triton.language as tl

from .tunables import BV, EVICT_FIRST, LANES_PER_ROW, NUM_STAGES, NUM_WARPS

_HEADS = 8
_QK_HEADS = 4
_HEAD_SIZE = 128
_FLOATS_PER_LOAD = 4


@triton.jit
def _softplus(x):
    """log(1 + exp(x)), finite for every finite x, and exact for very negative ones too."""
    t = tl.exp(-tl.abs(x))
    # log(1 + t) = 2 artanh(u) with u = t / (2 + t) <= 1/3: six terms of the odd series.
    u = t / (2.0 + t)
    u2 = u * u
    series = 2.0 / 9.0 + u2 * (2.0 / 11.0)
    series = 2.0 / 3.0 + u2 * (2.0 / 5.0 + u2 * (2.0 / 7.0 + u2 * series))
    return tl.maximum(x, 0.0) + u * (2.0 + u2 * series)


@triton.jit
def _decode_step(
    q_ptr,
    k_ptr,
    v_ptr,
    state_ptr,
    A_log_ptr,
    a_ptr,
    dt_bias_ptr,
    b_ptr,
    output_ptr,
    new_state_ptr,
    scale,
    HAS_STATE: tl.constexpr,
    HEADS: tl.constexpr,
    QK_HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    PIECES: tl.constexpr,
    STATE_EVICTION: tl.constexpr,
):
    """Update ROWS rows of one (sequence, value head)."""
    TILES: tl.constexpr = SIZE // ROWS
    WIDTH: tl.constexpr = SIZE // PIECES
    program = tl.program_id(0)
    item = program // TILES  # sequence * HEADS + head
    head = item % HEADS
    qk_item = item // (HEADS // QK_HEADS)
    # Rows are counted over all sequences and heads, as elements of v and of the output are.
    row = program * ROWS + tl.arange(0, ROWS)  # (ROWS,)
    piece = tl.arange(0, PIECES)[:, None, None] * WIDTH
    column = piece + tl.arange(0, WIDTH)[None, None, :]  # (PIECES, 1, WIDTH)
    offset = row.to(tl.int64)[None, :, None] * SIZE + column  # (PIECES, ROWS, WIDTH)

    if HAS_STATE:
        s = tl.load(state_ptr + offset, eviction_policy=STATE_EVICTION)
    else:
        s = tl.zeros((PIECES, ROWS, WIDTH), tl.float32)
    x = tl.load(a_ptr + item).to(tl.float32) + tl.load(dt_bias_ptr + head)
    rate = tl.exp(tl.load(A_log_ptr + head))
    beta = 1.0 / (1.0 + tl.exp(-tl.load(b_ptr + item).to(tl.float32)))
    k = tl.load(k_ptr + qk_item * SIZE + column).to(tl.float32)
    q = tl.load(q_ptr + qk_item * SIZE + column).to(tl.float32)
    v = tl.load(v_ptr + row).to(tl.float32)
    g = tl.exp(-rate * _softplus(x))

    ks = tl.sum(tl.sum(s * k, axis=0), axis=1)
    qs = tl.sum(tl.sum(s * q, axis=0), axis=1)
    qk = tl.sum(tl.sum(q * k, axis=0), axis=1)
    delta = beta * (v - g * ks)
    new_s = g * s + delta[None, :, None] * k
    tl.store(new_state_ptr + offset, new_s, eviction_policy=STATE_EVICTION)
    tl.store(output_ptr + row, (scale * (g * qs + qk * delta)).to(tl.bfloat16))


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    """Launch one step; destination passing.

    Args:
        q: Queries (B, 1, H, K).
        k: Keys (B, 1, H, K).
        v: Values (B, 1, HV, V).
        state: Old state (B, HV, V, K), or None for zeros.
        A_log: Logarithm of the decay rate (HV,).
        a: Decay input (B, 1, HV).
        dt_bias: Added to ``a`` (HV,).
        b: Input of the update gate (B, 1, HV).
        scale: Factor of the output; 0 or None means 1 / sqrt(K).
        output: Written, (B, 1, HV, V).
        new_state: Written, (B, HV, V, K).
    """
    batch = q.shape[0]
    if batch == 0:
        return
    with torch.cuda.device_of(q):
        _decode_step[(batch * _HEADS * (_HEAD_SIZE // BV),)](
            q,
            k,
            v,
            new_state if state is None else state,  # not read when there is no state
            A_log,
            a,
            dt_bias,
            b,
            output,
            new_state,
            float(scale or 1.0 / math.sqrt(_HEAD_SIZE)),
            HAS_STATE=state is not None,
            HEADS=_HEADS,
            QK_HEADS=_QK_HEADS,
            SIZE=_HEAD_SIZE,
            ROWS=BV,
            PIECES=_HEAD_SIZE // (LANES_PER_ROW * _FLOATS_PER_LOAD),
            STATE_EVICTION="evict_first" if EVICT_FIRST else "",
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
        )
