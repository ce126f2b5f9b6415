"""Token selection in batched PyTorch float32, for any device, without host synchronisation.

Idea: score every page of the block tables, apply the key scale (positive, so it passes
through relu) once per token, mask what lies behind the end of a row, take the top 2048.
Where the block table holds at most 2048 tokens, list them and score nothing.
Bound: float32 products of 64 x 128 per token and a full top-k; a fused kernel is limited by
reading 8448 bytes a page.

Suffixes: B rows, H heads, D width, P pages of a row, L tokens.
"""

import torch

_TOPK = 2048
_PAGE = 64
_DIM = 128
_ROWS_AT_ONCE = 16
"""Bounds the (rows, heads, tokens) product: 24 MB a row chunk and 1000 tokens."""


@torch.no_grad()
def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    """Write the ids (B, 2048) of the selected tokens, then -1."""
    pages = block_table.shape[1]
    position_L = torch.arange(pages * _PAGE, dtype=torch.int32, device=seq_lens.device)
    topk_indices.fill_(-1)
    for start in range(0, block_table.shape[0], _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        table_BP, lengths_B1 = block_table[part], seq_lens[part, None]
        if position_L.numel() <= _TOPK:
            place_BK = position_L.expand(table_BP.shape[0], -1)
        else:
            scores_BL = _scores(q_index_fp8[part], k_index_cache_fp8, weights[part], table_BP)
            scores_BL.masked_fill_(position_L >= lengths_B1, -torch.inf)
            place_BK = scores_BL.topk(_TOPK, dim=1, sorted=False).indices
        page_BK = table_BP.gather(1, (place_BK // _PAGE).long())
        token_BK = page_BK * _PAGE + place_BK % _PAGE
        token_BK = token_BK.masked_fill(place_BK >= lengths_B1, -1)
        topk_indices[part, : token_BK.shape[1]] = token_BK


def _scores(q_BHD, cache, weights_BH, table_BP):
    safe_BP = table_BP.clamp(0, cache.shape[0] - 1)
    raw_BPX = cache.view(cache.shape[0], -1).view(torch.uint8)[safe_BP]
    keys_BPX = raw_BPX[..., : _PAGE * _DIM].contiguous().view(torch.float8_e4m3fn)
    scales_BPX = raw_BPX[..., _PAGE * _DIM :].contiguous().view(torch.float32)
    keys_BLD = keys_BPX.reshape(table_BP.shape[0], -1, _DIM).float()
    heads_BHL = torch.bmm(q_BHD.float(), keys_BLD.transpose(1, 2)).relu_()
    sums_B1L = torch.bmm(weights_BH[:, None], heads_BHL)
    return sums_B1L[:, 0] * scales_BPX.reshape(table_BP.shape[0], -1)
