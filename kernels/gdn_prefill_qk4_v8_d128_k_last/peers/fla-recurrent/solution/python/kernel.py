"""Baseline: the fused recurrent gated delta rule of flash-linear-attention (fla-core 0.6.0).

Target: NVIDIA GPUs with Triton. One Triton kernel that goes token by token over batch, value heads
and tiles of 8 rows of a state. Bound: latency of the recurrence; good for few tokens only.
"""

from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule


def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale):
    """All sequences; returns output (T, 8, 128) and the new states (N, 8, 128 V, 128 K)."""
    output, new_state = fused_recurrent_gated_delta_rule(
        q[None],
        k[None],
        v[None],
        g=a[None],
        beta=b[None],
        scale=scale or None,  # None is 1 / sqrt(K) there
        initial_state=state,
        output_final_state=True,
        use_qk_l2norm_in_kernel=False,
        use_gate_in_kernel=True,
        A_log=A_log,
        dt_bias=dt_bias,
        use_beta_sigmoid_in_kernel=True,
        state_v_first=True,
        cu_seqlens=cu_seqlens,
    )
    return output[0], new_state
