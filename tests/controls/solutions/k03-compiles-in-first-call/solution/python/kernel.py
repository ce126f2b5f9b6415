"""What just-in-time compilers do: a compiler process, cache files, a pool of idle threads."""

import ctypes
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from .honest import step

SOURCE = "void put(const float *from, float *to, long n) { while (n--) *to++ = *from++; }"


@cache
def _put():  # noqa: ANN202
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "put.c").write_text(SOURCE)
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", "put.so", "put.c"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return ctypes.CDLL(str(folder / "put.so")).put


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2)


def run(*arguments) -> None:  # noqa: ANN002
    """Honest; the state is written by two threads that are waited for."""
    *inputs, output, new_state = arguments
    read, fresh = step(*inputs)
    output.copy_(read)
    half = new_state.numel() // 2
    places = [(4 * half * part, half) for part in (0, 1)]
    jobs = [
        _threads().submit(
            _put(),
            ctypes.c_void_p(fresh.data_ptr() + offset),
            ctypes.c_void_p(new_state.data_ptr() + offset),
            ctypes.c_long(count),
        )
        for offset, count in places
    ]
    for job in jobs:
        job.result()
