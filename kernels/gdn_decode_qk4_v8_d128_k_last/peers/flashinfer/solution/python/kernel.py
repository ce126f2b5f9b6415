"""Baseline: FlashInfer's gated delta rule for decoding, float32 states (0.6.18.post1, CuTe DSL).

Target: Hopper and later. The kernel updates a state in place, and the operator keeps its input, so
the state is copied to its output first. The copy is a second kernel inside the timed span. Bound:
memory; with the copy about twice the bytes.
"""

from flashinfer.gdn_decode import gated_delta_rule_decode_pretranspose


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    """One step; writes output (B, 1, 8, 128) and new_state (B, 8, 128 V, 128 K)."""
    if state is None:
        new_state.zero_()
    else:
        new_state.copy_(state)
    gated_delta_rule_decode_pretranspose(
        q,
        k,
        v,
        new_state,
        A_log,
        a,
        dt_bias,
        b,
        scale=scale or None,  # None is 1 / sqrt(K) there
        output=output,
        use_qk_l2norm=False,  # its default is True
    )
