"""Runs a fused prefill kernel on the CPU, lane by lane, and compares it with the reference.

Usage: lanes.py SOLUTION -DNAME=VALUE ... --tokens T --sequences N --generator NAME ...
"""

import argparse
import ctypes
import importlib.util
import math
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
DEFINITION = HERE.parent.parent
POINTERS = ("q", "k", "v", "state", "A_log", "a", "dt_bias", "b", "cu_seqlens")
BOUNDS = (0.016, 0.02)  # of definition.json, strict
HEADS = {"num_q_heads": 4, "num_k_heads": 4, "num_v_heads": 8, "head_size": 128}


def load(name: str) -> ModuleType:
    """A module of the definition's folder."""
    spec = importlib.util.spec_from_file_location(name, DEFINITION / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build(solution: Path, defines: list[str], folder: Path) -> ctypes.CDLL:
    """The solution's device code and the emulation as one library."""
    for source in (solution / "solution" / "cuda").glob("*.cuh"):
        shutil.copy(source, folder)
    shutil.copy(HERE / "ptx.cuh", folder)  # over the solution's
    tunables = tomllib.loads((solution / "config.toml").read_text())["tunables"]
    lines = [f"#define KOPT_{name} {knob['default']}" for name, knob in tunables.items()]
    (folder / "tunables.h").write_text("\n".join(lines) + "\n")
    library = folder / "lanes.so"
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", f"-I{folder}", f"-I{HERE}"]
    subprocess.run(["g++", *flags, *defines, "-o", library, str(HERE / "lanes.cpp")], check=True)
    return ctypes.CDLL(str(library))


def wrong_rows(actual: torch.Tensor, expected: torch.Tensor, rel: float) -> tuple[float, int]:
    """The largest relative error of a row, and how many rows the strict tier refuses."""
    reference = expected.double().flatten(0, -2)
    error = (actual.double().flatten(0, -2) - reference).abs()
    norm, root = reference.norm(dim=1), math.sqrt(reference.shape[1])
    floor = rel * 2.0**-20 * float((norm.square().mean() / reference.shape[1]).sqrt())
    right = error.norm(dim=1) <= rel * norm + floor * root
    right &= (error <= 4 * (rel * (reference.abs() + norm[:, None] / root) + floor)).all(1)
    relative = (error.norm(dim=1) / norm)[norm > floor * root]
    return float(relative.max()) if relative.numel() else 0.0, int((~right).sum())


def run(library: ctypes.CDLL, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and new state; both are NaN where nothing is written."""
    tokens, sequences = inputs["v"].shape[0], inputs["cu_seqlens"].numel() - 1
    output = torch.full_like(inputs["v"], math.nan)
    new_state = torch.full((sequences, 8, 128, 128), math.nan)
    tensors = [inputs[name] for name in POINTERS]
    held = [None if t is None else t.contiguous() for t in tensors] + [output, new_state]
    pointers = (ctypes.c_void_p * len(held))(*[None if t is None else t.data_ptr() for t in held])
    scale = inputs["scale"] or 128**-0.5
    library.run(pointers, tokens, sequences, ctypes.c_float(scale))
    return output, new_state


def main() -> int:
    """Prints a line for each generator; 1 if a row is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("solution")
    parser.add_argument("--tokens", type=int, default=35)
    parser.add_argument("--sequences", type=int, default=2)
    parser.add_argument("--generator", nargs="*", default=["typical"])
    options, defines = parser.parse_known_args()
    defines = [define for define in defines if re.match("-D", define)]
    inputs, reference = load("inputs"), load("reference")
    axes = {"total_seq_len": options.tokens, "num_seqs": options.sequences} | HEADS
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        solution = DEFINITION / "solutions" / options.solution
        library = build(solution, defines, Path(folder))
        for name in options.generator:
            drawn = inputs.GENERATORS[name].draw(axes, torch.Generator().manual_seed(1))
            expected = reference.precise(**drawn)
            found = [
                wrong_rows(*pair)
                for pair in zip(run(library, drawn), expected, BOUNDS, strict=True)
            ]
            failed |= any(wrong for _, wrong in found)
            text = ", ".join(f"{error:.1e} ({wrong} wrong)" for error, wrong in found)
            sys.stdout.write(f"{name}: output, new_state: {text}\n")
            sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
