"""Dispatch by shape, and launch descriptors that are kept by all addresses.

No CUDA graph is captured here, and no stream is left unjoined; num_stages=2 is not tuned.
"""

from .honest import step

bound = {}


def _small(*arguments) -> None:  # noqa: ANN002
    *inputs, output, new_state = arguments
    read, fresh = step(*inputs)
    output.copy_(read)
    new_state.copy_(fresh)


def _large(*arguments) -> None:  # noqa: ANN002
    *inputs, output, new_state = arguments
    q, k, v, state, log_rate, a, dt_bias, b, scale = inputs
    for row in range(q.shape[0]):
        part = slice(row, row + 1)
        old = None if state is None else state[part]
        read, fresh = step(
            q[part], k[part], v[part], old, log_rate, a[part], dt_bias, b[part], scale
        )
        output[part].copy_(read)
        new_state[part].copy_(fresh)


TABLE = {1: _small, 4: _large}


def _address(argument):  # noqa: ANN202
    return argument.data_ptr() if hasattr(argument, "data_ptr") else argument


def run(*arguments) -> None:  # noqa: ANN002
    """Contents are never part of a key, and every address is."""
    key = (*map(_address, arguments), arguments[0].shape)
    if key not in bound:
        bound[key] = (TABLE.get(arguments[0].shape[0], _large), arguments)
    function, kept = bound[key]
    function(*kept)
