"""Least work of a decoding step, from its axes alone."""


def compulsory_bytes(axes):
    """Bytes that must cross the memory bus: every input read once, every output written once."""
    batch = axes["batch_size"] * axes["seq_len"]
    width = axes["head_size"]
    q_heads, k_heads, v_heads = axes["num_q_heads"], axes["num_k_heads"], axes["num_v_heads"]
    state = 4 * batch * v_heads * width * width
    qkv = 2 * batch * (q_heads + k_heads + v_heads) * width
    output = 2 * batch * v_heads * width
    gates = 2 * 2 * batch * v_heads + 2 * 4 * v_heads
    return 2 * state + qkv + output + gates


def flops(axes):
    """Multiplications and additions of S k and S q (2 each), the decay (1), the update (2)."""
    batch = axes["batch_size"] * axes["seq_len"]
    return 7 * batch * axes["num_v_heads"] * axes["head_size"] ** 2
