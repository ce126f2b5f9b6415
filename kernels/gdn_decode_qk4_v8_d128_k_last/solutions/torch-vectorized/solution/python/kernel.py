"""Gated DeltaNet decoding step in batched PyTorch float32, for any device.

Idea: S k and S q of the old state come from one batched product, because with
u = beta (v - g S k) the output is scale (g S q + (k . q) u); the new state is then
written once, as a decay and a rank-1 update.
Bound: several passes over the state, so well above the one read and one write of a
fused kernel.
"""

import math

import torch
import torch.nn.functional as F


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    """Write the read-out (B, 1, H, V) and the new state (B, H, V, K)."""
    batch, _, v_heads, width = v.shape
    scale = scale or 1.0 / math.sqrt(width)
    group = v_heads // k.shape[2]
    q_BHK = q[:, 0].float().repeat_interleave(group, dim=1)
    k_BHK = k[:, 0].float().repeat_interleave(group, dim=1)
    v_BHV = v[:, 0].float()
    decay_BH1 = torch.exp(-torch.exp(A_log) * F.softplus(a[:, 0].float() + dt_bias))[..., None]
    beta_BH1 = torch.sigmoid(b[:, 0].float())[..., None]
    dot_BH1 = (q_BHK * k_BHK).sum(-1, keepdim=True)

    if state is None:
        read_q_BHV = torch.zeros_like(v_BHV)
        delta_BHV = beta_BH1 * v_BHV
        new_state.zero_()
    else:
        reads_BHV2 = state @ torch.stack((k_BHK, q_BHK), dim=-1)
        delta_BHV = beta_BH1 * (v_BHV - decay_BH1 * reads_BHV2[..., 0])
        read_q_BHV = decay_BH1 * reads_BHV2[..., 1]
        torch.mul(state, decay_BH1[..., None], out=new_state)
    flat = new_state.view(batch * v_heads, width, width)
    flat.baddbmm_(delta_BHV.view(-1, width, 1), k_BHK.view(-1, 1, width))
    output[:, 0].copy_(scale * (read_q_BHV + dot_BH1 * delta_BHV))
