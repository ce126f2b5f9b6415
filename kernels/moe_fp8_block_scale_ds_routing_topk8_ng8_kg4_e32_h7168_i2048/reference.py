"""Mixture-of-experts layer with fp8 block scales and DeepSeek routing: the reference.

Shape suffixes: T tokens, E experts, G groups, K selected experts, N tokens of one expert,
H hidden width, I intermediate width, S blocks of 128 channels.

With s = sigmoid(logits) and b the bias: keep the 4 of 8 groups whose two largest s + b have
the largest sum, select the 8 largest s + b within them, and weight expert e by s_e over the
sum of the eight s, times the scaling factor. An expert computes W2 (silu(gate) * up).

Routing is done in float64, products in float32. One expert is dequantised at a time (176 MB)
and experts without tokens are skipped, so memory stays far below the 5.6 GB of all experts.
"""

import torch

_BLOCK = 128
_GROUPS = 8
_GROUPS_KEPT = 4
_TOP = 8


def _selection(logits_TE, bias_E):
    """(T, 8) ids of the selected experts and their unbiased scores, float64."""
    score_TE = torch.sigmoid(logits_TE.double())
    biased_TE = score_TE + bias_E.double()
    biased_TGE = biased_TE.unflatten(1, (_GROUPS, -1))
    best_two_TG = biased_TGE.topk(2, dim=2).values.sum(dim=2)
    kept_TG = torch.zeros_like(best_two_TG, dtype=torch.bool)
    kept_TG.scatter_(1, best_two_TG.topk(_GROUPS_KEPT, dim=1).indices, True)
    allowed_TGE = biased_TGE.masked_fill(~kept_TG[..., None], -torch.inf)
    expert_TK = allowed_TGE.flatten(1).topk(_TOP, dim=1).indices
    return expert_TK, score_TE.gather(1, expert_TK)


def _dequantized(weights, scale):
    """Float32 (rows, columns) of an fp8 matrix with a scale per 128 x 128 block."""
    blocks = weights.float().unflatten(1, (-1, _BLOCK)).unflatten(0, (-1, _BLOCK))
    return blocks.mul_(scale[:, None, :, None]).flatten(2).flatten(0, 1)


def _expert(x_NH, w13, scale13, w2, scale2):
    up_NI, gate_NI = (x_NH @ _dequantized(w13, scale13).t()).chunk(2, dim=1)
    inner_NI = torch.nn.functional.silu(gate_NI) * up_NI
    return inner_NI @ _dequantized(w2, scale2).t()


@torch.no_grad()
def precise(
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
    """The layer in float32.

    Args:
        routing_logits: (T, 256) float32.
        routing_bias: (256,) bf16.
        hidden_states: (T, 7168) fp8 tokens.
        hidden_states_scale: (56, T) float32.
        gemm1_weights: (32, 4096, 7168) fp8, up rows before gate rows.
        gemm1_weights_scale: (32, 32, 56) float32.
        gemm2_weights: (32, 7168, 2048) fp8.
        gemm2_weights_scale: (32, 56, 16) float32.
        local_expert_offset: id of the first local expert.
        routed_scaling_factor: factor on the combination weights.

    Returns:
        (T, 7168) float32.
    """
    expert_TK, score_TK = _selection(routing_logits, routing_bias)
    total_T1 = score_TK.sum(dim=1, keepdim=True) + 1e-20
    weight_TK = (score_TK / total_T1 * float(routed_scaling_factor)).float()
    local_TK = expert_TK - int(local_expert_offset)
    output_TH = torch.zeros(hidden_states.shape, dtype=torch.float32, device=hidden_states.device)
    for local in range(gemm1_weights.shape[0]):
        token_N, place_N = (local_TK == local).nonzero(as_tuple=True)
        if not token_N.numel():
            continue
        scale_NS = hidden_states_scale[:, token_N].t()
        x_NH = hidden_states.view(torch.uint8)[token_N].view(hidden_states.dtype).float()
        x_NH.unflatten(1, (-1, _BLOCK)).mul_(scale_NS[..., None])
        result_NH = _expert(
            x_NH,
            gemm1_weights[local],
            gemm1_weights_scale[local],
            gemm2_weights[local],
            gemm2_weights_scale[local],
        )
        output_TH.index_add_(0, token_N, result_NH.mul_(weight_TK[token_N, place_N][:, None]))
    return (output_TH,)


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
):
    """The layer with the declared output dtype; arguments as for ``precise``."""
    (output,) = precise(
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
    )
    return (output.to(torch.bfloat16),)
