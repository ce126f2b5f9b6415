"""DeepSeek sparse attention over selected tokens: the reference.

Shape suffixes: T query tokens, H heads, K places of selected tokens, C latent width,
R width of the positional part.

With k the selected tokens of a row::

    logit = sm_scale (q_nope . ckv + q_pe . kpe)
    output = sum softmax(logit) ckv        lse = log2 sum exp(logit)

Everything is computed in float64.
"""

import math

import torch

_TOKENS_AT_ONCE = 4
"""Bounds the temporaries: about 10 MB a query token."""


def _attend(q_THX, keys_TKX, absent_TK, sm_scale, width):
    logits_THK = (q_THX @ keys_TKX.transpose(1, 2)) * sm_scale
    logits_THK.masked_fill_(absent_TK[:, None], -math.inf)
    lse_TH = torch.logsumexp(logits_THK, dim=2)
    # A row without tokens has lse = -inf; any finite shift then gives weights of zero.
    shift_TH = lse_TH.masked_fill(lse_TH.isinf(), 0.0)
    weights_THK = torch.exp(logits_THK - shift_TH[..., None])
    return weights_THK @ keys_TKX[..., :width], lse_TH / math.log(2.0)


@torch.no_grad()
def precise(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale):
    """Attention, rounded to nothing coarser than float32.

    Args:
        q_nope: (T, 16, 512) bf16 queries in the latent space.
        q_pe: (T, 16, 64) bf16 positional queries.
        ckv_cache: (pages, 64, 512) bf16 latents.
        kpe_cache: (pages, 64, 64) bf16 positional keys.
        sparse_indices: (T, 2048) int32 token ids, -1 for none, in any place.
        sm_scale: factor on the logits.

    Returns:
        output (T, 16, 512) and base-2 lse (T, 16), both float32.
    """
    width = ckv_cache.shape[-1]
    ckv, kpe = ckv_cache.reshape(-1, width), kpe_cache.reshape(-1, kpe_cache.shape[-1])
    output = q_nope.new_empty(q_nope.shape, dtype=torch.float32)
    lse = q_nope.new_empty(q_nope.shape[:2], dtype=torch.float32)
    for start in range(0, q_nope.shape[0], _TOKENS_AT_ONCE):
        part = slice(start, start + _TOKENS_AT_ONCE)
        token_TK = sparse_indices[part].long()
        safe_TK = token_TK.clamp(min=0)
        q_THX = torch.cat((q_nope[part], q_pe[part]), dim=2).double()
        keys_TKX = torch.cat((ckv[safe_TK], kpe[safe_TK]), dim=2).double()
        output[part], lse[part] = _attend(q_THX, keys_TKX, token_TK == -1, sm_scale, width)
    return output, lse


@torch.no_grad()
def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale):
    """Attention with the declared output dtypes; arguments as for ``precise``."""
    output, lse = precise(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale)
    return output.to(torch.bfloat16), lse
