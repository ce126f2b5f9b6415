"""Baseline: DeepGEMM's fp8 paged logits, then FlashInfer's top-k with a table of token ids.

Target: Hopper. Three kernels of the libraries (schedule, logits, top-k), and torch makes the
table of token ids, which a server would keep. Bound: the launches, and for many long rows memory.
"""

import torch
from deep_gemm import fp8_paged_mqa_logits, get_num_sms, get_paged_mqa_logits_metadata
from flashinfer.topk import top_k_page_table_transform

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
        False,  # what lies behind the end of a row may stay as it is
    )
    place = torch.arange(_PAGE, dtype=torch.int32, device=block_table.device)
    tokens = torch.add(place, block_table[:, :, None], alpha=_PAGE).flatten(1)
    topk_indices.copy_(top_k_page_table_transform(logits, tokens, seq_lens, _TOPK))
