"""Least work of a prefill, from its axes alone."""


def compulsory_bytes(axes):
    """Bytes that must cross the memory bus: every input read once, every output written once."""
    tokens, seqs, width = axes["total_seq_len"], axes["num_seqs"], axes["head_size"]
    q_heads, k_heads, v_heads = axes["num_q_heads"], axes["num_k_heads"], axes["num_v_heads"]
    state = 4 * seqs * v_heads * width * width
    qkv = 2 * tokens * (q_heads + k_heads + v_heads) * width
    output = 2 * tokens * v_heads * width
    gates = 2 * 2 * tokens * v_heads + 2 * 4 * v_heads
    return 2 * state + qkv + output + gates + 8 * axes["len_cu_seqlens"]


def flops(axes):
    """The recurrence token by token: S k and S q (2 each), the decay (1), the update (2).

    No known form needs fewer. Chunked forms, which turn it into matrix products, spend
    about 1.5 times as many at 64 tokens a chunk.
    """
    return 7 * axes["total_seq_len"] * axes["num_v_heads"] * axes["head_size"] ** 2
