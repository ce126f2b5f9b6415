"""Gated DeltaNet, one decoding step: the reference.

Shape suffixes: B batch, H value heads, Q query/key heads, V and K the two widths of a state.

With S the old state (V x K), g the decay, beta the write strength and k, q, v of a head::

    S' = g S + beta (v - g S k) k^T        output = scale S' q

Everything is computed in float64, so that an honest float32 implementation is judged
against something clearly better than itself.
"""

import math

import torch
import torch.nn.functional as F


@torch.no_grad()
def precise(q, k, v, state, A_log, a, dt_bias, b, scale):
    """The step, rounded to nothing coarser than float32.

    Args:
        q: (B, 1, Q, K) queries.
        k: (B, 1, Q, K) keys.
        v: (B, 1, H, V) values.
        state: (B, H, V, K) state before the step; None stands for zeros.
        A_log: (H,) logarithm of the decay rate.
        a: (B, 1, H) step size before bias and softplus.
        dt_bias: (H,) bias of the step size.
        b: (B, 1, H) write strength before the sigmoid.
        scale: factor on the output; None or 0 stands for 1 / sqrt(K).

    Returns:
        output (B, 1, H, V) and the state after the step (B, H, V, K), both float32.
    """
    scale = 1.0 / math.sqrt(q.shape[-1]) if not scale else float(scale)
    # On a CPU a few sequences at a time: their float64 temporaries stay in the cache.
    step = 4 if q.device.type == "cpu" else max(1, q.shape[0])
    parts = []
    for start in range(0, q.shape[0], step):
        rows = slice(start, start + step)
        old = None if state is None else state[rows]
        parts.append(_step(q[rows], k[rows], v[rows], old, A_log, a[rows], dt_bias, b[rows]))
    output_BHV, state_BHVK = (torch.cat(part) for part in zip(*parts, strict=True))
    return (scale * output_BHV)[:, None].float(), state_BHVK


def _step(q, k, v, state, A_log, a, dt_bias, b):
    """Some sequences; returns the unscaled output (B, H, V), float64, and the state, float32."""
    width = q.shape[-1]
    group = v.shape[2] // q.shape[2]
    q_BHK = q[:, 0].double().repeat_interleave(group, dim=1)
    k_BHK = k[:, 0].double().repeat_interleave(group, dim=1)
    v_BHV = v[:, 0].double()
    # The step size is a float32 sum in the operator's definition; the rest may be finer.
    dt_BH = F.softplus((a[:, 0].float() + dt_bias.float()).double())
    decay_BH = torch.exp(-torch.exp(A_log.double()) * dt_BH)
    beta_BH = torch.sigmoid(b[:, 0].double())
    if state is None:
        state_BHVK = v_BHV.new_zeros(*v_BHV.shape, width)
    else:
        state_BHVK = state.double() * decay_BH[..., None, None]
    old_BHV = (state_BHVK @ k_BHK[..., None])[..., 0]
    delta_BHV = beta_BH[..., None] * (v_BHV - old_BHV)
    state_BHVK = state_BHVK + delta_BHV[..., None] * k_BHK[..., None, :]
    output_BHV = (state_BHVK @ q_BHK[..., None])[..., 0]
    return output_BHV, state_BHVK.float()


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, scale):
    """The step with the declared output dtypes; arguments as for ``precise``."""
    output, new_state = precise(q, k, v, state, A_log, a, dt_bias, b, scale)
    return output.to(torch.bfloat16), new_state
