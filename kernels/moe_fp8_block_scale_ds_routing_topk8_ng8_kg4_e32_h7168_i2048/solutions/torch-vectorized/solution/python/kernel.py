"""Mixture-of-experts layer in PyTorch float32, for any device.

Idea: sort the assignments by expert, so that each expert is one contiguous segment; within
an expert dequantise and multiply 256 weight rows at a time (on a CPU; on a GPU all at once).
One host synchronisation.
Bound: converting 44 MB of fp8 weights per active expert to float32; a fused kernel is
limited by reading them.

Suffixes: T tokens, E experts, K selected experts, N assignments of an expert, H hidden
width, I intermediate width.
"""

import torch

from .routing import route

_BLOCK = 128
_TILE_ROWS = 256
"""Weight rows dequantised at once on a CPU: 7 MB of float32 at 7168 columns. A GPU takes all of
them, since its launches cost more than the traffic."""


@torch.no_grad()
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
    """Write the weighted sum of the local experts (T, H)."""
    experts = gemm1_weights.shape[0]
    expert_TK, weight_TK = route(routing_logits, routing_bias, routed_scaling_factor)
    local = (expert_TK - local_expert_offset).flatten()
    local = torch.where((local >= 0) & (local < experts), local, experts)
    order = local.argsort(stable=True)
    sizes = torch.bincount(local, minlength=experts + 1)[:experts].tolist()
    token = order // expert_TK.shape[1]
    weight = weight_TK.flatten()[order]

    total_TH = torch.zeros(output.shape, dtype=torch.float32, device=output.device)
    start = 0
    for expert, size in enumerate(sizes):
        if size == 0:
            continue
        mine = slice(start, start + size)
        start += size
        x_NH = _tokens(hidden_states, hidden_states_scale, token[mine])
        both_NI = _product(x_NH, gemm1_weights[expert], gemm1_weights_scale[expert])
        up_NI, gate_NI = both_NI.tensor_split(2, dim=1)
        inner_NI = up_NI * gate_NI * torch.sigmoid(gate_NI)
        y_NH = _product(inner_NI, gemm2_weights[expert], gemm2_weights_scale[expert])
        total_TH.index_add_(0, token[mine], y_NH * weight[mine, None])
    output.copy_(total_TH)


def _tokens(hidden_states, scale, rows):
    """Float32 tokens (N, H); bytes are gathered because fp8 cannot be indexed everywhere."""
    raw = hidden_states.view(torch.uint8).index_select(0, rows)
    values = raw.view(torch.float8_e4m3fn).float().view(rows.numel(), -1, _BLOCK)
    return (values * scale.index_select(1, rows).t()[..., None]).flatten(1)


def _product(x, weights, scale):
    """Product of x (N, columns) and the transpose of fp8 (rows, columns) with block scales."""
    result = x.new_empty(x.shape[0], weights.shape[0])
    step = _TILE_ROWS if x.device.type == "cpu" else weights.shape[0]
    for row in range(0, weights.shape[0], step):
        tile = weights[row : row + step].float()
        factor = scale[row // _BLOCK : (row + step) // _BLOCK]
        tile.view(-1, _BLOCK, scale.shape[1], _BLOCK).mul_(factor[:, None, :, None])
        torch.mm(x, tile.t(), out=result[:, row : row + step])
    return result
