"""Least work of the mixture-of-experts layer, from its axes alone.

The axes do not hold the routing. Assumed is uniform routing of 8 of 256 experts per token:
the device's share of assignments is T, and 32 * (1 - (1 - 8 / 256)^T) of its experts have a
token. The ``typical`` inputs are drawn so that they have about as many or more of both.
"""

_TOP = 8


def active_experts(axes):
    """Expected number of local experts with at least one token."""
    chance = 1.0 - _TOP / axes["num_experts"]
    return axes["num_local_experts"] * (1.0 - chance ** axes["seq_len"])


def local_assignments(axes):
    """Expected number of (token, local expert) pairs."""
    return axes["seq_len"] * _TOP * axes["num_local_experts"] / axes["num_experts"]


def compulsory_bytes(axes):
    """Bytes that must cross the memory bus.

    Weights and scales of the active experts, logits and bias, and the output of every token.
    Tokens are read only where they have a local expert: as many as have at least one under
    uniform routing to the device, 1 - (1 - 32 / 256)^8 of them.
    """
    tokens, hidden, inner = axes["seq_len"], axes["hidden_size"], axes["intermediate_size"]
    blocks = axes["num_hidden_blocks"]
    scales = (axes["num_gemm1_out_blocks"] + axes["num_intermediate_blocks"]) * blocks
    expert = (axes["gemm1_out_size"] + inner) * hidden + 4 * scales
    share = 1.0 - (1.0 - axes["num_local_experts"] / axes["num_experts"]) ** _TOP
    read = share * tokens * (hidden + 4 * blocks)
    routing = 4 * tokens * axes["num_experts"] + 2 * axes["num_experts"]
    return int(active_experts(axes) * expert + read) + routing + 2 * tokens * hidden


def flops(axes):
    """Two per weight and assignment, four per intermediate element for SwiGLU."""
    hidden, inner = axes["hidden_size"], axes["intermediate_size"]
    per_pair = 2 * hidden * (axes["gemm1_out_size"] + inner) + 4 * inner
    return int(local_assignments(axes) * per_pair)
