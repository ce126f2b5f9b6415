"""What the drivers of solutions share: their options, how they call, and what they say."""

import argparse
import ctypes
import sys
from collections.abc import Iterable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from kopt_harness.check.strict import strict_output
from kopt_harness.errors import InvalidInputError
from kopt_harness.schema import StrictBound

from .building import Solution, build

__all__ = [
    "addresses",
    "chosen_tunables",
    "command_line",
    "draw_names",
    "load_beside",
    "load_library",
    "within",
]


def load_beside(definition: Path, name: str) -> ModuleType:
    """A module of a definition: its reference, its inputs, its check."""
    unique = f"{definition.name}_{name}"
    spec = spec_from_file_location(unique, definition / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[unique] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def command_line(description: str | None) -> argparse.ArgumentParser:
    """The options that all drivers have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", type=Path, help="a build of before")
    parser.add_argument("--tunable", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--generator", nargs="+", default=["typical"], help="of inputs, or all")
    parser.add_argument("--seed", type=int, default=1, help="of inputs, and of the order of warps")
    parser.add_argument("--at-once", type=int, default=1, help="blocks that run side by side")
    parser.add_argument(
        "--patience", type=int, default=1_000_000, help="turns of a warp until a run is endless"
    )
    return parser


def chosen_tunables(options: argparse.Namespace) -> dict[str, int]:
    """Tunables that were named, and their values."""
    return {name: int(value) for name, value in (each.split("=") for each in options.tunable)}


def draw_names(options: argparse.Namespace, generators: Mapping[str, Any]) -> list[str]:
    """Which generators draw inputs.

    Raises:
        InvalidInputError: If there is none of a name.
    """
    asked: list[str] = options.generator
    if asked == ["all"]:
        return list(generators)
    for name in asked:
        if name not in generators:
            raise InvalidInputError(
                f"no generator {name!r}", hint=f"generators: {', '.join(generators)}"
            )
    return asked


def load_library(
    solution: Solution, options: argparse.Namespace, at_once: int | None = None
) -> ctypes.CDLL:
    """The solution's library, compiled if need be.

    Args:
        solution: What is compiled where no build is named.
        options: Those of `command_line`.
        at_once: How many blocks run side by side, instead of what was asked for.
    """
    library = ctypes.CDLL(str(options.library or build(solution)))
    side_by_side = options.at_once if at_once is None else at_once
    library.set_up(options.seed, side_by_side, options.patience)
    return library


def addresses(tensors: Iterable[Any]) -> Any:
    """Where contiguous tensors lie, as an array; null stands for None."""
    found = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    return (ctypes.c_void_p * len(found))(*found)


def within(
    label: str,
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    bounds: Mapping[str, float],
) -> bool:
    """Whether outputs are right by the strict rule; prints how far off their worst rows are."""
    right = True
    for name, bound in bounds.items():
        rule = StrictBound(rel=bound, source="definition.json")
        error = strict_output(name, expected[name], actual[name], rule).error
        verdict = "right" if error.ok else error.detail
        sys.stdout.write(f"{label} {name:9} worst row {error.max_rel or 0.0:.1e}  {verdict}\n")
        right &= error.ok
    sys.stdout.flush()
    return right
