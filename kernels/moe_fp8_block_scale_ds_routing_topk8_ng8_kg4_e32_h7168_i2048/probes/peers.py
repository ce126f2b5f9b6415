"""Times DeepGEMM's two bare grouped products, the peers and a solution on the same inputs.

    python peers.py [PEER ...] [--solution PATH] [--tokens 1,80] [--draws N] [--samples N]

The products alone are a lower bound for what is built from them: rows are gathered and quantised
before, so that nothing of routing, SwiGLU or the sum is in their time. They are timed as two plain
launches, in both layouts where both are sensible, and as one replay of a CUDA graph. Every sample
is the span of a call that kopt's own timer sees, after twice the L2 was written. Peers and the
solution (a folder of CUDA sources, or what ``--build`` has made of it) are compared with the
reference first. Needs kopt, sgl-deep-gemm, cupti-python, nvcc and a Hopper GPU; LMDeploy for peers
that call it.
"""

import argparse
import importlib
import importlib.util
import inspect
import random
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
import tvm_ffi
from kopt_harness.bench.timers import make_timer
from tvm_ffi import libinfo

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent
TOKENS = (1, 7, 14, 15, 16, 32, 52, 53, 54, 55, 56, 57, 58, 59, 62, 80, 901, 11948, 14107)
MASKED_TOKENS = 1024
"""Beyond, room for all tokens with every expert is too much memory."""
EXPERT_BYTES = 44.05e6
"""Weights and scales of one expert."""
BOUND = 0.06
"""Of the strict tier, on the error of a row."""
START = time.time()


def say(line):
    """Prints at once, so that what was measured is not lost."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def load(path, name):
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(folder, name, module):
    """A module of a solution of several files."""
    if name not in sys.modules:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(folder / "solution" / "python")]
    return importlib.import_module(f"{name}.{module}")


def compile_solution(folder, target):
    """Makes a library of a CUDA solution that exports its entry through tvm-ffi."""
    config = tomllib.loads((folder / "config.toml").read_text())
    entry = config["build"]["entry_point"].partition("::")[0]
    command = ["nvcc", "-O3", "-std=c++20", "--expt-relaxed-constexpr", "-shared"]
    command += ["-Xcompiler", "-fPIC", "-gencode=arch=compute_90a,code=sm_90a"]
    for path in (libinfo.find_include_path(), libinfo.find_dlpack_include_path()):
        command += ["-I", str(path)]
    command += [str(folder / "solution" / "cuda" / entry), "-o", str(target)]
    subprocess.run([*command, libinfo.find_libtvm_ffi()], check=True)


class Inputs:
    """Typical input sets, with weights that all share."""

    def __init__(self):
        self._module = load(FOLDER / "inputs.py", "moe_inputs")
        reference = load(FOLDER / "reference.py", "moe_reference")
        self._precise = reference.precise
        self._names = list(inspect.signature(reference.precise).parameters)
        self._rng = torch.Generator("cuda").manual_seed(random.SystemRandom().getrandbits(40))
        self._static = self._module.draw_static(self._axes(1), self._rng)

    def _axes(self, tokens):
        axes = {"seq_len": tokens, "num_experts": 256, "num_local_experts": 32}
        axes |= {"hidden_size": 7168, "intermediate_size": 2048, "gemm1_out_size": 4096}
        axes |= {"num_hidden_blocks": 56, "num_intermediate_blocks": 16}
        return axes | {"num_gemm1_out_blocks": 32}

    def draw(self, tokens):
        """Arguments by name, in call order."""
        drawn = self._module.GENERATORS["typical"].draw(self._axes(tokens), self._rng)
        drawn |= self._static
        return {name: drawn[name] for name in self._names}

    def require_right(self, label, run, values):
        """Compares a solution with the reference; ends the program where a row is wrong."""
        (want,) = self._precise(**values)
        got = run(*values.values()).float()
        size = want.norm(dim=1)
        error = (got - want).norm(dim=1)
        some = size > 0
        worst = (error[some] / size[some]).max().item() if some.any() else 0.0
        zeros = bool((got[~some] == 0).all())
        if not (worst <= BOUND and zeros):
            sys.exit(f"{label} is wrong: {len(want)} tokens, row error {worst}, zeros {zeros}")
        return worst


def as_function(run):
    """A solution that returns its output, whichever way it passes it."""
    if "output" not in inspect.signature(run).parameters:
        return lambda *values: run(*values)[0]
    return writing(run)


def writing(run):
    """A solution that writes its last argument, as one that returns it."""

    def call(*values):
        output = torch.empty(values[2].shape, dtype=torch.bfloat16, device="cuda")
        run(*values, output)
        return output

    return call


def products(values, *, masked):
    """Both bare products of a set, as a function without arguments, and the rows of experts."""
    folder = FOLDER / "peers" / "deepgemm-grouped"
    kernel = package(folder, "grouped", "kernel")
    stages, routing = package(folder, "grouped", "stages"), package(folder, "grouped", "routing")
    tokens, experts = len(values["hidden_states"]), len(values["gemm1_weights"])
    room = -(-tokens // stages.STEP) * stages.STEP if masked else 0
    expert, _ = routing.route(values["routing_logits"], values["routing_bias"], 1.0)
    routed = stages.pack(expert, experts, values["local_expert_offset"], room)
    x, scale = stages.gather(values["hidden_states"], values["hidden_states_scale"], routed)
    first = (x, scale, values["gemm1_weights"], values["gemm1_weights_scale"])
    expected = -(-expert.numel() // values["routing_logits"].shape[1])
    rest = (routed.end, room, expected)
    inner, inner_scale = stages.activate(kernel._product(*first, *rest), routed)
    second = (inner, inner_scale, values["gemm2_weights"], values["gemm2_weights_scale"])

    def call():
        kernel._product(*first, *rest)
        kernel._product(*second, *rest)

    local = (expert - values["local_expert_offset"]).flatten()
    rows = torch.bincount(local[(local >= 0) & (local < experts)], minlength=experts)
    return call, rows.tolist()


def replay(call):
    """A call as one replay of a CUDA graph, without the host between its launches."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def calls_of(values, solutions):
    """All that is timed on one set, by label, and the rows of experts."""
    calls, rows = {}, []
    for masked in (True, False):
        if masked and len(values["hidden_states"]) > MASKED_TOKENS:
            continue
        call, rows = products(values, masked=masked)
        name = "masked" if masked else "contiguous"
        calls[f"products {name}"] = call
        calls[f"products {name}, graph"] = replay(call)
    for label, run in solutions.items():
        calls[label] = lambda run=run: run(*values.values())
    return calls, rows


def measure(timer, tokens, inputs, solutions, draws, samples):
    """Prints one line a label: medians of each draw, and over the best products of the draw."""
    sets = [inputs.draw(tokens) for _ in range(draws)]
    errors = {n: inputs.require_right(n, run, sets[0]) for n, run in solutions.items()}
    found = [calls_of(values, solutions) for values in sets]
    for number, (_, rows) in enumerate(found):
        active = sum(count > 0 for count in rows)
        floor = active * EXPERT_BYTES / 4.24e6
        say(
            f"T {tokens} draw {number}: {active} active experts, {sum(rows)} rows, {max(rows)} of "
            f"one; {floor:.1f} us at 4.24 TB/s; t = {time.time() - START:.0f} s"
        )
    order = [(i, label) for i, (calls, _) in enumerate(found) for label in calls]
    taken = {key: [] for key in order}
    for key in order:  # compiled before it counts
        found[key[0]][0][key[1]]()
    torch.cuda.synchronize()
    order *= samples
    random.shuffle(order)
    for number, label in order:
        timer.flush()
        call = SimpleNamespace(run=found[number][0][label], seal=lambda: None)
        taken[number, label].append(timer.measure(call).ns / 1000)
    middle = {key: statistics.median(values) for key, values in taken.items()}
    best = [
        min(v for (i, label), v in middle.items() if i == number and label.startswith("products"))
        for number in range(draws)
    ]
    for label in found[0][0]:
        each = [middle[number, label] for number in range(draws)]
        ratio = statistics.median(a / b for a, b in zip(each, best, strict=True))
        error = f", row error {errors[label]:.1e}" if label in errors else ""
        line = " ".join(f"{value:8.1f}" for value in each)
        say(f"  {label:28s} us {line}   over products {ratio:.3f}{error}")


def main():
    """Reads the command line, compiles, and measures."""
    parser = argparse.ArgumentParser(description="see the module's text")
    parser.add_argument("peers", nargs="*")
    parser.add_argument("--solution", type=Path)
    parser.add_argument("--build", type=Path, help="compile the solution to this file, and end")
    parser.add_argument("--tokens", default=",".join(map(str, TOKENS)))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--samples", type=int, default=10)
    given = parser.parse_args()
    if given.build:
        compile_solution(given.solution, given.build)
        return
    solutions = {}
    with tempfile.TemporaryDirectory() as folder:
        if given.solution:
            library = given.solution
            if library.is_dir():
                library = Path(folder) / "solution.so"
                compile_solution(given.solution, library)
            solutions[given.solution.stem] = writing(tvm_ffi.load_module(str(library)).run)
        for name in given.peers:
            run = package(FOLDER / "peers" / name, name.replace("-", "_"), "kernel").run
            solutions[name] = as_function(run)
        inputs = Inputs()
        timer = make_timer("cupti", cache="cold", torch_device="cuda", l2_bytes=None)
        for tokens in map(int, given.tokens.split(",")):
            measure(timer, tokens, inputs, solutions, given.draws, given.samples)


if __name__ == "__main__":
    main()
