"""Times a solution of the decoding step against plain copies of its state, on a cold L2.

    python decode_probe.py LABEL=DIR[,KNOB=VALUE...] ... [--batches 1,4] [--samples N]

DIR is a CUDA solution folder; it is compiled here with the given knobs. Before every call twice
the L2 is written and the device synchronised; a sample is the duration of the call's only kernel
in CUPTI's records, over inputs that are drawn afresh for every batch and rotated. Calls of all
kinds are mixed at random. Needs nvcc, cupti-python, apache-tvm-ffi and a GPU; fla-core if there.
"""

import argparse
import importlib.util
import math
import random
import statistics
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import tvm_ffi
from cupti import cupti
from tvm_ffi import libinfo

HERE = Path(__file__).resolve().parent
SHAPES = ("256x1", "128x1", "64x4", "128x4", "256x4", "128x8", "64x16", "64x32")
"""Threads and 16-byte pieces a thread of the copies, in the order of copies.cu."""
KERNELS = ("decode_step", "plain_copy", "fused_recurrent")
POOL = 6
"""Input sets of a batch; at 2 x 32 MiB each they fit any GPU that this is for."""


def say(line):
    """Prints at once, so that what was measured is not lost."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def load(path, name):
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_cuda(source, include, target):
    """The ``run`` of a CUDA file that exports it through tvm-ffi."""
    library = Path(libinfo.find_libtvm_ffi())
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}a"
    command = ["nvcc", "-O3", "-std=c++20", "-shared", "-Xcompiler", "-fPIC"]
    command += [f"-gencode=arch=compute_{arch},code=sm_{arch}"]
    for folder in (include, libinfo.find_include_path(), libinfo.find_dlpack_include_path()):
        command += ["-I", str(folder)]
    command += [str(source), "-o", str(target), str(library)]
    subprocess.run(command, check=True)
    return tvm_ffi.load_module(str(target)).run


def compile_solution(text, folder):
    """(label, function) of LABEL=DIR[,KNOB=VALUE...]."""
    label, _, rest = text.partition("=")
    directory, *pairs = rest.split(",")
    config = tomllib.loads((Path(directory) / "config.toml").read_text())
    knobs = {name: knob["default"] for name, knob in config.get("tunables", {}).items()}
    knobs |= dict(pair.split("=") for pair in pairs)
    include = Path(folder) / label
    include.mkdir()
    lines = ["#pragma once", *(f"#define KOPT_{name} {value}" for name, value in knobs.items())]
    (include / "tunables.h").write_text("\n".join(lines) + "\n")
    entry = config["build"]["entry_point"].partition("::")[0]
    source = Path(directory).resolve() / "solution" / "cuda" / entry
    return label, compile_cuda(source, include, include / "solution.so")


def peer():
    """The fused recurrent step of fla with the operator's semantics, or None."""
    try:
        step = importlib.import_module("fla.ops.gated_delta_rule").fused_recurrent_gated_delta_rule
    except ImportError as error:
        say(f"fla: not there ({error})")
        return None

    def call(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
        del output, new_state
        return step(
            q,
            k,
            v,
            g=a,
            beta=b,
            scale=scale,
            initial_state=state,
            output_final_state=True,
            use_gate_in_kernel=True,
            A_log=A_log,
            dt_bias=dt_bias,
            use_beta_sigmoid_in_kernel=True,
            state_v_first=True,
        )

    return call


class Inputs:
    """Draws input sets of a batch, in call order, outputs last and poisoned."""

    def __init__(self):
        self._draw = load(HERE.parent / "inputs.py", "decode_inputs").GENERATORS
        self._rng = torch.Generator("cuda").manual_seed(random.SystemRandom().getrandbits(40))

    def draw(self, batch, generator="typical"):
        """A list of all arguments."""
        axes = {"batch_size": batch, "seq_len": 1, "head_size": 128}
        axes |= {"num_q_heads": 4, "num_k_heads": 4, "num_v_heads": 8}
        values = list(self._draw[generator].draw(axes, self._rng).values())
        output = torch.full((batch, 1, 8, 128), math.nan, dtype=torch.bfloat16, device="cuda")
        new_state = torch.full((batch, 8, 128, 128), math.nan, device="cuda")
        return [*values, output, new_state]

    def names(self):
        """Generators by name."""
        return list(self._draw)


def check(solutions, inputs, batches):
    """Largest row errors against the float64 reference; ends the program where one is too large."""
    reference = load(HERE.parent / "reference.py", "decode_reference")
    worst = {label: [0.0, 0.0] for label in solutions}
    for batch in batches:
        for name in inputs.names():
            values = inputs.draw(batch, name)
            want = reference.precise(*values[:-2])
            for label, run in solutions.items():
                for tensor in values[-2:]:
                    tensor.fill_(math.nan)
                run(*values)
                for i, bound in enumerate((4e-3, 1e-5)):
                    got, wanted = values[i - 2].double(), want[i].double()
                    rows = (got - wanted).norm(dim=-1) / wanted.norm(dim=-1).clamp_min(1e-30)
                    error = rows.max().item()
                    if not error <= bound:
                        sys.exit(f"{label} is wrong: batch {batch}, {name}, output {i}: {error}")
                    worst[label][i] = max(worst[label][i], error)
    for label, (output, state) in worst.items():
        say(f"{label}: right for {len(inputs.names())} generators at batches {batches}")
        say(f"{label}: worst row {output:.1e} (output), {state:.1e} (state)")


def candidates(solutions, copy, fla):
    """Calls by label; each takes the arguments of the step."""
    calls = dict(solutions)
    if fla is not None:
        calls["fla"] = fla
    for i, shape in enumerate(SHAPES):
        for hint in (0, 1):
            calls[f"copy {shape}/{hint}"] = lambda *x, i=i, h=hint: copy(x[3], x[10], i, h)
            calls[f"in-place {shape}/{hint}"] = lambda *x, i=i, h=hint: copy(x[3], x[3], i, h)
    return calls


class Recorder:
    """Durations of our kernels, in order of their starts."""

    def __init__(self):
        self._seen = []
        cupti.activity_register_callbacks(lambda: (8 << 20, 0), self._completed)
        cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)

    def _completed(self, records):
        self._seen += [
            (record.start, record.end - record.start)
            for record in records
            if any(kernel in record.name for kernel in KERNELS)
        ]

    def take(self):
        """Durations in us since the last time."""
        cupti.activity_flush_all(1)
        seen, self._seen = sorted(self._seen), []
        return [duration / 1000 for _, duration in seen]


def measure(calls, inputs, batch, samples, recorder):
    """Samples in us by label."""
    nbytes = 2 * torch.cuda.get_device_properties(0).L2_cache_size
    flush = torch.zeros(nbytes, dtype=torch.uint8, device="cuda")
    pool = [inputs.draw(batch) for _ in range(POOL)]
    for values in pool:
        for call in calls.values():
            call(*values)
    torch.cuda.synchronize()
    recorder.take()
    order = [label for label in calls for _ in range(samples)]
    random.shuffle(order)
    for label in order:
        flush.zero_()
        torch.cuda.synchronize()
        calls[label](*random.choice(pool))
        torch.cuda.synchronize()
    durations = recorder.take()
    if len(durations) != len(order):
        sys.exit(f"{len(durations)} records of {len(order)} calls")
    found = {label: [] for label in calls}
    for label, duration in zip(order, durations, strict=True):
        found[label].append(duration)
    return found


def summary(values):
    """Median, with the tenth and the ninetieth percentile."""
    tenths = statistics.quantiles(values, n=10)
    return f"{statistics.median(values):5.2f} [{tenths[0]:5.2f} {tenths[8]:5.2f}]"


def report(batch, found, solutions):
    """One line a kind; of the copies the fastest."""
    medians = {label: statistics.median(values) for label, values in found.items()}
    rows = {label: label for label in (*solutions, "fla") if label in found}
    for kind in ("copy", "in-place"):
        rows[kind] = min((name for name in found if name.startswith(kind)), key=medians.get)
    floor = min(medians[rows["copy"]], medians[rows["in-place"]])
    for label, name in rows.items():
        line = f"B={batch:<4d}{label:10s}{summary(found[name])} {medians[name] / floor:.3f} floors"
        if label in solutions and "fla" in medians:
            line += f", fla / it {medians['fla'] / medians[name]:.3f}"
        say(line if label == name else f"{line} ({name})")


def main():
    """Compiles, checks, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("solutions", nargs="+", metavar="LABEL=DIR[,KNOB=VALUE...]")
    parser.add_argument("--batches", default="1,4,8,16,32,48,64")
    parser.add_argument("--samples", type=int, default=60)
    options = parser.parse_args()
    batches = [int(text) for text in options.batches.split(",")]
    torch.zeros(1, device="cuda")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(8) as pool:
        copy = pool.submit(compile_cuda, HERE / "copies.cu", folder, Path(folder) / "copies.so")
        built = pool.map(lambda text: compile_solution(text, folder), options.solutions)
        solutions = dict(built)
        inputs = Inputs()
        say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
        check(solutions, inputs, sorted({1, 3, *batches}))
        calls = candidates(solutions, copy.result(), peer())
        recorder = Recorder()
        for batch in batches:
            report(batch, measure(calls, inputs, batch, options.samples, recorder), solutions)


if __name__ == "__main__":
    main()
