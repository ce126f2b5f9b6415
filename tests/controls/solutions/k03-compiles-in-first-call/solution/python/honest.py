"""A correct gated DeltaNet decoding step: the honest half of a solution."""

import torch


def step(q, k, v, state, log_rate, a, dt_bias, b, scale):  # noqa: ANN201
    """Read-out (B, 1, H, V) and state after the step (B, H, V, K), both float32."""
    batch, _, heads, width = v.shape
    group = heads // k.shape[2]
    rate = torch.exp(log_rate) * torch.nn.functional.softplus(a.float() + dt_bias)
    decay = torch.exp(-rate).view(batch, heads, 1, 1)
    beta = torch.sigmoid(b.float()).view(batch, heads, 1)
    keys = k[:, 0].float().repeat_interleave(group, 1)
    queries = q[:, 0].float().repeat_interleave(group, 1)
    old = v.new_zeros(batch, heads, width, width, dtype=torch.float32)
    old = old if state is None else state * decay
    held = (old @ keys[..., None])[..., 0]
    delta = beta * (v[:, 0].float() - held)
    fresh = old + delta[..., None] * keys[..., None, :]
    read = (scale or width**-0.5) * (fresh @ queries[..., None])[..., 0]
    return read[:, None], fresh


def write(*arguments) -> None:  # noqa: ANN002
    """Inputs, then outputs, as a solution gets them."""
    *inputs, output, new_state = arguments
    read, fresh = step(*inputs)
    output.copy_(read)
    new_state.copy_(fresh)


def answer(*inputs) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN002
    """Both outputs in their declared types."""
    read, fresh = step(*inputs)
    return read.bfloat16(), fresh
