"""Baseline: DeepGEMM's fp8 paged logits, then torch.topk and a gather of page ids.

Target: Hopper. Two kernels of DeepGEMM and some ten of torch. Bound: the launches and torch's sort.
"""

import torch
from deep_gemm import fp8_paged_mqa_logits, get_num_sms, get_paged_mqa_logits_metadata

_TOPK = 2048
_PAGE = 64
_WIDTH_STEP = 256
"""Of the logits, in tokens."""


def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    """Writes the ids (B, 2048) of the selected tokens, then -1."""
    pages = block_table.shape[1]
    width = -(-pages * _PAGE // _WIDTH_STEP) * _WIDTH_STEP
    lengths = seq_lens[:, None]
    schedule = get_paged_mqa_logits_metadata(lengths, _PAGE, get_num_sms())
    logits = fp8_paged_mqa_logits(
        q_index_fp8[:, None],
        k_index_cache_fp8.view(torch.uint8),
        weights,
        lengths,
        block_table,
        schedule,
        width,
        False,  # masked below
    )[:, : pages * _PAGE]
    position = torch.arange(pages * _PAGE, device=logits.device)
    logits = logits.masked_fill(position >= lengths, -torch.inf)
    count = min(_TOPK, pages * _PAGE)
    place = logits.topk(count, dim=1, sorted=False).indices
    tokens = block_table.gather(1, place // _PAGE) * _PAGE + place % _PAGE
    topk_indices.fill_(-1)
    topk_indices[:, :count] = tokens.masked_fill(place >= lengths, -1)
