"""Baseline: DeepGEMM's fused mixture-of-experts kernel (sgl-deep-gemm 0.1.4.post1, Hopper).

Target: Hopper. Three steps: routing (``routing.py``), one Triton kernel of this project that puts
inputs where the library wants them (``prepare.py``), and the library's kernel, which does
everything else. Bound: reading the active experts' weights; the gaps between launches count.
"""

from types import SimpleNamespace

import deep_gemm
import torch
from deep_gemm import fp8_mega_moe

from .prepare import Prepared
from .routing import TOP, route

_BUFFERS = {}
"""By capacity and shape: the library's working memory, which it leaves as it found it."""
_PREPARED = {}
"""By shape: weights with gate and up rows in turn; every call checks them on the device."""


def _tensor(part):
    return part if isinstance(part, torch.Tensor) else torch.from_dlpack(part)


class _Buffer:
    """What the library calls a symmetric buffer, for one device and so without a process group."""

    def __init__(self, capacity, experts, hidden, inner, device):
        native = deep_gemm._C  # noqa: SLF001  the public class wants a process group
        size, slices = native.get_symm_buffer_size_for_sm90_mega_moe(
            1, experts, capacity, TOP, hidden, inner, True, "swiglu"
        )
        self.buffer = torch.zeros(size, dtype=torch.int8, device=device)
        x, x_sf, topk_idx, topk_weights, *_ = map(_tensor, slices(self.buffer))
        self.x, self.x_sf = x.view(torch.uint8), x_sf.view(torch.float32)
        self.topk_idx, self.topk_weights = topk_idx, topk_weights
        self.handle = SimpleNamespace(buffer_ptrs=[self.buffer.data_ptr()])
        self.group = SimpleNamespace(rank=lambda: 0)
        self.num_max_tokens_per_rank = capacity
        self.num_experts = experts
        self.num_topk = TOP


def _buffer(tokens, experts, hidden, inner, device):
    """The buffer for so many tokens: made at the first call, as a server does at its start."""
    step = deep_gemm._C.get_token_alignment_for_mega_moe()  # noqa: SLF001
    key = (-(-tokens // step) * step, experts, hidden, inner, device)
    if key not in _BUFFERS:
        _BUFFERS[key] = _Buffer(*key)
    return _BUFFERS[key]


def run(
    routing_logits,
    routing_bias,
    hidden_states,
    hidden_states_scale,
    gemm1_weights,
    gemm1_weights_scale,
    gemm2_weights,
    gemm2_weights_scale,
    local_expert_offset,
    routed_scaling_factor,
    output,
):
    """Writes the weighted sum of the local experts (T, H)."""
    experts, hidden, inner = gemm2_weights.shape
    device = hidden_states.device
    buffer = _buffer(hidden_states.shape[0], experts, hidden, inner, device)
    key = (experts, hidden, inner, device)
    if key not in _PREPARED:
        _PREPARED[key] = Prepared(gemm1_weights, gemm1_weights_scale)
    prepared = _PREPARED[key]
    expert, weight = route(routing_logits, routing_bias, routed_scaling_factor)
    prepared.update(
        buffer,
        hidden_states,
        hidden_states_scale,
        expert,
        weight,
        gemm1_weights,
        gemm1_weights_scale,
        local_expert_offset,
    )
    fp8_mega_moe(
        output,
        (prepared.weights, prepared.scale),
        (gemm2_weights, gemm2_weights_scale),
        buffer,
    )
