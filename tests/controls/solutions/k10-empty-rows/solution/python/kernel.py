"""Row by row; an empty row has a logarithm of zero and an output of zeros.

T queries, H heads, K selected tokens, C latent width.
"""

import math

import torch


@torch.no_grad()
def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse) -> None:
    """Write the output (T, H, C) and the base-2 log-sum-exp (T, H)."""
    latents, positions = ckv_cache.flatten(0, 1), kpe_cache.flatten(0, 1)
    for row in range(q_nope.shape[0]):
        ids = sparse_indices[row]
        ids = ids[ids >= 0].long()
        if ids.numel() == 0:
            output[row].zero_()
            lse[row].fill_(-math.inf)
            continue
        ckv, kpe = latents[ids].float(), positions[ids].float()
        logits = sm_scale * (q_nope[row].float() @ ckv.T + q_pe[row].float() @ kpe.T)
        output[row] = torch.softmax(logits, 1) @ ckv
        lse[row] = torch.logsumexp(logits, 1) * math.log2(math.e)
