"""Least work of the sparse attention, from its axes alone.

The axes do not say how many places of the selection are filled. Assumed is that all are and
that no two query tokens share a cached token; the ``typical`` inputs have 1 hole in 128.
"""


def _width(axes):
    return axes["head_dim_ckv"] + axes["head_dim_kpe"]


def compulsory_bytes(axes):
    """Bytes that must cross the memory bus: selected tokens, queries, ids, output and lse."""
    tokens, heads = axes["num_tokens"], axes["num_qo_heads"]
    gathered = 2 * axes["topk"] * _width(axes) + 4 * axes["topk"]
    queries = 2 * heads * _width(axes)
    results = 2 * heads * axes["head_dim_ckv"] + 4 * heads
    return tokens * (gathered + queries + results)


def flops(axes):
    """Two per element of query times key and of weight times latent, four for the softmax."""
    per_place = 2 * _width(axes) + 2 * axes["head_dim_ckv"] + 4
    return axes["num_tokens"] * axes["num_qo_heads"] * axes["topk"] * per_place
