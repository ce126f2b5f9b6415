"""Kernels that compute nothing, or not enough: what inputs must tell from a right answer.

Each is made of what a cheat or a broken kernel has at hand: constants, its inputs, answers
to other inputs, and right answers with one thing missing. ``null_kernels`` yields their
outputs, ``differs`` says whether such an output is wrong at all: a null kernel that is
right by chance, as zeros for a token without experts, shows nothing.

A definition adds its own in ``check.py`` (``null_kernels``), and where two outputs can be
the same answer without being equal it says so there (``same_answer``). For torch alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..schema import ITEM_BYTES, Definition
from ._blocks import as_rows, blocks
from .strict import _FLOOR, block_rms

__all__ = ["ROUNDED", "Given", "NullOutputs", "declared", "differs", "null_kernels"]

ROUNDED = "rounded-"
"""Beginning of the names of kernels that are right but for the precision of their outputs."""
_ROUND_THROUGH = ("bfloat16", "float8_e4m3fn")
_KEPT_SHARE = 0.9
_SCALE = 1.29
_WRONG_BY = 10.0
"""One element is wrong by so many times ``rel``: two and a half times what one may be."""
_POISON_INT = 1_000_000_000
_POISON_BYTE = 0x5A
_CERTAIN = 2.0
"""Times the floor of the strict rule: nearer than that it may take a row for zero."""


class NullOutputs(NamedTuple):
    """What one null kernel leaves."""

    name: str
    """Of the kernel, and behind a colon the output or axis that is wrong."""
    outputs: dict[str, Any]
    """In the declared form."""


@dataclass(frozen=True)
class Given:
    """What null kernels are made of."""

    definition: Definition
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    """Unrounded."""
    right: Mapping[str, Any]
    """The same in the declared types."""
    others: Mapping[str, Mapping[str, Any]]
    """Right answers to other input sets, in the declared types, by what they are called."""
    rng: Any
    """A ``torch.Generator`` on the host."""

    def but(self, kernel: str, name: str, wrong: Any) -> NullOutputs:
        """All outputs right but one: harder to recognise than several that are wrong."""
        return NullOutputs(f"{kernel}:{name}", {**self.right, name: wrong})


def declared(definition: Definition, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Unrounded outputs in the types that the definition declares."""
    import torch

    return {
        name: expected[name].to(getattr(torch, spec.dtype))
        for name, spec in definition.outputs.items()
    }


def null_kernels(given: Given, comparator: Any = None) -> Iterator[NullOutputs]:
    """All null kernels that these outputs allow, one at a time, so that memory stays small.

    Args:
        given: inputs, right answers, answers to other inputs.
        comparator: the definition's ``check.py``; its ``null_kernels`` come last.
    """
    yield from _constants(given)
    yield from _passed_through(given)
    yield from _of_other_sets(given)
    yield from _incomplete(given)
    yield from _permuted(given)
    for name, tensor in given.right.items():
        if tensor.dtype.is_floating_point and tensor.numel():
            yield from _nearly_right(given, name)
    own = getattr(comparator, "null_kernels", None)
    if own is not None:
        for name, outputs in own(given.inputs, given.right, given.rng):
            yield NullOutputs(name, outputs)


def differs(given: Given, outputs: Mapping[str, Any], comparator: Any = None) -> bool:
    """Whether an answer is another than the right one, by what strictness calls equal.

    That is: values other than those of the rounded reference, further apart than what the
    strict rule takes for zero anyway, and no other form of the same answer.
    """
    same = getattr(comparator, "same_answer", None)
    if same is not None:
        return not same(given.inputs, given.right, outputs)
    return any(_output_differs(given, name, outputs[name]) for name in given.right)


def _output_differs(given: Given, name: str, actual: Any) -> bool:
    import torch

    right = given.right[name]
    if actual is right or not right.numel():
        return False
    if not right.dtype.is_floating_point:
        return not torch.equal(right, actual)
    floor = _CERTAIN * _floor(given, name)
    for block in blocks(as_rows(right), as_rows(actual)):
        one, other = block.expected.float(), block.actual.float()
        apart = (one - other).abs_().masked_fill_(one == other, 0.0)
        # A NaN compares as false, so it counts as different.
        if not bool((apart <= 4.0 * floor).all()):
            return True
        if bool((apart.norm(dim=1) > floor * math.sqrt(apart.shape[1])).any()):
            return True
    return False


def _floor(given: Given, name: str) -> float:
    """Per element: what the strict rule takes for zero in this output."""
    exact = given.expected[name]
    finite = exact[exact.isfinite()] if not bool(exact.isfinite().all()) else exact
    if not finite.numel():
        return 0.0
    rms = float(finite.norm()) / math.sqrt(finite.numel())
    return given.definition.kopt.strict[name].rel * _FLOOR * rms


def _constants(given: Given) -> Iterator[NullOutputs]:
    for name, tensor in given.right.items():
        yield given.but("zeros", name, tensor.new_zeros(tensor.shape))
        yield given.but("constant", name, _mean_everywhere(tensor))


def _mean_everywhere(tensor: Any) -> Any:
    numbers = tensor.float()
    finite = numbers[numbers.isfinite()]
    mean = float(finite.double().mean()) if finite.numel() else 0.0
    return tensor.new_full(tensor.shape, mean if tensor.dtype.is_floating_point else round(mean))


def _passed_through(given: Given) -> Iterator[NullOutputs]:
    """Every input that has as many elements as an output."""
    for name, tensor in given.right.items():
        for source, value in given.inputs.items():
            if tensor.numel() and getattr(value, "numel", int)() == tensor.numel():
                copied = value.reshape(tensor.shape).to(tensor.dtype)
                yield given.but(f"input-{source}", name, copied)


def _of_other_sets(given: Given) -> Iterator[NullOutputs]:
    for called, outputs in given.others.items():
        for name, tensor in outputs.items():
            yield given.but(called, name, tensor)


def _poisoned(tensor: Any) -> Any:
    if tensor.dtype.is_floating_point:
        return tensor.new_full(tensor.shape, math.nan)
    poison = _POISON_BYTE if ITEM_BYTES[str(tensor.dtype)[6:]] == 1 else _POISON_INT
    return tensor.new_full(tensor.shape, poison)


def _incomplete(given: Given) -> Iterator[NullOutputs]:
    """Outputs, or the last tenth of their rows, that nobody wrote to."""
    for name, tensor in given.right.items():
        yield given.but("missing", name, _poisoned(tensor))
        for rest in ("poison", "zeros"):
            yield given.but(f"first-rows-then-{rest}", name, _cut_off(tensor, rest))


def _cut_off(tensor: Any, rest: str) -> Any:
    cut = tensor.clone()
    rows = as_rows(cut)
    tail = rows[int(_KEPT_SHARE * rows.shape[0]) :]
    tail.copy_(_poisoned(tail) if rest == "poison" else tail.new_zeros(()))
    return cut


def _permuted(given: Given) -> Iterator[NullOutputs]:
    """All outputs that have an axis are rolled along it, as with a wrong index in a kernel."""
    specs = given.definition.outputs
    axes = {axis for spec in specs.values() for axis in (spec.shape or ())[:-1]}
    for axis in sorted(axes):
        rolled = dict(given.right)
        for name, spec in specs.items():
            shape = spec.shape or ()
            if axis in shape:
                rolled[name] = given.right[name].roll(1, dims=shape.index(axis))
        yield NullOutputs(f"permuted:{axis}", rolled)


def _nearly_right(given: Given, name: str) -> Iterator[NullOutputs]:
    """An output of floating-point numbers that is right in most of what it holds."""
    tensor, exact = given.right[name], given.expected[name]
    made = {
        "scaled": (tensor.float() * _SCALE).to(tensor.dtype),
        "one-element-wrong": _one_wrong(given, name),
        "tiny-rows-as-zeros": _without_tiny_rows(given, name),
    }
    if not bool(exact.isfinite().all()):
        made["infinities-as-zeros"] = tensor.where(exact.isfinite(), 0.0)
    for through in _ROUND_THROUGH:
        if ITEM_BYTES[through] < tensor.dtype.itemsize:
            made[f"{ROUNDED}{through}"] = _rounded(exact, through).to(tensor.dtype)
    for kernel, wrong in made.items():
        yield given.but(kernel, name, wrong)


def _one_wrong(given: Given, name: str) -> Any:
    """One finite element is off by ten times the bound, relative to itself and its row or block."""
    import torch

    exact = as_rows(given.expected[name]).float()
    wrong = given.right[name].clone()
    usable = exact.isfinite()
    rows = usable.any(dim=1).nonzero()[:, 0]
    if not rows.numel():
        return wrong
    row = int(rows[torch.randint(rows.numel(), (1,), generator=given.rng).to(rows.device)])
    places = usable[row].nonzero()[:, 0]
    place = int(places[torch.randint(places.numel(), (1,), generator=given.rng).to(places.device)])
    finite = exact[row][usable[row]].double()
    rms = float(finite.norm()) / math.sqrt(finite.numel())
    value = float(exact[row, place])
    bound = given.definition.kopt.strict[name]
    if bound.block and exact.shape[1] % bound.block == 0:
        one = exact[row : row + 1].double()
        whole = block_rms(one.where(one.isfinite(), 0.0), one.isfinite(), bound.block)
        rms = max(rms, float(whole[0, place]))
    off = _WRONG_BY * (bound.rel * (abs(value) + rms) + _floor(given, name))
    as_rows(wrong)[row, place] = value + math.copysign(off, value)
    return wrong


def _without_tiny_rows(given: Given, name: str) -> Any:
    """Rows that an absolute tolerance cannot tell from zeros; else the smallest one."""
    import torch

    exact = as_rows(given.expected[name])
    size = torch.linalg.vector_norm(exact, dim=1).double() / math.sqrt(exact.shape[1])
    real = size > 2.0 * _CERTAIN * _floor(given, name)
    tiny = real & (size < given.definition.kopt.contest.atol)
    if not bool(tiny.any()) and bool(real.any()):
        tiny = real & (size == size[real].amin())
    wrong = given.right[name].clone()
    as_rows(wrong)[tiny] = 0.0
    return wrong


def _rounded(exact: Any, through: str) -> Any:
    """Through a narrower type; fp8 with a scale for each row, which is the best it can do."""
    import torch

    rows = as_rows(exact).float()
    dtype = getattr(torch, through)
    scale = 1.0
    if ITEM_BYTES[through] == 1:
        finite = rows.where(rows.isfinite(), 0.0)
        largest = finite.abs().amax(dim=1, keepdim=True)
        scale = largest.clamp_(min=1e-30) / torch.finfo(dtype).max
        scaled = (finite / scale).to(dtype).float() * scale
        rows = scaled.where(rows.isfinite(), rows)
    else:
        rows = rows.to(dtype).float()
    return rows.reshape(exact.shape)
