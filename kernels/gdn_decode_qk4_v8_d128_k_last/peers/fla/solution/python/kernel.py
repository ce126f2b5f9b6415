"""Baseline: the fused recurrent gated delta rule of flash-linear-attention (fla-core 0.6.0).

Target: NVIDIA GPUs with Triton. One Triton kernel over batch, value heads and tiles of 8 rows of a
state; gates, sigmoid and grouped value heads are computed in it, from the operator's own inputs.
It writes a new state, V first and K last, as the operator wants it. Bound: memory, as any other.
"""

from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule


def run(q, k, v, state, A_log, a, dt_bias, b, scale):
    """One step; returns output (B, 1, 8, 128) and the new state (B, 8, 128 V, 128 K)."""
    return fused_recurrent_gated_delta_rule(
        q,
        k,
        v,
        g=a,
        beta=b,
        scale=scale or None,  # None is 1 / sqrt(K) there
        initial_state=state,
        output_final_state=True,
        use_qk_l2norm_in_kernel=False,
        use_gate_in_kernel=True,
        A_log=A_log,
        dt_bias=dt_bias,
        use_beta_sigmoid_in_kernel=True,
        state_v_first=True,
    )
