"""One decode step of the gated delta rule in Triton: one kernel, one pass over the state.

Target: NVIDIA GPUs from sm_80; written for sm_90a (H200), also built for sm_100a (B200).

Shapes (B sequences, HV = 8 value heads, H = 4 query/key heads, V = K = 128): q, k (B, 1, H, K),
v (B, 1, HV, V), a, b (B, 1, HV) bfloat16; A_log, dt_bias (HV,) float32; state (B, HV, V, K)
float32 or None; output (B, 1, HV, V) bfloat16; new_state as state.

Idea: with the gates g and beta of a head and S one row of its state,

    delta = beta * (v - g * (k . S));  S' = g * S + delta * k
    o = scale * (q . S') = scale * (g * (q . S) + (q . k) * delta)

so both dot products are taken over the old row, which is read once and written once. With more
than one warp a row is cut into four pieces of 32 columns that are separate tensors: the compiler
lays 8 lanes over each, so that a reduction adds the pieces in registers and takes 3 shuffles
instead of 5. (With one warp it would give k another layout than the state and pass one of them
through shared memory, so there the row stays whole.)

Bound: memory, 64 KiB in and 64 KiB out per sequence and head; for few sequences the latency of a
launch and of one chain of load, dot, shuffles and store.
"""

import math

import torch
import triton
import triton.language as tl

from .tunables import BV, EVICT_FIRST, NUM_WARPS

_HEADS = 8
_QK_HEADS = 4
_HEAD_SIZE = 128
_PIECES = 1 if NUM_WARPS == 1 else 4
"""Tensors that a tile of rows is cut into, along K."""


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
    column = tl.arange(0, WIDTH)  # (WIDTH,)
    offset = row.to(tl.int64)[:, None] * SIZE + column[None, :]  # (ROWS, WIDTH)

    s = ()  # of (ROWS, WIDTH)
    for i in tl.static_range(PIECES):
        if HAS_STATE:
            s += (tl.load(state_ptr + offset + i * WIDTH, eviction_policy=STATE_EVICTION),)
        else:
            s += (tl.zeros((ROWS, WIDTH), tl.float32),)
    x = tl.load(a_ptr + item).to(tl.float32) + tl.load(dt_bias_ptr + head)
    rate = tl.exp(tl.load(A_log_ptr + head))
    beta = 1.0 / (1.0 + tl.exp(-tl.load(b_ptr + item).to(tl.float32)))
    k = ()  # of (1, WIDTH)
    q = ()
    for i in tl.static_range(PIECES):
        piece = qk_item * SIZE + i * WIDTH + column[None, :]
        k += (tl.load(k_ptr + piece).to(tl.float32),)
        q += (tl.load(q_ptr + piece).to(tl.float32),)
    v = tl.load(v_ptr + row).to(tl.float32)
    g = tl.exp(-rate * _softplus(x))

    ks = tl.zeros((ROWS, WIDTH), tl.float32)
    qs = tl.zeros((ROWS, WIDTH), tl.float32)
    qk = tl.zeros((1, WIDTH), tl.float32)
    for i in tl.static_range(PIECES):
        ks += s[i] * k[i]
        qs += s[i] * q[i]
        qk += q[i] * k[i]
    delta = beta * (v - g * tl.sum(ks, axis=1))  # (ROWS,)
    o = scale * (g * tl.sum(qs, axis=1) + tl.sum(qk, axis=1) * delta)
    for i in tl.static_range(PIECES):
        new_s = g * s[i] + delta[:, None] * k[i]
        tl.store(new_state_ptr + offset + i * WIDTH, new_s, eviction_policy=STATE_EVICTION)
    tl.store(output_ptr + row, o.to(tl.bfloat16))


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
            PIECES=_PIECES,
            STATE_EVICTION="evict_first" if EVICT_FIRST else "",
            num_warps=NUM_WARPS,
        )
