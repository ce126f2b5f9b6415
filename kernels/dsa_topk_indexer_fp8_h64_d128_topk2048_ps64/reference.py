"""DeepSeek sparse attention, selection of tokens: the reference.

Shape suffixes: B rows (sequences), H heads, D width of a head, P pages, L tokens.

Scores are formed in float64, in which products of e4m3 values and a float32 scale are
exact, so that only true ties are ties. Among equal scores the earlier token wins.
"""

import torch

_TOPK = 2048
_PAGE = 64
_DIM = 128
_ROWS_AT_ONCE = 4
"""Bounds the temporaries: about 10 MB a row at the longest context of the workloads."""


def _keys(pages):
    """Float64 keys (..., P * 64, 128) of gathered pages (..., P, 64, 1, 132) of bytes."""
    *lead, count = pages.shape[:-3]
    raw_P = pages.reshape(*lead, count, _PAGE * (_DIM + 4)).view(torch.uint8)
    values = raw_P[..., : _PAGE * _DIM].contiguous().view(torch.float8_e4m3fn)
    scales = raw_P[..., _PAGE * _DIM :].contiguous().view(torch.float32)
    keys = values.double().view(*lead, count * _PAGE, _DIM)
    return keys.mul_(scales.double().view(*lead, count * _PAGE, 1))


def _scores(q_BHD, weights_BH, keys_BLD):
    heads_BHL = torch.relu(q_BHD.double() @ keys_BLD.transpose(1, 2))
    return (weights_BH.double()[:, None] @ heads_BHL)[:, 0]


@torch.no_grad()
def precise(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table):
    """The selection; integers, so that nothing is rounded.

    Args:
        q_index_fp8: (B, 64, 128) float8_e4m3fn queries.
        k_index_cache_fp8: (pages, 64, 1, 132) int8: 64 x 128 e4m3 values, then 64 float32
            scales in each page.
        weights: (B, 64) float32 weight of each head.
        seq_lens: (B,) int32 tokens of each row.
        block_table: (B, P) int32 pages of each row; entries past its tokens are ignored.

    Returns:
        (B, 2048) int32 token ids by falling score, then -1.
    """
    rows = seq_lens.shape[0]
    selected = torch.full((rows, _TOPK), -1, dtype=torch.int32, device=seq_lens.device)
    longest = int(seq_lens.max()) if rows else 0
    if longest == 0:
        return (selected,)
    last_page = k_index_cache_fp8.shape[0] - 1
    table_BP = block_table[:, : -(-longest // _PAGE)].long().clamp(0, last_page)
    position_L = torch.arange(table_BP.shape[1] * _PAGE, device=seq_lens.device)
    count = min(_TOPK, position_L.numel())
    for start in range(0, rows, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        keys_BLD = _keys(k_index_cache_fp8[table_BP[part]])
        scores_BL = _scores(q_index_fp8[part], weights[part], keys_BLD)
        beyond_BL = position_L >= seq_lens[part, None]
        scores_BL.masked_fill_(beyond_BL, -torch.inf)
        best = scores_BL.sort(dim=1, descending=True, stable=True).indices[:, :count]
        token = table_BP[part].gather(1, best // _PAGE) * _PAGE + best % _PAGE
        token.masked_fill_(best >= seq_lens[part, None], -1)
        selected[part, :count] = token.to(torch.int32)
    return (selected,)


@torch.no_grad()
def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table):
    """The selection; arguments and result as for ``precise``."""
    return precise(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table)
