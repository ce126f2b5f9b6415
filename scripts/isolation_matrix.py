"""What still works in a sandbox: each mechanism alone, all, and all as an ordinary user.

For every row a process enters the sandbox and tries what a candidate needs: import torch, share
memory with another process, and on a GPU initialise CUDA, run a kernel, write into a buffer of
another process through CUDA IPC, get activity records from CUPTI, and read clocks through NVML.
The rows run at the same time, each within a time limit. Run it on a new kind of machine, or after
a change of the sandbox; what was found stands in docs/isolation.md.

    python scripts/isolation_matrix.py [--timeout 50] [--parallel 16] [--json FILE]
"""

# ruff: noqa: PLC0415  only the processes of the rows load the GPU stack
from __future__ import annotations

import argparse
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kopt_harness.environ import worker_environment
from kopt_harness.proc import run
from kopt_harness.sandbox import MECHANISMS, Policy, in_force
from kopt_harness.sandbox.launch import command, search_paths

NESTED = "all, ordinary user"
ROWS: dict[str, tuple[str, ...]] = {
    "none": MECHANISMS,
    **{name: tuple(m for m in MECHANISMS if m != name) for name in MECHANISMS},
    "pid + mount namespaces": tuple(
        m for m in MECHANISMS if m not in {"pid_namespace", "mount_namespace"}
    ),
    "all but Landlock": ("landlock",),
    "all": (),
    NESTED: (),
}
"""What each row leaves out. ``user_namespace`` is for ordinary users: root is told so."""
CHECKS = ("torch", "shared memory", "cuda", "kernel", "ipc", "cupti", "nvml")
_SLOTS_BYTES = 2 << 20
_ME = Path(__file__).resolve()


def _environment(home: Path) -> dict[str, str]:
    """Of a worker, with this script's folder before what is on the path already."""
    environment = worker_environment(home)
    known = environment.get("PYTHONPATH", "")
    folders = [str(_ME.parent), *filter(None, known.split(os.pathsep))]
    return environment | {"PYTHONPATH": os.pathsep.join(folders)}


def main() -> None:
    """Runs the rows, or the part of one that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout", type=float, default=50.0, help="seconds for each row")
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--json", type=Path, default=None, help="also write what was found here")
    parser.add_argument("--hold", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--probe", default="", help=argparse.SUPPRESS)
    parser.add_argument("--nested", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.hold:
        hold()
    elif arguments.nested:
        nested(arguments.nested)
    elif arguments.probe:
        print(json.dumps(probe(json.loads(arguments.probe))))
    else:
        judge_all(arguments)


def judge_all(arguments: argparse.Namespace) -> None:
    """Starts the holder of the buffers, then every row, and prints the table."""
    fd = os.memfd_create("matrix")
    os.ftruncate(fd, mmap.PAGESIZE)
    os.set_inheritable(fd, True)
    with holder() as (offered, contents), ThreadPoolExecutor(arguments.parallel) as pool:
        waiting = {
            name: pool.submit(one_row, name, index, fd, offered, arguments.timeout)
            for index, name in enumerate(ROWS)
        }
        found = {name: future.result() for name, future in waiting.items()}
        written, shared = contents(), mmap.mmap(fd, mmap.PAGESIZE)
        for index, row in enumerate(found.values()):
            mark = index + 1
            _require(row, "shared memory", shared[index] == mark)
            if written:
                _require(row, "ipc", written[index] == mark)
    checks = [check for check in CHECKS if any(check in row["checks"] for row in found.values())]
    width = max(map(len, ROWS))
    print(" " * width, *(f"{check:>14}" for check in checks), "     s")
    for name, row in found.items():
        marks = ["yes" if row["checks"].get(check) == "ok" else "NO" for check in checks]
        print(f"{name:{width}}", *(f"{mark:>14}" for mark in marks), f"{row['seconds']:6.1f}")
    for name, row in found.items():
        for check, said in row["checks"].items():
            if said != "ok":
                print(f"{name}: {check}: {said}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def one_row(
    name: str, index: int, fd: int, offered: dict[str, Any], timeout_s: float
) -> dict[str, Any]:
    """One process in one kind of sandbox: what it found, what was in force, how long it took."""
    job = json.dumps({"index": index, "fd": fd, **offered})
    without = ("landlock",) if name == NESTED else ROWS[name]
    mode = "--nested" if name == NESTED else "--probe"
    with tempfile.TemporaryDirectory(prefix="kopt-matrix-") as folder:
        home = Path(folder) / "home"
        home.mkdir()
        environment = _environment(home)
        policy_fd = Policy(
            home=str(home),
            readable=(str(_ME),),
            search=search_paths(environment),
            fds=(fd,),
            shared_fd=fd,
            title=f"row {name!r}",
            without=without,
        ).to_file()
        try:
            done = run(
                command(policy_fd, _ME.stem, mode, job),
                timeout_s=timeout_s,
                cwd=home,
                env=environment,
                pass_fds=(policy_fd, fd),
                ask_first=True,
            )
        finally:
            os.close(policy_fd)
    try:
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        why = "no answer in time" if done.timed_out else done.output.strip()[-300:]
        said = {"checks": dict.fromkeys(CHECKS, why), "record": {}}
    return {**said, "seconds": done.seconds}


def nested(job: str) -> None:
    """In a sandbox already, as a user without privileges: enters another one, with everything."""
    home = Path.home() / "nested"
    home.mkdir()
    environment = _environment(home)
    fd = json.loads(job)["fd"]
    os.set_inheritable(fd, True)
    policy_fd = Policy(
        home=str(home),
        readable=(str(_ME),),
        search=search_paths(environment),
        fds=(fd,),
        shared_fd=fd,
        title="nested row",
    ).to_file()
    argv = command(policy_fd, _ME.stem, "--probe", job)
    done = subprocess.run(argv, env=environment, pass_fds=(policy_fd, fd), check=False)
    sys.exit(done.returncode)


@contextmanager
def holder() -> Iterator[tuple[dict[str, Any], Callable[[], list[int]]]]:
    """A process with a device buffer, as the judge has: its handle, and a way to read it."""
    with subprocess.Popen(
        [sys.executable, str(_ME), "--hold"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        offered = json.loads(process.stdout.readline())

        def contents() -> list[int]:
            out, _ = process.communicate("\n")
            found: list[int] = json.loads(out)
            return found

        yield offered, contents
        process.kill()


def hold() -> None:
    """Offers a buffer, waits for a line, and says what has been written into it."""
    import torch

    handle, buffer = "", None
    if torch.cuda.is_available():
        from cuda.bindings import runtime

        torch.zeros(1, device="cuda")
        pointer = _ok(runtime.cudaMalloc(_SLOTS_BYTES))
        handle = bytes(_ok(runtime.cudaIpcGetMemHandle(pointer)).reserved).hex()
        buffer = _tensor(int(pointer)).zero_()
        torch.cuda.synchronize()
    print(json.dumps({"handle": handle}), flush=True)
    sys.stdin.readline()
    print(json.dumps([] if buffer is None else buffer[: len(ROWS)].tolist()), flush=True)


def probe(job: dict[str, Any]) -> dict[str, Any]:
    """What works here, check by check: ``ok`` or the error."""
    began = time.monotonic()
    checks: dict[str, str] = {}

    def check(name: str, attempt: Callable[[], object]) -> None:
        try:
            attempt()
            checks[name] = "ok"
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            checks[name] = f"{type(error).__name__}: {error}"[:300]

    check("torch", _use_torch)
    check("shared memory", lambda: _share(job))
    if job["handle"]:
        seen: list[Any] = []
        cupti = _start_cupti(seen)
        check("cuda", _init_cuda)
        check("kernel", _run_kernel)
        check("ipc", lambda: _write_ipc(job))
        check("cupti", lambda: _count_records(cupti, seen))
        check("nvml", _read_clocks)
    return {"checks": checks, "record": in_force(), "probe_s": time.monotonic() - began}


def _use_torch() -> None:
    import torch

    assert float(torch.ones(1000).sum()) == 1000.0


def _share(job: dict[str, Any]) -> None:
    mmap.mmap(job["fd"], mmap.PAGESIZE)[job["index"]] = job["index"] + 1


def _init_cuda() -> None:
    import torch

    torch.cuda.init()
    assert torch.cuda.device_count() >= 1
    torch.zeros(1, device="cuda")


def _run_kernel() -> None:
    import torch

    assert float((torch.ones(1 << 20, device="cuda") * 2).sum()) == float(2 << 20)


def _write_ipc(job: dict[str, Any]) -> None:
    import torch
    from cuda.bindings import runtime

    handle = runtime.cudaIpcMemHandle_t()
    handle.reserved = bytes.fromhex(job["handle"])
    flags = runtime.cudaIpcMemLazyEnablePeerAccess
    buffer = _tensor(int(_ok(runtime.cudaIpcOpenMemHandle(handle, flags))))
    buffer[job["index"]] = job["index"] + 1
    torch.cuda.synchronize()


def _start_cupti(seen: list[Any]) -> Any:
    """Before CUDA is initialised, as the timer does; an error is kept for its check."""
    try:
        from cupti import cupti

        cupti.activity_register_callbacks(lambda: (8 << 20, 0), seen.extend)
        cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
    except Exception as error:  # noqa: BLE001  the answer of a later check
        return error
    return cupti


def _count_records(cupti: Any, seen: list[Any]) -> None:
    import torch

    if isinstance(cupti, Exception):
        raise cupti
    torch.ones(1000, device="cuda").add_(1)
    torch.cuda.synchronize()
    cupti.activity_flush_all(1)
    assert seen, "no activity record"
    assert all(record.end >= record.start > 0 for record in seen), "records without times"


def _read_clocks() -> None:
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM) > 0
    pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
    pynvml.nvmlDeviceGetComputeRunningProcesses(device)


def _tensor(pointer: int) -> Any:
    import torch

    class Exposed:
        __cuda_array_interface__ = {
            "data": (pointer, False),
            "shape": (_SLOTS_BYTES,),
            "strides": None,
            "typestr": "|u1",
            "version": 3,
        }

    return torch.as_tensor(Exposed(), device="cuda")


def _ok(answer: Any) -> Any:
    status, *values = answer
    if int(status) != 0:
        raise OSError(f"CUDA call failed: {status!r}")
    return values[0] if values else None


def _require(row: dict[str, Any], check: str, arrived: bool) -> None:
    if row["checks"].get(check) == "ok" and not arrived:
        row["checks"][check] = "what was written did not arrive"


if __name__ == "__main__":
    main()
