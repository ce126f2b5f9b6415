"""What peers of the mixture of experts add to their libraries: routing, packing, layouts, sums.

The libraries need a GPU. Here float32 stands in for their products, with their arguments and
layouts, so that these tests say that our part agrees with the reference, and nothing of theirs.
Triton's interpreter runs our kernels. It halves values that fp8 rounds up to a power of two,
which is why bounds are wide where a peer quantises.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kopt_harness.catalog import Catalog

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

LIBRARIES = """
import importlib, inspect, json, runpy, sys
from types import ModuleType
import torch

folder, peer, tokens, masked, *names = sys.argv[1:]
torch.set_num_threads(1)
reference = runpy.run_path(f"{folder}/reference.py")
inputs = runpy.run_path(f"{folder}/inputs.py")
inputs["draw_static"].__globals__["_POOL"] = 1 << 20
dequantized = reference["_dequantized"]


def module(name, **members):
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = []
    vars(sys.modules[name]).update(members)
    return sys.modules[name]


def scaled(rows, scale):
    rows = rows.view(torch.float8_e4m3fn).float()
    return (rows.view(len(rows), scale.shape[-1], 128) * scale[..., None]).flatten(1)


def product(rows, scale, weights, weight_scale):
    return scaled(rows, scale) @ dequantized(weights, weight_scale).t()


def grouped_masked(a, b, d, masked_m, expected_m):
    assert a[1].stride() == (a[1].shape[1] * a[1].shape[2], 1, a[1].shape[1])
    assert a[0].shape[1] % 128 == 0 and expected_m > 0
    for e, n in enumerate(masked_m.tolist()):
        d[e, :n] = product(a[0][e, :n], a[1][e, :n], b[0][e], b[1][e]).to(d.dtype)


def grouped_contiguous(
    a, b, d, grouped_layout, *, use_psum_layout, expected_m_for_psum_layout
):
    assert use_psum_layout and expected_m_for_psum_layout > 0
    assert a[1].stride() == (1, len(a[0]))
    start = 0
    for e, end in enumerate(grouped_layout.tolist()):
        assert start <= end <= len(d)
        d[start:end] = product(a[0][start:end], a[1][start:end], b[0][e], b[1][e]).to(d.dtype)
        start = -(-end // 128) * 128


def mega_buffer(ranks, experts, capacity, top, hidden, inner, fp8, activation):
    assert (ranks, top, fp8, activation) == (1, 8, True, "swiglu")
    sizes = [capacity * n for n in (hidden, hidden // 32, top * 8, top * 4)]
    kinds = (torch.float8_e4m3fn, torch.float32, torch.int64, torch.float32)

    def slices(buffer):
        parts = zip(buffer.split(sizes), kinds)
        views = [part.view(kind).view(capacity, -1) for part, kind in parts]
        return views + views

    return sum(sizes), slices


def fp8_mega_moe(y, l1_weights, l2_weights, sym_buffer):
    total = torch.zeros(y.shape)
    assert len(y) <= sym_buffer.num_max_tokens_per_rank
    for e, down in enumerate(l2_weights[0]):
        token, choice = (sym_buffer.topk_idx[: len(y)] == e).nonzero(as_tuple=True)
        raw = l1_weights[0][e].view(torch.uint8)
        raw = raw.view(-1, 2, 8, raw.shape[1]).transpose(0, 1).reshape(raw.shape)
        rows, scale = sym_buffer.x[token], sym_buffer.x_sf[token]
        both = product(rows, scale, raw.view(torch.float8_e4m3fn), l1_weights[1][e])
        gate, up = both.chunk(2, 1)
        result = torch.nn.functional.silu(gate) * up @ dequantized(down, l2_weights[1][e]).t()
        total.index_add_(0, token, result * sym_buffer.topk_weights[token, choice][:, None])
    y.copy_(total)


def fused_noaux_tc_routing(
    logits, bias, num_experts, n_group, topk_group, top_k, renormalize, routed_scaling_factor
):
    assert (num_experts, n_group, topk_group, top_k, renormalize) == (256, 8, 4, 8, True)
    expert, score = reference["_selection"](logits, bias)
    weight = score / score.sum(1, keepdim=True) * routed_scaling_factor
    return weight.float(), expert


def fused_moe_blocked_fp8(
    input, input_scale, w1, w1_scale, w2, w2_scale, topk_weights, topk_ids, topk, *,
    out_dtype, expert_offset, num_experts, renormalize, act_func
):
    assert (topk, num_experts, renormalize) == (8, 256, False)
    total = torch.zeros(input.shape)
    for e in range(len(w1)):
        token, choice = (topk_ids - expert_offset == e).nonzero(as_tuple=True)
        if not len(token):
            continue
        rows, scale = input.view(torch.uint8)[token], input_scale[token]
        inner = act_func(product(rows, scale, w1[e], w1_scale[e]).to(out_dtype)).float()
        result = inner @ dequantized(w2[e], w2_scale[e]).t()
        total.index_add_(0, token, result * topk_weights[token, choice][:, None])
    return total.to(out_dtype)


native = ModuleType("_C")
native.get_token_alignment_for_mega_moe = lambda: 384
native.get_symm_buffer_size_for_sm90_mega_moe = mega_buffer
module(
    "deep_gemm",
    _C=native,
    fp8_mega_moe=fp8_mega_moe,
    m_grouped_fp8_fp4_gemm_nt_masked=grouped_masked,
    m_grouped_fp8_gemm_nt_contiguous=grouped_contiguous,
)
for name in ("", ".pytorch", ".pytorch.kernels", ".pytorch.kernels.cuda"):
    module(f"lmdeploy{name}")
place = "lmdeploy.pytorch.kernels.cuda.moe"
module(place)
module(f"{place}.route_noaux_tc", fused_noaux_tc_routing=fused_noaux_tc_routing)
module(f"{place}.blocked_fp8", fused_moe_blocked_fp8=fused_moe_blocked_fp8)

module("peer").__path__ = [f"{folder}/peers/{peer}/solution/python"]
kernel = importlib.import_module("peer.kernel")
if masked == "no":
    kernel._MASKED_TOKENS = 0
order = inspect.signature(reference["precise"]).parameters
axes = {"seq_len": int(tokens), "num_experts": 256, "num_local_experts": 2}
axes |= {"hidden_size": 256, "intermediate_size": 128, "gemm1_out_size": 256}
axes |= {"num_hidden_blocks": 2, "num_intermediate_blocks": 1, "num_gemm1_out_blocks": 2}
found = {}
for seed, name in enumerate(names):
    rng = torch.Generator().manual_seed(seed)
    static = inputs["draw_static"](axes, rng)  # other weights for each call, at any address
    drawn = inputs["GENERATORS"][name].draw(axes, rng) | static
    values = [drawn[key] for key in order]
    (want,) = reference["precise"](*values)
    if "output" in inspect.signature(kernel.run).parameters:
        got = torch.full(want.shape, torch.nan, dtype=torch.bfloat16)
        kernel.run(*values, got)
    else:
        (got,) = kernel.run(*values)
    some = want.norm(dim=1) > 0
    error = (got.float() - want).norm(dim=1)[some] / want.norm(dim=1)[some]
    worst = float(error.max()) if some.any() else 0.0
    found[name] = [worst, int(some.sum()), bool((got[~some] == 0).all())]
print(json.dumps(found))
"""

GENERATORS = ("two-experts", "typical", "none-local")
PEERS = [
    ("deepgemm-mega", True, 1e-2),
    ("deepgemm-mega-lmdeploy", True, 1e-2),
    ("deepgemm-grouped", True, 0.25),
    ("deepgemm-grouped", False, 0.25),
    ("deepgemm-grouped-lmdeploy", True, 0.25),
    ("triton-fused-moe", True, 2e-2),
]


def _interpreted(script: str, *arguments: object) -> Any:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


def _folder(catalog: Catalog) -> Path:
    return catalog.folder(catalog.resolve("moe_fp8"))


@pytest.mark.parametrize(("peer", "masked", "bound"), PEERS)
def test_what_a_peer_adds_agrees_with_the_reference(
    catalog: Catalog, peer: str, *, masked: bool, bound: float
) -> None:
    """Every row, with other weights in each call; zeros for tokens without a local expert."""
    layout = "yes" if masked else "no"
    found = _interpreted(LIBRARIES, _folder(catalog), peer, 9, layout, *GENERATORS)
    assert list(found) == list(GENERATORS)
    for name, (error, rows, zeros) in found.items():
        assert error <= bound, name
        assert zeros, name
        assert (rows > 0) == (name != "none-local")


ROUTING = """
import json, runpy, sys
import torch
folder = sys.argv[1]
reference = runpy.run_path(f"{folder}/reference.py")
inputs = runpy.run_path(f"{folder}/inputs.py")
from lmdeploy.pytorch.kernels.cuda.moe import route_noaux_tc
tuned = route_noaux_tc._fused_noaux_tc_kernel
tuned.configs = tuned.configs[:1]  # nothing to choose from, so nothing is timed
route = runpy.run_path(f"{folder}/peers/deepgemm-mega-lmdeploy/solution/python/routing.py")["route"]
axes = {"seq_len": 33, "num_experts": 256, "num_local_experts": 32}
axes |= {"hidden_size": 256, "intermediate_size": 128, "gemm1_out_size": 256}
axes |= {"num_hidden_blocks": 2, "num_intermediate_blocks": 1, "num_gemm1_out_blocks": 2}
found = {}
for name, generator in inputs["GENERATORS"].items():
    drawn = generator.draw(axes, torch.Generator().manual_seed(5))
    logits, bias = drawn["routing_logits"], drawn["routing_bias"]
    expert, score = reference["_selection"](logits, bias)
    weight = 2.5 * score / score.sum(1, keepdim=True)
    want, got = (torch.zeros(33, 256, dtype=torch.float64) for _ in range(2))
    want.scatter_(1, expert, weight)
    expert, weight = route(logits, bias, 2.5)
    got.scatter_(1, expert, weight.double())
    found[name] = float((got - want).abs().max())
print(json.dumps(found))
"""


def test_lmdeploy_routes_as_the_operator_does(catalog: Catalog) -> None:
    """Its own Triton kernel, on every generator: the same experts, the same weights."""
    if importlib.util.find_spec("lmdeploy") is None:
        pytest.skip("lmdeploy is not installed")
    found = _interpreted(ROUTING, _folder(catalog))
    assert len(found) >= 9
    for name, error in found.items():
        assert error <= 1e-5, name
