"""Attention over selected tokens in batched PyTorch float32, for any device.

Idea: gather once, use the latents as keys and values; base-2 exponentials relative to the
row maximum, normalised after the weighted sum, so that output and lse share one pass.
Bound: the gathered float32 copy (4.7 MB a query, written once and read twice) against 2.4 MB
of bf16 rows for a fused kernel.

Suffixes: T query tokens, H heads, K selected places, C latent width, R positional width.
"""

import math

import torch

_QUERIES_AT_ONCE = 32


@torch.no_grad()
def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    """Write the output (T, H, C) and the base-2 log-sum-exp (T, H)."""
    ckv_NC, kpe_NR = ckv_cache.flatten(0, 1), kpe_cache.flatten(0, 1)
    factor = sm_scale * math.log2(math.e)
    for start in range(0, q_nope.shape[0], _QUERIES_AT_ONCE):
        part = slice(start, start + _QUERIES_AT_ONCE)
        ids_TK = sparse_indices[part]
        flat = ids_TK.clamp(min=0).reshape(-1)
        ckv_TKC = ckv_NC.index_select(0, flat).float().view(*ids_TK.shape, -1)
        kpe_TKR = kpe_NR.index_select(0, flat).float().view(*ids_TK.shape, -1)

        logits_THK = torch.bmm(q_nope[part].float(), ckv_TKC.transpose(1, 2))
        logits_THK.baddbmm_(q_pe[part].float(), kpe_TKR.transpose(1, 2)).mul_(factor)
        logits_THK.masked_fill_((ids_TK < 0)[:, None], -math.inf)
        # Without a token the maximum is -inf and the sum 0; log2(0) is the wanted lse.
        top_TH1 = logits_THK.amax(2, keepdim=True).clamp_(min=torch.finfo(torch.float32).min)
        weights_THK = torch.exp2(logits_THK.sub_(top_TH1))
        sum_TH1 = weights_THK.sum(2, keepdim=True)
        lse[part] = (top_TH1 + sum_TH1.log2()).squeeze(2)
        output[part] = torch.bmm(weights_THK, ckv_TKC) / sum_TH1.clamp(min=1e-30)
