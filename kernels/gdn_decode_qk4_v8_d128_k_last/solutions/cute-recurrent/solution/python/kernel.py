"""Device side of the decode step in the CuTe DSL; the idea is explained in ``gdn_decode.py``.

Shape letters: B sequences, HV value heads, H query/key heads, V and K the two widths of a state.
There is no ``from __future__ import annotations`` here: the DSL reads annotations as objects.
"""

from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

HEADS = 8
QK_HEADS = 4
SIZE = 128
_WARP = 32
_VECTOR = 4  # floats in a 16-byte access


class Config(NamedTuple):
    """How rows are laid over threads; all of it is known at compile time."""

    lanes: int
    """Lanes that share one row of the state."""
    warps: int
    """Warps of a CTA."""
    rows: int
    """Rows of a warp."""

    @property
    def rows_per_pass(self):
        """Rows that a warp touches with one load."""
        return _WARP // self.lanes

    @property
    def passes(self):
        """Loads that a lane issues for each of its pieces of a row."""
        return self.rows // self.rows_per_pass

    @property
    def pieces(self):
        """16-byte pieces of a row that a lane holds."""
        return SIZE // (_VECTOR * self.lanes)

    @property
    def tiles(self):
        """CTAs of one value head."""
        return SIZE // (self.warps * self.rows)


def _segment(lanes):
    """Packed operand of a shuffle that stays inside aligned groups of ``lanes`` lanes."""
    return ((_WARP - lanes) << 8) | (_WARP - 1)


@cute.jit
def _log1p_unit(t):
    """log(1 + t) for t in [0, 1], to about 2e-7 relative, also for small t."""
    # log(1 + t) = 2 artanh(u) with u = t / (2 + t) <= 1/3: six terms of the odd series.
    u = t * cute.arch.rcp_approx(2.0 + t)
    u2 = u * u
    series = 2.0 / 9.0 + u2 * (2.0 / 11.0)
    series = 2.0 / 7.0 + u2 * series
    series = 2.0 / 5.0 + u2 * series
    series = 2.0 / 3.0 + u2 * series
    return u * (2.0 + u2 * series)


@cute.jit
def _exp_short(x):
    """exp(x) in two instructions; the relative error is about (2 + |x| / 2) 2^-23."""
    return cute.math.exp2(x * 1.4426950408889634, fastmath=True)


@cute.jit
def _decay_gate(A_log, x):
    """exp(-exp(A_log) * softplus(x)); softplus(x) = log(1 + exp(x)) in a form that is finite."""
    # The exact exponential is off the longest chain, and is multiplied by a large exponent.
    rate = cute.math.exp(A_log)
    softplus = cute.arch.fmax(x, 0.0) + _log1p_unit(_exp_short(-cute.math.absf(x)))
    return _exp_short(-rate * softplus)


@cute.jit
def _update_gate(x):
    """1 / (1 + exp(-x))."""
    return cute.arch.rcp_approx(1.0 + cute.math.exp(-x))


@cute.jit
def _dot(x, y):
    """Sum of products of two register tensors of one shape (4, pieces)."""
    sums = cute.make_rmem_tensor(_VECTOR, cutlass.Float32)
    for j in cutlass.range_constexpr(_VECTOR):
        sums[j] = x[j, 0] * y[j, 0]
        for c in cutlass.range_constexpr(1, cute.size(x, mode=[1])):
            sums[j] = cute.math.fma(x[j, c], y[j, c], sums[j])
    return (sums[0] + sums[1]) + (sums[2] + sums[3])


@cute.jit
def _flat(tensor):
    """A contiguous tensor with one mode."""
    return cute.make_tensor(tensor.iterator, cute.make_layout(cute.size(tensor)))


@cute.jit
def _by_lane(tensor, config: cutlass.Constexpr):
    """A contiguous tensor (..., K) as (4, pieces, lane of a row, row), all rows counted as one."""
    layout = cute.make_layout(
        (_VECTOR, config.pieces, config.lanes, cute.size(tensor) // SIZE),
        stride=(1, _VECTOR * config.lanes, _VECTOR, SIZE),
    )
    return cute.make_tensor(tensor.iterator, layout)


@cute.jit
def _load_bf16(source):
    """Global bfloat16 of shape (4, pieces) into registers, as float32."""
    atom = cute.make_copy_atom(cute.nvgpu.CopyG2ROp(), cutlass.BFloat16, num_bits_per_copy=64)
    raw = cute.make_rmem_tensor_like(source)
    cute.copy(atom, source, raw)
    result = cute.make_rmem_tensor_like(source, cutlass.Float32)
    result.store(raw.load().to(cutlass.Float32))
    return result


@cute.jit
def _load_state(state, row, piece, config: cutlass.Constexpr):
    """The pieces that a lane holds, (4, pieces, passes); zeros where there is no state."""
    s = cute.make_rmem_tensor((_VECTOR, config.pieces, config.passes), cutlass.Float32)
    if cutlass.const_expr(state is None):
        s.fill(0.0)
    else:
        atom = cute.make_copy_atom(
            cute.nvgpu.CopyG2ROp(),
            cutlass.Float32,
            num_bits_per_copy=128,
            l1c_evict_priority=cute.nvgpu.CacheEvictionPriority.NO_ALLOCATE,
        )
        source = _by_lane(state, config)
        for r in cutlass.range_constexpr(config.passes):
            at = cutlass.Int64(row + r * config.rows_per_pass)  # offsets may exceed 32 bits
            cute.copy(atom, source[None, None, piece, at], s[None, None, r])
    return s


@cute.kernel
def decode_step(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    state: cute.Tensor | None,
    A_log: cute.Tensor,
    a: cute.Tensor,
    dt_bias: cute.Tensor,
    b: cute.Tensor,
    scale: cutlass.Float32,
    output: cute.Tensor,
    new_state: cute.Tensor,
    config: cutlass.Constexpr,
):
    """One CTA updates ``warps * rows`` consecutive rows of one (sequence, value head)."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    lane = thread % _WARP
    piece = lane % config.lanes
    # Rows are counted over all sequences and heads: row = (sequence * HV + head) * V + v.
    row = (block * config.warps + thread // _WARP) * config.rows + lane // config.lanes
    item = block // config.tiles  # sequence * HV + head
    head = item % HEADS
    qk_item = item // (HEADS // QK_HEADS)

    # All loads of a warp are issued before the first use.
    s = _load_state(state, row, piece, config)
    gate_input = _flat(a)[item].to(cutlass.Float32) + dt_bias[head]
    rate_input = A_log[head]
    beta_input = _flat(b)[item].to(cutlass.Float32)
    k_lane = _load_bf16(_by_lane(k, config)[None, None, piece, qk_item])
    q_lane = _load_bf16(_by_lane(q, config)[None, None, piece, qk_item])
    # Of the passes of a row group, lane r loads (and later writes) the value of pass r.
    own_row = row
    if cutlass.const_expr(config.passes > 1):
        own_row = row + cutlass.min(piece, config.passes - 1) * config.rows_per_pass
    own_v = _flat(v)[own_row].to(cutlass.Float32)

    g = _decay_gate(rate_input, gate_input)
    beta = _update_gate(beta_input)
    qk = cute.arch.warp_reduction_sum(_dot(q_lane, k_lane), threads_in_group=config.lanes)

    store = cute.make_copy_atom(
        cute.nvgpu.CopyR2GOp(),
        cutlass.Float32,
        num_bits_per_copy=128,
        store_cache_mode=cute.nvgpu.StoreCacheMode.STREAMING,
    )
    target = _by_lane(new_state, config)
    out = cutlass.Float32(0.0)  # of the pass that this lane writes
    for r in cutlass.range_constexpr(config.passes):
        s_row = s[None, None, r]
        ks = cute.arch.warp_reduction_sum(_dot(s_row, k_lane), threads_in_group=config.lanes)
        qs = cute.arch.warp_reduction_sum(_dot(s_row, q_lane), threads_in_group=config.lanes)
        v_row = own_v
        if cutlass.const_expr(config.passes > 1):
            # Lane r of each group of lanes: the clamp word confines the shuffle to the group.
            v_row = cute.arch.shuffle_sync(own_v, r, mask_and_clamp=_segment(config.lanes))
        delta = beta * (v_row - g * ks)
        o = scale * (g * qs + qk * delta)
        out = o if piece == r else out
        for c in cutlass.range_constexpr(config.pieces):
            for j in cutlass.range_constexpr(_VECTOR):
                s_row[j, c] = cute.math.fma(delta, k_lane[j, c], g * s_row[j, c])
        at = cutlass.Int64(row + r * config.rows_per_pass)
        cute.copy(store, s_row, target[None, None, piece, at])
    if piece < config.passes:
        _flat(output)[own_row] = out.to(cutlass.BFloat16)


@cute.jit
def launch(
    q: cute.Tensor,
    k: cute.Tensor,
    v: cute.Tensor,
    state: cute.Tensor | None,
    A_log: cute.Tensor,
    a: cute.Tensor,
    dt_bias: cute.Tensor,
    b: cute.Tensor,
    scale: cutlass.Float32,
    output: cute.Tensor,
    new_state: cute.Tensor,
    stream: cuda.CUstream,
    config: cutlass.Constexpr,
):
    """Put one step on the stream."""
    step = decode_step(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state, config)
    step.launch(
        grid=(q.shape[0] * (HEADS * config.tiles), 1, 1),
        block=(config.warps * _WARP, 1, 1),
        min_blocks_per_mp=1,  # lets ptxas take the registers to issue all loads first
        stream=stream,
    )
