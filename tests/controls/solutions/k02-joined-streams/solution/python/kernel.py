"""Output and state on two streams, both joined before the return."""

from kopt_harness.simulated import Event, launch, new_stream

from .honest import step

side = new_stream()


def run(*arguments) -> None:  # noqa: ANN002
    """Forks, works on both, joins."""
    *inputs, output, new_state = arguments
    forked, joined = Event(), Event()
    forked.record()
    forked.wait(side)
    launch(lambda: new_state.copy_(step(*inputs)[1]), name="update", ns=12_000, stream=side)
    launch(lambda: output.copy_(step(*inputs)[0]), name="read", ns=6_000)
    joined.record(side)
    joined.wait()
