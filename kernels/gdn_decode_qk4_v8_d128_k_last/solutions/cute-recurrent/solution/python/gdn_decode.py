"""One decode step of the gated delta rule in the CuTe DSL: one kernel, one pass over the state.

Target: sm_90a (H200); also cross-compiles for sm_100a (B200).

Shapes (B sequences, HV = 8 value heads, H = 4 query/key heads, V = K = 128): q, k (B, 1, H, K),
v (B, 1, HV, V), a, b (B, 1, HV) bfloat16; A_log, dt_bias (HV,) float32; state (B, HV, V, K)
float32 or None; output (B, 1, HV, V) bfloat16; new_state as state.

Idea: with the gates g and beta of a head and S one row of its state,

    delta = beta * (v - g * (k . S));  S' = g * S + delta * k
    o = scale * (q . S') = scale * (g * (q . S) + (q . k) * delta)

so both dot products are taken over the old row, which is read once, stays in registers and is
written once. LANES_PER_ROW lanes share a row, so that a reduction takes log2(LANES_PER_ROW)
shuffles and leaves the sum in every lane that needs it; accesses are 16 bytes wide.

Bound: memory, 64 KiB in and 64 KiB out per sequence and head; for few sequences the latency of a
launch and of one chain of load, dot, shuffles and store.

A kernel is compiled once for small and once for large batches, with the batch symbolic, through
the DSL's TVM-FFI path: torch tensors are passed as they are, on torch's current stream.
"""

import math
from functools import cache

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

from .kernel import HEADS, QK_HEADS, SIZE, Config, launch
from .tunables import (
    LANES_PER_ROW,
    LARGE_ROWS_PER_WARP,
    LARGE_WARPS,
    SMALL_BATCH,
    SMALL_ROWS_PER_WARP,
    SMALL_WARPS,
)

_SMALL = Config(lanes=LANES_PER_ROW, warps=SMALL_WARPS, rows=SMALL_ROWS_PER_WARP)
_LARGE = Config(lanes=LANES_PER_ROW, warps=LARGE_WARPS, rows=LARGE_ROWS_PER_WARP)


def _config(batch):
    return _SMALL if batch <= SMALL_BATCH else _LARGE


def _contiguous(dtype, shape, alignment):
    order = tuple(reversed(range(len(shape))))
    return make_fake_compact_tensor(dtype, shape, stride_order=order, assumed_align=alignment)


@cache
def _compiled(config, has_state):
    """The launch function for tensors of any batch; compiles without touching a GPU."""
    batch = cute.sym_int()
    heads = _contiguous(cutlass.Float32, (HEADS,), 4)
    gates = _contiguous(cutlass.BFloat16, (batch, 1, HEADS), 2)
    queries = _contiguous(cutlass.BFloat16, (batch, 1, QK_HEADS, SIZE), 16)
    values = _contiguous(cutlass.BFloat16, (batch, 1, HEADS, SIZE), 16)
    states = _contiguous(cutlass.Float32, (batch, HEADS, SIZE, SIZE), 16)
    return cute.compile(
        launch,
        queries,
        queries,
        values,
        states if has_state else None,
        heads,
        gates,
        heads,
        gates,
        cutlass.Float32(1.0),
        values,
        states,
        make_fake_stream(use_tvm_ffi_env_stream=True),
        config,
        options="--enable-tvm-ffi",
    )


def precompile(axes):
    """Compile what ``run`` launches for these axes; needs no GPU where CUTE_DSL_ARCH is set."""
    for has_state in (True, False):
        _compiled(_config(axes["batch_size"]), has_state)


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
    factor = float(scale or 1.0 / math.sqrt(SIZE))
    step = _compiled(_config(batch), state is not None)
    step(q, k, v, state, A_log, a, dt_bias, b, factor, output, new_state)
