"""Seeded inputs of a gated DeltaNet decoding step.

``typical`` follows a trained model: q, k and v are SiLU activations (behind a short
convolution in the model, independent here), q and k of unit length; decay rates
log-uniform in [1, 16] and step sizes log-uniform in [1e-3, 1e-1] as the layer is
initialised; the state is what a few dozen decayed writes leave behind.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

_WRITES = 32
"""Rank of a synthetic state: the past writes that have not decayed away."""


class Generator(NamedTuple):
    """A named distribution of inputs."""

    name: str
    kind: str
    """``contest`` (real use) or ``stress``."""
    draw: Callable
    """``draw(axes, rng)`` with all axes bound; inputs in call order, on ``rng.device``."""


def _normal(rng, *shape):
    return torch.randn(*shape, generator=rng, device=rng.device)


def _uniform(rng, *shape, low=0.0, high=1.0):
    return low + (high - low) * torch.rand(*shape, generator=rng, device=rng.device)


def _activated(rng, *shape):
    """What leaves a convolution with SiLU: few large positive values, many small negative."""
    return F.silu(_normal(rng, *shape) * 1.5)


def _unit(rng, *shape):
    return F.normalize(_activated(rng, *shape), dim=-1).to(torch.bfloat16)


def _state(rng, *lead, width):
    """Decayed writes v k^T with unit keys: elements of about 0.1 to 0.5, of rank ``_WRITES``."""
    keys = F.normalize(_activated(rng, *lead, _WRITES, width), dim=-1)
    values = _activated(rng, *lead, width, _WRITES)
    age = torch.arange(_WRITES, device=rng.device, dtype=torch.float32)
    keep = _uniform(rng, *lead, 1, 1, low=0.85, high=0.999) ** age
    strength = torch.sigmoid(_normal(rng, *lead, 1, _WRITES))
    return (values * (keep * strength)) @ keys


def _gates(rng, heads):
    """A_log and dt_bias as the layer is initialised, with softplus(dt_bias) = step size."""
    a_log = torch.log(_uniform(rng, heads, low=1.0, high=16.0))
    step = torch.exp(_uniform(rng, heads, low=math.log(1e-3), high=math.log(1e-1)))
    return a_log, step + torch.log(-torch.expm1(-step))


def _typical(axes, rng):
    batch, seq, width = axes["batch_size"], axes["seq_len"], axes["head_size"]
    heads = axes["num_v_heads"]
    a_log, dt_bias = _gates(rng, heads)
    return {
        "q": _unit(rng, batch, seq, axes["num_q_heads"], width),
        "k": _unit(rng, batch, seq, axes["num_k_heads"], width),
        "v": _activated(rng, batch, seq, heads, width).to(torch.bfloat16),
        "state": _state(rng, batch, heads, width=width),
        "A_log": a_log,
        "a": _normal(rng, batch, seq, heads).to(torch.bfloat16),
        "dt_bias": dt_bias,
        "b": _normal(rng, batch, seq, heads).to(torch.bfloat16),
        "scale": 1.0 / math.sqrt(width),
    }


def _extreme_gates(axes, rng):
    """Decays from total to none and writes from nothing to all, around softplus' bends."""
    inputs = _typical(axes, rng)
    shape = inputs["a"].shape
    inputs["a"] = _uniform(rng, *shape, low=-40.0, high=40.0).to(torch.bfloat16)
    inputs["b"] = _uniform(rng, *shape, low=-30.0, high=30.0).to(torch.bfloat16)
    inputs["A_log"] = _uniform(rng, *inputs["A_log"].shape, low=-12.0, high=4.0)
    inputs["dt_bias"] = _uniform(rng, *inputs["dt_bias"].shape, low=-8.0, high=8.0)
    inputs["scale"] = 1.0
    return inputs


def _late_extremes(axes, rng):
    """Gates that begin as in real use and end anywhere: a look at the first ones misleads."""
    inputs = _typical(axes, rng)
    extreme = _extreme_gates(axes, rng)
    for name in ("a", "b"):
        heads = inputs[name].numel()
        inputs[name].view(-1)[heads // 4 + 1 :] = extreme[name].view(-1)[heads // 4 + 1 :]
    return inputs


def _large_state(axes, rng):
    """States of very different magnitude in one batch, values far below them, full rank."""
    inputs = _typical(axes, rng)
    lead = inputs["state"].shape[:2]
    magnitude = torch.exp2(_uniform(rng, *lead, 1, 1, low=-10.0, high=10.0).round())
    inputs["state"] = _normal(rng, *inputs["state"].shape) * magnitude
    inputs["scale"] = 0.25
    return inputs


def _zero_state(axes, rng):
    """The first token after an empty context."""
    inputs = _typical(axes, rng)
    inputs["state"] = torch.zeros_like(inputs["state"])
    return inputs


def _no_state(axes, rng):
    """The same, with the optional state left out."""
    return _typical(axes, rng) | {"state": None}


def _long_memory(axes, rng):
    """Next to no decay, weak writes, the default scale: an old state that is dropped shows."""
    inputs = _typical(axes, rng)
    inputs["dt_bias"] = torch.full_like(inputs["dt_bias"], -12.0)
    inputs["b"] = (inputs["b"].float() - 4.0).to(torch.bfloat16)
    inputs["scale"] = 0.0
    return inputs


def _tiny_values(axes, rng):
    """Outputs far below the contest's absolute tolerance: zeros in their place show."""
    inputs = _typical(axes, rng)
    inputs["v"] = inputs["v"] * 2.0**-12
    inputs["state"] = inputs["state"] * 2.0**-12
    return inputs


def _huge_values(axes, rng):
    """States and values beyond the range of half precision: float16 anywhere shows."""
    inputs = _typical(axes, rng)
    inputs["v"] = inputs["v"] * 2.0**18
    inputs["state"] = inputs["state"] * 2.0**20
    return inputs


GENERATORS = {
    generator.name: generator
    for generator in (
        Generator("typical", "contest", _typical),
        Generator("extreme-gates", "stress", _extreme_gates),
        Generator("late-extremes", "stress", _late_extremes),
        Generator("large-state", "stress", _large_state),
        Generator("zero-state", "stress", _zero_state),
        Generator("no-state", "stress", _no_state),
        Generator("long-memory", "stress", _long_memory),
        Generator("tiny-values", "stress", _tiny_values),
        Generator("huge-values", "stress", _huge_values),
    )
}


def _negate(rows, pick):
    """Some rows of (N, W) in place; one that is picked twice is negated once."""
    rows[pick] = -rows[pick]


def vary(values, expected, axes, rng):
    """Changes a small random part of a set in place, and what is expected of it.

    Three identities, all of them exact because only signs change: a negated query negates
    what it reads; a negated key with the negated values written along it changes neither
    output; and a sign for each row of a state, with the same sign for the value that the row
    is corrected to, carries over to both outputs. The first two are applied to an eighth of
    the queries and keys each, the third to one sequence.

    Args:
        values: inputs by name.
        expected: unrounded outputs by name.
        axes: all axes, bound.
        rng: source of randomness, on the device of the inputs.
    """
    batch, heads, width = axes["batch_size"], axes["num_v_heads"], axes["head_size"]
    pairs = batch * axes["num_q_heads"]
    if pairs == 0:
        return
    pick = torch.randint(pairs, (2, max(1, pairs // 8)), generator=rng, device=rng.device)
    _negate(values["q"].view(pairs, -1), pick[0])
    _negate(expected["output"].view(pairs, -1), pick[0])  # each query serves adjacent heads
    _negate(values["k"].view(pairs, -1), pick[1])
    _negate(values["v"].view(pairs, -1), pick[1])

    chosen = torch.randint(batch, (1,), generator=rng, device=rng.device)
    sign = 1.0 - 2.0 * torch.randint(2, (heads, width), generator=rng, device=rng.device)
    sign[0, 0] = -1.0
    for tensor in (values["v"], expected["output"]):
        tensor[chosen] *= sign.to(tensor.dtype)
    for tensor in (values["state"], expected["new_state"]):
        if tensor is not None:
            tensor[chosen] *= sign[..., None]
