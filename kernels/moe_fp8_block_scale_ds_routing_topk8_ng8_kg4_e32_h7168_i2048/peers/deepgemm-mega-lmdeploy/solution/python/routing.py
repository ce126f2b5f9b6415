"""Selection of 8 of 256 experts within 4 of 8 groups by LMDeploy's Triton kernel (0.18.0)."""

from lmdeploy.pytorch.kernels.cuda.moe.route_noaux_tc import fused_noaux_tc_routing

TOP = 8
_GROUPS = 8
_GROUPS_KEPT = 4


def route(logits, bias, factor):
    """Ids of the selected experts and their weights, both (T, 8)."""
    weight, expert = fused_noaux_tc_routing(
        logits,
        bias,
        num_experts=logits.shape[1],
        n_group=_GROUPS,
        topk_group=_GROUPS_KEPT,
        top_k=TOP,
        renormalize=True,
        routed_scaling_factor=factor,
    )
    return expert, weight
