"""Baseline: DeepGEMM's grouped fp8 products (sgl-deep-gemm 0.1.4.post1) as a pipeline.

Target: Hopper. Routing (``routing.py``), then Triton kernels of this project that list and gather
the rows of each local expert, apply SwiGLU and quantise again, and add up (``stages.py``), around
the two products of the library. Bound: reading the active experts' weights, and for many tokens
the tensor cores; the gaps between launches count.
"""

import torch
from deep_gemm import m_grouped_fp8_fp4_gemm_nt_masked, m_grouped_fp8_gemm_nt_contiguous

from .routing import route
from .stages import STEP, activate, combine, gather, pack

_MASKED_TOKENS = 1024
"""Up to here each expert has room for all tokens; beyond, experts follow each other."""


def _product(rows, scale, weights, weight_scale, end, room, expected):
    """The rows of each expert times its weights, (rows, N) bf16.

    Args:
        rows: (R, K) fp8.
        scale: float32, in the order of ``stages.py``.
        weights: (E, N, K) fp8.
        weight_scale: (E, N / 128, K / 128) float32.
        end: (E,) rows of each expert, or the ends of theirs where they follow each other.
        room: rows of an expert, 0 where they follow each other.
        expected: rows of an expert, for the library's choice of tiles.
    """
    experts, width, depth = weights.shape
    out = torch.empty((rows.shape[0], width), dtype=torch.bfloat16, device=rows.device)
    if room:
        m_grouped_fp8_fp4_gemm_nt_masked(
            (rows.view(experts, room, depth), scale.view(experts, -1, room).transpose(1, 2)),
            (weights, weight_scale),
            out.view(experts, room, width),
            end,
            expected,
        )
    else:
        m_grouped_fp8_gemm_nt_contiguous(
            (rows, scale.t()),
            (weights, weight_scale),
            out,
            end,
            use_psum_layout=True,
            expected_m_for_psum_layout=expected,
        )
    return out


def run(
    routing_logits,
    routing_bias,
    hidden_states,
    hidden_states_scale,
    gemm1_weights,
    gemm1_weights_scale,
    gemm2_weights,
    gemm2_weights_scale,
    local_expert_offset,
    routed_scaling_factor,
    output,
):
    """Writes the weighted sum of the local experts (T, H)."""
    tokens, experts = hidden_states.shape[0], gemm1_weights.shape[0]
    room = -(-tokens // STEP) * STEP if tokens <= _MASKED_TOKENS else 0
    expert, weight = route(routing_logits, routing_bias, routed_scaling_factor)
    routed = pack(expert, experts, local_expert_offset, room)
    expected = -(-expert.numel() // routing_logits.shape[1])
    x, scale = gather(hidden_states, hidden_states_scale, routed)
    both = _product(x, scale, gemm1_weights, gemm1_weights_scale, routed.end, room, expected)
    x, scale = activate(both, routed)
    results = _product(x, scale, gemm2_weights, gemm2_weights_scale, routed.end, room, expected)
    combine(results, routed, weight, output)
