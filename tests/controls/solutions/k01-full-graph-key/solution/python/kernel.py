"""Every address, shape and scalar is in the key."""

from kopt_harness.simulated import Graph, gpu

from .device import enqueue

graphs = {}


def key_of(arguments):  # noqa: ANN201
    """All that the graph has in it."""
    return tuple((a.data_ptr(), a.shape) if hasattr(a, "shape") else a for a in arguments)


def run(*arguments) -> None:  # noqa: ANN002
    """Captures what it has not seen."""
    key = key_of(arguments)
    if key not in graphs:
        graph = Graph(gpu())
        with graph.capture():
            enqueue(arguments, name="step", ns=5_000)
        graphs[key] = graph
    graphs[key].replay()
