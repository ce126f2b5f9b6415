"""Gated DeltaNet over ragged sequences in batched PyTorch float32, for any device.

Idea: 64 tokens of a sequence become matrix products and one triangular solve; chunk c of
all sequences that are long enough, times all heads, is one batch. Only the sums of
log-decays are float64: over a chunk they reach the thousands, and their differences count.
Bound: as many dependent steps as the longest sequence has chunks, a dozen small launches
each; the cu_seqlens are read on the host.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F

CHUNK = 64


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    """Write the read-outs (T, H, V) and the final states (N, H, V, K)."""
    heads, width = v.shape[1], q.shape[-1]
    scale = scale or 1.0 / math.sqrt(width)
    rate_H = -torch.exp(A_log)
    log_decay_TH = (rate_H * F.softplus(a.float() + dt_bias)).double()
    beta_TH = torch.sigmoid(b.float())

    bounds = cu_seqlens.tolist()
    lengths = [end - start for start, end in pairwise(bounds)]
    order = sorted((n for n, size in enumerate(lengths) if size > 0), key=lambda n: -lengths[n])
    new_state.zero_()
    if not order:
        return
    starts = torch.tensor([bounds[n] for n in order], device=q.device)
    sizes = torch.tensor([lengths[n] for n in order], device=q.device)
    carried = (new_state if state is None else state)[order]
    for first in range(0, lengths[order[0]], CHUNK):
        active = sum(lengths[n] > first for n in order)
        size = min(CHUNK, lengths[order[0]] - first)
        offset = first + torch.arange(size, device=q.device).expand(active, size)
        real = offset < sizes[:active, None]
        index = torch.where(real, starts[:active, None] + offset, 0)
        read, carried[:active] = _chunk(
            _spread(q[index], heads),
            _spread(k[index], heads),
            v[index].transpose(1, 2).float(),
            (log_decay_TH[index] * real[..., None]).transpose(1, 2).cumsum(-1),
            (beta_TH[index] * real[..., None]).transpose(1, 2)[..., None],
            carried[:active],
        )
        output[index[real]] = (scale * read.transpose(1, 2)[real]).to(output.dtype)
    new_state[order] = carried


def _spread(x, heads):
    """(n, C, Q, K) to (n, H, C, K) float32."""
    x = x.transpose(1, 2).float()
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def _chunk(q, k, v, total, beta, state):
    """One chunk: q, k (n, H, C, K), v (n, H, C, V), total (n, H, C), beta (n, H, C, 1)."""
    growth = total.exp().float()[..., None]
    decay = (total[..., :, None] - total[..., None, :]).clamp_(max=0.0).exp_().float().tril_()
    keys, state_t = k.transpose(-1, -2), state.transpose(-1, -2)
    wanted = beta * (v - growth * (k @ state_t))
    update = torch.linalg.solve_triangular(
        beta * decay * (k @ keys), wanted, upper=False, unitriangular=True
    )
    read = growth * (q @ state_t) + (decay * (q @ keys)) @ update
    left = (total[..., -1:] - total).exp().float()[..., None]
    return read, growth[..., -1:, :] * state + update.transpose(-1, -2) @ (left * k)
