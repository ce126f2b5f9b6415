"""What just-in-time compilers do: a compiler process, cache files, and threads that stay idle."""

from functools import cache

import tvm_ffi.cpp

from .honest import step

SOURCE = r"""
void put(tvm::ffi::TensorView from, tvm::ffi::TensorView to) {
  const float* source = static_cast<const float*>(from.data_ptr());
  float* target = static_cast<float*>(to.data_ptr());
  const int64_t count = to.numel();
#pragma omp parallel for num_threads(2)
  for (int64_t i = 0; i < count; ++i) target[i] = source[i];
}
"""


@cache
def _compiled():  # noqa: ANN202
    flags = ["-fopenmp"]
    return tvm_ffi.cpp.load_inline(
        name="k03", cpp_sources=SOURCE, functions="put", extra_cflags=flags, extra_ldflags=flags
    )


def run(*arguments) -> None:  # noqa: ANN002
    """Honest; the state is copied by what was compiled, in two threads that a pool keeps."""
    *inputs, output, new_state = arguments
    read, fresh = step(*inputs)
    output.copy_(read)
    _compiled().put(fresh, new_state)
