"""A solution whose every call is one replay of a CUDA graph: launches without gaps between them.

Several kernels of a library that are launched one by one wait for the host in between, which
counts in the span of a call. A server would replay them from a graph; so a peer can be timed
that way as well. Each call captures anew, since tensors move: that is host time and no part of
the span, which begins with the first kernel.
"""

from __future__ import annotations

from kopt_harness.errors import InvalidInputError
from kopt_harness.schema import Solution, SourceFile

__all__ = ["REPLAYED", "graphed"]

REPLAYED = "-graph"
"""End of the name of a replayed solution."""

_FILE = "graph_replay.py"
_SOURCE = '''\
"""Each call of {entry} as one replay of a CUDA graph, captured for it.

By the runtime itself: torch's own capture fills a tensor before it begins, and the time from that
kernel to the replay would count.
"""

import torch
from cuda.bindings import runtime

from .{module} import {function} as plain

seen = set()
side = []
kept = []


def checked(answer):
    """What a call of the runtime gives beside its status."""
    status, *values = answer
    if status != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"the call cannot be replayed: {{status.name}}")
    return values[0] if values else None


def run(*arguments):
    """The first call of a shape is plain: libraries compile in it, which no capture allows."""
    shape = tuple(tuple(getattr(each, "shape", ())) for each in arguments)
    if shape not in seen:
        seen.add(shape)
        return plain(*arguments)
    while kept:  # the device has finished with it
        checked(runtime.cudaGraphExecDestroy(kept.pop()))
    if not side:
        side.append(torch.cuda.Stream())
    side[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side[0]):
        mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed
        checked(runtime.cudaStreamBeginCapture(side[0].cuda_stream, mode))
        try:
            returned = plain(*arguments)
        finally:
            graph = checked(runtime.cudaStreamEndCapture(side[0].cuda_stream))
    kept.append(checked(runtime.cudaGraphInstantiate(graph, 0)))
    checked(runtime.cudaGraphDestroy(graph))
    torch.cuda.current_stream().wait_stream(side[0])
    checked(runtime.cudaGraphLaunch(kept[0], torch.cuda.current_stream().cuda_stream))
    return returned
'''


def graphed(solution: Solution) -> Solution:
    """The solution with an entry that captures and replays it; its name ends in ``REPLAYED``.

    Raises:
        InvalidInputError: its entry is not a Python function, or a source has the added name.
    """
    entry = solution.spec.entry_file
    if not entry.endswith(".py") or any(each.path == _FILE for each in solution.sources):
        raise InvalidInputError(
            f"{solution.name!r} cannot be replayed from a CUDA graph",
            hint=f"its entry must be a Python function, in another file than {_FILE}",
        )
    module, function = entry.removesuffix(".py").replace("/", "."), solution.spec.entry_function
    text = _SOURCE.format(entry=f"{entry}::{function}", module=module, function=function)
    spec = {"entry_point": f"{_FILE}::run", "target_hardware": ("cuda",)}
    return Solution.model_validate(
        solution.model_dump()
        | {
            "name": f"{solution.name}{REPLAYED}",
            "description": f"{solution.description} Replayed from a CUDA graph.",
            "spec": solution.spec.model_dump() | spec,
            "sources": (*solution.sources, SourceFile(path=_FILE, content=text)),
        }
    )
