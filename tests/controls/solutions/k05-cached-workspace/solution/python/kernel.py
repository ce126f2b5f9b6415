"""Scratch memory is allocated once and overwritten; a counter in it is zeroed in every call."""

import torch

from .honest import step

workspaces = {}


def _workspace(device, shape):  # noqa: ANN202
    key = (device, shape)
    if key not in workspaces:
        workspaces[key] = (torch.empty(shape, device=device), torch.empty(1, dtype=torch.int64))
    return workspaces[key]


def run(*arguments) -> None:  # noqa: ANN002
    """Honest, by way of the workspace."""
    *inputs, output, new_state = arguments
    scratch, counter = _workspace(new_state.device, tuple(new_state.shape))
    counter.zero_()
    read, fresh = step(*inputs)
    for row in range(fresh.shape[0]):
        scratch[row].copy_(fresh[row])
        counter.add_(1)
    if int(counter) != fresh.shape[0]:
        raise RuntimeError("the counter was not zeroed")
    new_state.copy_(scratch)
    output.copy_(read)
