"""Baseline: FlashInfer's context-parallel gated delta rule (0.6.18.post1), and a gate kernel.

Target: Hopper. Four kernels, which divide long sequences among blocks. Gates as for the peer
without: one Triton kernel of this project before them, inside the timed span. Bound: launched one
by one the gaps between five kernels; from a CUDA graph the parts of the chain.
"""

import torch
import triton
import triton.language as tl
from flashinfer.gdn_prefill import chunk_gated_delta_rule

BLOCK = 1024


@triton.jit
def gates(
    a_ptr,
    b_ptr,
    a_log_ptr,
    dt_bias_ptr,
    alpha_ptr,
    beta_ptr,
    count,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Alpha = exp(-exp(A_log) softplus(a + dt_bias)) and beta = sigmoid(b), (tokens, HEADS)."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    head = place % HEADS
    step = tl.load(a_ptr + place, mask=inside, other=0.0).to(tl.float32)
    step += tl.load(dt_bias_ptr + head)
    step = tl.where(step > 20.0, step, tl.log(1.0 + tl.exp(step)))
    alpha = tl.exp(-tl.exp(tl.load(a_log_ptr + head)) * step)
    beta = tl.sigmoid(tl.load(b_ptr + place, mask=inside, other=0.0).to(tl.float32))
    tl.store(alpha_ptr + place, alpha, mask=inside)
    tl.store(beta_ptr + place, beta, mask=inside)


def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    """All sequences; writes output (T, 8, 128) and new_state (N, 8, 128 V, 128 K)."""
    alpha = torch.empty(a.shape, dtype=torch.float32, device=a.device)
    beta = torch.empty_like(alpha)
    gates[(triton.cdiv(a.numel(), BLOCK),)](
        a, b, A_log, dt_bias, alpha, beta, a.numel(), HEADS=a.shape[1], BLOCK=BLOCK
    )
    chunk_gated_delta_rule(
        q,
        k,
        v,
        g=alpha,
        beta=beta,
        scale=scale or None,  # None is 1 / sqrt(K) there
        initial_state=state,
        output_final_state=True,
        cu_seqlens=cu_seqlens,
        output=output,
        output_state=new_state,
        use_cp=True,
    )
