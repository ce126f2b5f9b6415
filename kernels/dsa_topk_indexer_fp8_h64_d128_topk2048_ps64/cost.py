"""Least work of the token selection, from its axes alone.

The axes do not hold the sequence lengths. Assumed is what the ``typical`` inputs have: where
the block table has room for more than 2048 tokens, half of the rows (rounded up) are long,
counted at ``max_num_pages`` * 64 tokens (up to 63 too many each), and the others need no
scores, since they return all of their tokens; otherwise no row needs any.
"""


def _long_rows(axes):
    if axes["max_num_pages"] * axes["page_size"] <= axes["topk"]:
        return 0
    return (axes["batch_size"] + 1) // 2


def compulsory_bytes(axes):
    """Bytes that must cross the memory bus.

    Long rows read their pages (keys and scales), query, weights and block table. Every row
    reads its length and writes 2048 indices; the block table entries of short rows, at most
    128 bytes each, are left out.
    """
    rows, pages = axes["batch_size"], axes["max_num_pages"]
    page = axes["page_size"] * axes["kv_cache_num_heads"] * axes["head_dim_with_scale"]
    query = axes["num_index_heads"] * (axes["index_head_dim"] + 4)
    long_row = pages * (page + 4) + query
    return _long_rows(axes) * long_row + rows * (4 + 4 * axes["topk"])


def flops(axes):
    """Two per element of query times key, three per head and token for relu and weighting."""
    tokens = _long_rows(axes) * axes["max_num_pages"] * axes["page_size"]
    return tokens * axes["num_index_heads"] * (2 * axes["index_head_dim"] + 3)
