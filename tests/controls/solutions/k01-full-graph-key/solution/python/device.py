"""The honest work as one launch of the simulated device."""

from kopt_harness.simulated import launch

from .honest import write


def enqueue(arguments, *, name="step", ns=5_000, **options) -> None:  # noqa: ANN003
    """Moves every input and output once."""
    *inputs, output, new_state = arguments
    launch(
        lambda: write(*arguments),
        name=name,
        ns=ns,
        reads=[each for each in inputs if hasattr(each, "data_ptr")],
        writes=[output, new_state],
        **options,
    )
