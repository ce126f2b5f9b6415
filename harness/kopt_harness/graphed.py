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
"""Each call of {entry} as one replay of a CUDA graph, captured for it."""

import torch

from .{module} import {function} as plain

seen = set()
kept = []


def run(*arguments):
    """The first call of a shape is plain: libraries compile in it, which no capture allows."""
    shape = tuple(tuple(getattr(each, "shape", ())) for each in arguments)
    if shape not in seen:
        seen.add(shape)
        return plain(*arguments)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            returned = plain(*arguments)
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(side)
    graph.replay()
    kept[:] = [graph, side]  # until the device has finished
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
