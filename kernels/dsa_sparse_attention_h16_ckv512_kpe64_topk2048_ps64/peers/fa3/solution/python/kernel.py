"""Baseline: FlashAttention 3 of vLLM 0.24.0 over a cache with pages of one token.

Target: Hopper. The library wants a dense table of tokens and gives natural logarithms, so a small
Triton kernel of this project runs before it and one after it, inside the timed span. Bound: the
gather of 2.36 MB a query token, and five launches.
"""

import triton
import triton.language as tl
from vllm.vllm_flash_attn import flash_attn_varlen_func

LOG2_E = 1.4426950408889634


@triton.jit
def make_dense(selected_ptr, table_ptr, length_ptr, starts_ptr, PLACES: tl.constexpr):
    """Moves the ids of a query token to the front, in their order; the rest becomes 0."""
    row = tl.program_id(0)
    place = tl.arange(0, PLACES)
    selected = tl.load(selected_ptr + row * PLACES + place)
    valid = selected >= 0
    count = tl.sum(valid.to(tl.int32), 0)
    target = tl.cumsum(valid.to(tl.int32), 0) - 1
    tl.store(table_ptr + row * PLACES + target, selected, mask=valid)
    tl.store(table_ptr + row * PLACES + place, 0, mask=place >= count)
    tl.store(length_ptr + row, count)
    tl.store(starts_ptr + row, row)
    tl.store(starts_ptr + row + 1, row + 1)


@triton.jit
def finish(found_ptr, length_ptr, lse_ptr, tokens, factor, HEADS: tl.constexpr):
    """(HEADS, tokens) natural to (tokens, HEADS) base 2, minus infinity for an empty selection."""
    row = tl.program_id(0)
    head = tl.arange(0, HEADS)
    found = tl.load(found_ptr + head * tokens + row) * factor
    empty = tl.load(length_ptr + row) == 0
    tl.store(lse_ptr + row * HEADS + head, tl.where(empty, -float("inf"), found))


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    """Writes output (T, 16, 512) and the base-2 lse (T, 16)."""
    tokens, places = sparse_indices.shape
    heads = q_nope.shape[1]
    table = sparse_indices.new_empty(sparse_indices.shape)
    length = table.new_empty(tokens)
    starts = table.new_empty(tokens + 1)
    make_dense[(tokens,)](sparse_indices, table, length, starts, PLACES=places)
    _, found = flash_attn_varlen_func(
        q=q_pe,
        k=kpe_cache.view(-1, 1, 1, kpe_cache.shape[-1]),
        v=ckv_cache.view(-1, 1, 1, ckv_cache.shape[-1]),
        max_seqlen_q=1,
        cu_seqlens_q=starts,
        max_seqlen_k=places,
        seqused_k=length,
        q_v=q_nope,
        softmax_scale=sm_scale,
        block_table=table,
        return_softmax_lse=True,
        out=output,
        fa_version=3,
    )
    finish[(tokens,)](found, length, lse, tokens, LOG2_E, HEADS=heads)
