"""Gated DeltaNet over ragged sequences: the reference.

With S the state (V x K), g a decay, beta a write strength, each token of a sequence does::

    u = beta (v - g S k)        S <- g S + u k^T        output = scale S q

A chunk of C tokens is done at once. With G the sum of log g up to a token of the chunk,
D_ij = exp(G_i - G_j) for j <= i and S_0 the state before the chunk::

    (I + tril(beta_i D_ij k_i.k_j, -1)) U = beta (V - exp(G) K S_0^T)
    O = scale (exp(G) Q S_0^T + tril(D_ij q_i.k_j) U)
    S <- exp(G_C) S_0 + U^T (exp(G_C - G) K)

Exponents are never positive, so nothing overflows; everything is float64. Chunk c of all
sequences that reach it is one batch, so the loop has as many steps as the longest
sequence has chunks.

Shape suffixes: T tokens, C tokens of a chunk, N sequences, n those still active,
H value heads, Q query/key heads, V and K the two widths of a state.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F

CHUNK = 64
PROBES = 4


@torch.no_grad()
def precise(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale):
    """All sequences, rounded to nothing coarser than float32.

    Args:
        q: (T, Q, K) queries.
        k: (T, Q, K) keys.
        v: (T, H, V) values.
        state: (N, H, V, K) state before each sequence; None stands for zeros.
        A_log: (H,) logarithm of the decay rate.
        a: (T, H) step size before bias and softplus.
        dt_bias: (H,) bias of the step size.
        b: (T, H) write strength before the sigmoid.
        cu_seqlens: (N + 1,) first token of each sequence, and T.
        scale: factor on the output; None or 0 stands for 1 / sqrt(K).

    Returns:
        output (T, H, V) and the state after each sequence (N, H, V, K), both float32; the
        state of a sequence without tokens is zero.
    """
    tokens, heads, v_width = v.shape
    width = q.shape[-1]
    scale = 1.0 / math.sqrt(width) if not scale else float(scale)
    # The step size is a float32 sum in the operator's definition; the rest may be finer.
    step_TH = F.softplus((a.float() + dt_bias.float()).double())
    log_decay_TH = -torch.exp(A_log.double()) * step_TH
    beta_TH = torch.sigmoid(b.double())

    bounds = cu_seqlens.tolist()
    lengths = [end - start for start, end in pairwise(bounds)]
    order = sorted((n for n, size in enumerate(lengths) if size > 0), key=lambda n: -lengths[n])
    starts = torch.tensor([bounds[n] for n in order], device=q.device)
    sizes = torch.tensor([lengths[n] for n in order], device=q.device)

    output_THV = torch.zeros(tokens, heads, v_width, device=q.device)
    new_state_NHVK = torch.zeros(len(lengths), heads, v_width, width, device=q.device)
    if not order:
        return output_THV, new_state_NHVK
    state_NHVK = new_state_NHVK[order].double() if state is None else state[order].double()
    for first in range(0, lengths[order[0]], CHUNK):
        active = sum(lengths[n] > first for n in order)  # a prefix: longest sequences first
        offset_nC = first + torch.arange(CHUNK, device=q.device).expand(active, CHUNK)
        real_nC = offset_nC < sizes[:active, None]
        index_nC = torch.where(real_nC, starts[:active, None] + offset_nC, 0)
        # A token beyond the end neither decays (log g = 0) nor writes (beta = 0).
        output_nHCV, state_NHVK[:active] = _chunk(
            _heads(q[index_nC].double(), heads),
            _heads(k[index_nC].double(), heads),
            v[index_nC].double().transpose(1, 2),
            (log_decay_TH[index_nC] * real_nC[..., None]).transpose(1, 2),
            (beta_TH[index_nC] * real_nC[..., None]).transpose(1, 2),
            state_NHVK[:active],
        )
        output_nCHV = scale * output_nHCV.transpose(1, 2)
        output_THV[index_nC[real_nC]] = output_nCHV[real_nC].float()
    new_state_NHVK[order] = state_NHVK.float()
    return output_THV, new_state_NHVK


@torch.no_grad()
def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale):
    """All sequences with the declared output dtypes; arguments as for ``precise``."""
    output, new_state = precise(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale)
    return output.to(torch.bfloat16), new_state


@torch.no_grad()
def magnitudes(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale):
    """What a read measures where a query meets the keys in its state at chance's angle.

    A state does not depend on queries. So each query is replaced by vectors of its length in
    fixed directions that no key knows of, and the root mean square of what they read is taken.

    Returns:
        ``output``: (T, H) float64, the 2-norm over V of a row without cancellation.
    """
    width = q.shape[-1]
    length_TQ1 = torch.linalg.vector_norm(q.double(), dim=-1, keepdim=True)
    signs = torch.Generator().manual_seed(PROBES)
    square_TH = 0.0
    for _ in range(PROBES):
        signs_K = 2.0 * torch.randint(2, (width,), generator=signs).double() - 1.0
        probe_TQK = length_TQ1 * (signs_K / math.sqrt(width)).to(q.device)
        read_THV, _ = precise(probe_TQK, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale)
        square_TH = square_TH + read_THV.double().square().sum(-1)
    return {"output": (square_TH / PROBES).sqrt()}


def _heads(x_nCQK, heads):
    """(n, H, C, K): each query/key head serves H / Q value heads."""
    return x_nCQK.transpose(1, 2).repeat_interleave(heads // x_nCQK.shape[2], dim=1)


def _chunk(q_nHCK, k_nHCK, v_nHCV, log_decay_nHC, beta_nHC, state_nHVK):
    """One chunk; returns the unscaled output (n, H, C, V) and the state after it."""
    total_nHC = log_decay_nHC.cumsum(-1)
    growth_nHC1 = total_nHC.exp()[..., None]
    exponent_nHCC = total_nHC[..., :, None] - total_nHC[..., None, :]
    lower = torch.ones_like(exponent_nHCC, dtype=torch.bool).tril()
    decay_nHCC = exponent_nHCC.masked_fill(~lower, -math.inf).exp()
    keys_nHKC = k_nHCK.transpose(-1, -2)
    state_nHKV = state_nHVK.transpose(-1, -2)

    system_nHCC = beta_nHC[..., None] * decay_nHCC * (k_nHCK @ keys_nHKC)
    wanted_nHCV = beta_nHC[..., None] * (v_nHCV - growth_nHC1 * (k_nHCK @ state_nHKV))
    # The solver takes the diagonal as ones and reads only what lies below it.
    update_nHCV = torch.linalg.solve_triangular(
        system_nHCC, wanted_nHCV, upper=False, unitriangular=True
    )
    read_nHCV = growth_nHC1 * (q_nHCK @ state_nHKV)
    output_nHCV = read_nHCV + (decay_nHCC * (q_nHCK @ keys_nHKC)) @ update_nHCV
    left_nHC1 = (total_nHC[..., -1:] - total_nHC).exp()[..., None]
    written_nHVK = update_nHCV.transpose(-1, -2) @ (left_nHC1 * k_nHCK)
    return output_nHCV, growth_nHC1[..., -1:, :] * state_nHVK + written_nHVK
