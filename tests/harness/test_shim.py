"""The shim that calls a solution: both conventions, and what it refuses to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kopt_harness.schema import Definition
from kopt_harness.worker.devices.cpu import CpuDevice
from kopt_harness.worker.shim import BadOutputError, Call, LazyOutputError

AXES = {"batch_size": 3}

MakeCall = Callable[..., Call]


@pytest.fixture
def places(gdn_decode: Definition) -> dict[str, torch.Tensor]:
    """The arena's outputs, poisoned."""
    return {
        shape.name: torch.full(shape.shape, float("nan"), dtype=getattr(torch, shape.dtype))
        for shape in gdn_decode.output_shapes(AXES)
    }


@pytest.fixture
def good(gdn_decode: Definition) -> dict[str, torch.Tensor]:
    """What a correct solution might return."""
    return {
        shape.name: torch.randn(shape.shape).to(getattr(torch, shape.dtype))
        for shape in gdn_decode.output_shapes(AXES)
    }


@pytest.fixture
def make_call(gdn_decode: Definition, places: dict[str, torch.Tensor]) -> MakeCall:
    """Binds a function to the arena's outputs and two inputs."""

    def make(function: Callable[..., Any], *, destination_passing: bool = False) -> Call:
        return Call(
            function,
            gdn_decode,
            AXES,
            inputs=["q", 0.5],
            outputs=list(places.values()),
            destination_passing=destination_passing,
            device=CpuDevice(),
        )

    return make


def test_destination_passing_gives_inputs_then_outputs(make_call, places) -> None:
    """The arena's own tensors are written; what the solution returns is not looked at."""

    def run(q: str, scale: float, output: torch.Tensor, new_state: torch.Tensor) -> str:
        assert (q, scale) == ("q", 0.5)
        output.fill_(1)
        new_state.fill_(2)
        return "ignored"

    call = make_call(run, destination_passing=True)
    call.run()
    call.seal()
    call.deliver()
    assert (places["output"] == 1).all()
    assert (places["new_state"] == 2).all()


@pytest.mark.parametrize("container", [tuple, list])
def test_returned_tensors_reach_the_arena_only_on_delivery(
    make_call, places, good, container
) -> None:
    """Copying is outside the span that is timed, and copies the bytes exactly."""
    call = make_call(lambda *inputs: container(good.values()))
    call.run()
    call.seal()
    assert all(place.isnan().all() for place in places.values())
    call.deliver()
    for name, place in places.items():
        assert torch.equal(place, good[name])


def test_a_call_that_was_delivered_is_not_delivered_again(make_call, good) -> None:
    """Nothing of an earlier call can stand in for a later one."""
    call = make_call(lambda *inputs: tuple(good.values()))
    call.run()
    call.seal()
    call.deliver()
    with pytest.raises(BadOutputError):
        call.deliver()


class Subclass(torch.Tensor):
    """Could compute when it is looked at."""


def patched(value: torch.Tensor) -> torch.Tensor:
    """A plain tensor with an attribute of its own."""
    value = value.clone()
    value.shape_ = (1,)
    return value


LAZY = {"Subclass", "Parameter", "plain"}
"""What looks like a tensor and may compute when it is looked at."""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.float(), "torch.float32"),
        (lambda t: t[:1], "shape"),
        (lambda t: t.unsqueeze(0), "shape"),
        (lambda t: t.expand(2, *t.shape)[0].transpose(0, 2).contiguous().transpose(0, 2), "strid"),
        (lambda t: t.as_subclass(Subclass), "Subclass"),
        (torch.nn.Parameter, "Parameter"),
        (patched, "plain"),
        (lambda t: t.tolist(), "list"),
        (lambda t: None, "NoneType"),
        (lambda t: t.to("meta"), "device"),
    ],
)
def test_what_is_not_declared_is_refused_and_named(make_call, places, good, change, words) -> None:
    """Nothing is cast, broadcast or looked into, and nothing reaches the arena."""
    returned = (change(good["output"]), good["new_state"])
    call = make_call(lambda *inputs: returned)
    call.run()
    with pytest.raises(BadOutputError) as caught:
        call.seal()
    assert isinstance(caught.value, LazyOutputError) == (words in LAZY)
    assert "output" in str(caught.value)
    assert words in str(caught.value)
    assert all(place.isnan().all() for place in places.values())


@pytest.mark.parametrize("count", [0, 1, 3])
def test_every_declared_output_must_be_returned(make_call, good, count) -> None:
    """The message has both numbers and the declared names."""
    values = [*good.values(), good["output"]][:count]
    call = make_call(lambda *inputs: tuple(values))
    call.run()
    with pytest.raises(BadOutputError, match=f"{count} outputs returned, 2 declared: output"):
        call.seal()


def test_one_tensor_is_one_output(make_call, good) -> None:
    """A batch of tensors is not taken apart along its first axis."""
    call = make_call(lambda *inputs: torch.stack([good["new_state"]] * 2))
    call.run()
    with pytest.raises(BadOutputError, match="1 outputs returned"):
        call.seal()


def test_outputs_have_memory_of_their_own(make_call, good) -> None:
    """Neither an input nor another output lies under an output."""
    twice = good["new_state"]
    call = make_call(lambda *inputs: (twice.view(torch.bfloat16).reshape(-1)[: 3 * 1024], twice))
    call.run()
    with pytest.raises(BadOutputError, match="shape"):
        call.seal()
    overlapping = twice.view(torch.bfloat16).reshape(-1)[: 3 * 1024].view(3, 1, 8, 128)
    call = make_call(lambda *inputs: (overlapping, twice))
    call.run()
    with pytest.raises(BadOutputError, match="'new_state' lies in the memory of 'output'"):
        call.seal()


def test_a_write_after_the_seal_is_named(make_call, places) -> None:
    """A fingerprint of unchanged outputs stays; of a written one it does not."""
    call = make_call(lambda *arguments: None, destination_passing=True)
    call.run()
    call.seal()
    assert call.changed() == []
    call.run()
    call.seal()
    places["output"].zero_()
    assert call.changed() == ["output"]
