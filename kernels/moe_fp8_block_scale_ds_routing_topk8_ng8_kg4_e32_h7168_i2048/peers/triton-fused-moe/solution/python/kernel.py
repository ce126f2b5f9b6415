"""Baseline: LMDeploy's Triton kernels (0.18.0) for routing and a mixture of experts in fp8.

Target: GPUs with fp8 products. All kernels are the library's but two: ids are counted from the
first local expert by torch, and SwiGLU is a kernel of this project, since the library's takes gate
rows before up rows; the library calls it where its own would be. Bound: reading the active experts'
weights; for many tokens memory for all eight rows of each token, local or not.
"""

import torch
import triton
import triton.language as tl
from lmdeploy.pytorch.kernels.cuda.moe.blocked_fp8 import fused_moe_blocked_fp8
from lmdeploy.pytorch.kernels.cuda.moe.route_noaux_tc import fused_noaux_tc_routing

_TOP = 8
_GROUPS = 8
_GROUPS_KEPT = 4
_PIECE = 1024
"""Channels of a program that activates."""


@triton.jit
def swiglu(both_ptr, to_ptr, INNER: tl.constexpr, PIECE: tl.constexpr):
    """silu(gate) * up of one row and some channels, up before gate."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    inside = place < INNER
    up = tl.load(both_ptr + row * 2 * INNER + place, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(both_ptr + (row * 2 + 1) * INNER + place, mask=inside, other=0.0)
    gate = gate.to(tl.float32)
    value = up * gate * tl.sigmoid(gate)
    tl.store(to_ptr + row * INNER + place, value.to(to_ptr.dtype.element_ty), mask=inside)


def _activate(both):
    rows, width = both.shape
    out = both.new_empty(rows, width // 2)
    grid = (rows, triton.cdiv(width // 2, _PIECE))
    swiglu[grid](both, out, INNER=width // 2, PIECE=_PIECE)
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
):
    """The weighted sum of the local experts (T, H)."""
    experts = routing_logits.shape[1]
    weight, expert = fused_noaux_tc_routing(
        routing_logits,
        routing_bias,
        num_experts=experts,
        n_group=_GROUPS,
        topk_group=_GROUPS_KEPT,
        top_k=_TOP,
        renormalize=True,
        routed_scaling_factor=routed_scaling_factor,
    )
    # The library compiles anew for each first expert that it is given: here it is always 0.
    expert = torch.remainder(expert - local_expert_offset, experts)
    output = fused_moe_blocked_fp8(
        input=hidden_states,
        input_scale=hidden_states_scale.t(),
        w1=gemm1_weights,
        w1_scale=gemm1_weights_scale,
        w2=gemm2_weights,
        w2_scale=gemm2_weights_scale,
        topk_weights=weight,
        topk_ids=expert,
        topk=_TOP,
        out_dtype=torch.bfloat16,
        expert_offset=0,
        num_experts=experts,
        renormalize=False,
        act_func=_activate,
    )
    return (output,)
