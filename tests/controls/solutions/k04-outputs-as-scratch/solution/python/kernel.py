"""Outputs are written more than once and read in between; inputs stay as they are."""

import torch


def run(q, k, v, state, log_rate, a, dt_bias, b, scale, output, new_state) -> None:
    """The step, in place in the new state (B, H, V, K)."""
    batch, _, heads, width = v.shape
    group = heads // k.shape[2]
    rate = torch.exp(log_rate) * torch.nn.functional.softplus(a.float() + dt_bias)
    keys = k[:, 0].float().repeat_interleave(group, 1)
    queries = q[:, 0].float().repeat_interleave(group, 1)
    if state is None:
        new_state.zero_()
    else:
        new_state.copy_(state)
    new_state.mul_(torch.exp(-rate).view(batch, heads, 1, 1))
    output.zero_()
    held = (new_state @ keys[..., None])[..., 0]
    delta = torch.sigmoid(b.float()).view(batch, heads, 1) * (v[:, 0].float() - held)
    flat = new_state.view(-1, width, width)
    flat.baddbmm_(delta.view(-1, width, 1), keys.view(-1, 1, width))
    output[:, 0].add_((scale or width**-0.5) * (new_state @ queries[..., None])[..., 0])
