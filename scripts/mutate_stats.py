"""Breaks the statistics in every small way and prints which breaks the tests notice.

Run it after a change of ``kopt_harness/bench/{stats,student,sequence,regressions,resample}.py``:

    python scripts/mutate_stats.py [--module stats ...] [--limit N] [--workers N] [--fixed]

A mutant is the module with one comparison, operator, constant, bound or call exchanged. It is
put before the real one on the path of a process of its own, which runs the tests of the
statistics until the first failure: then it is killed. Survivors are printed with their line;
each is either a gap in the tests or equivalent, and ``EQUIVALENT`` says why. All mutants of
a module take minutes; ``--fixed`` runs the few that the test suite runs as well.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "harness" / "kopt_harness"
MODULES = ("stats", "student", "sequence", "regressions", "resample")
TESTS = {
    "resample": ("test_stats_resample.py",),
    "sequence": ("test_stats.py", "test_stats_resample.py"),
}
"""By module; the rest is tested by ``test_stats.py`` alone, in seconds."""
TIMEOUT_S = 120.0
"""A mutant that never ends is killed as well."""

_PROFILE = """
from hypothesis import Phase, settings

settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutants")
"""
"""That a test fails is enough: nobody reads a smaller example."""

EQUIVALENT = {
    ("student", "_TINY"): "any tiny number keeps Lentz's fractions from zero",
    ("student", "_TERMS"): "the fraction converges long before",
    ("student", "_BISECTIONS"): "the interval is resolved long before",
    ("student", "_CLOSE"): "a float is resolved either way",
    ("student", "_LARGE"): "both ways agree to more digits than are used there",
    ("student", "lru_cache"): "how many quantiles are kept",
    ("student", "return 0.0 if t > 0"): "an infinite t is compared",
    ("student", "if t >= 0 else"): "both are a half at zero",
    ("student", "low, high = "): "any bracket that holds the quantile",
    ("student", "high, freedom) > tail:: Gt -> GtE"): "the bracket is as good either way",
    ("student", "middle, freedom) > tail:: Gt -> GtE"): "the interval is resolved either way",
    ("student", "if probability > 0.5"): "the quantile at a half is zero",
    ("student", "if x < (a + 1)"): "both fractions converge, one of them sooner",
    ("stats", "RESAMPLES = 2000"): "one draw more",
    ("stats", "reshape(2, -1), axis=1).mean()): 1 -> 2"): "the same",
    ("stats", "[:8]"): "another seed",
    ("stats", "(times[id(each)] or 1): 1 -> 2"): "a factor of all cancels in the ratio",
    ("stats", "a_0, b_0"): "a third of a nanosecond in the sum of all latencies",
    ("regressions", "[1.0] * count"): "every value is written",
    ("regressions", "adjusted < ERROR"): "no p-value is exactly 0.05",
    ("regressions", "excess <= 0"): "no excess without any variance lies in between",
    ("sequence", "GROWTH)))): Add -> Sub"): "of two blocks or more, half as many are one or more",
    ("sequence", "each.plain_p < _SUSPICIOUS: Lt"): "no p-value is exactly 0.05",
    ("sequence", "each.ratio > looks_slower): Gt"): "no ratio is exactly at the margin",
    ("sequence", "< self.blocks_max: Gt -> GtE"): "no ratio is exactly at the margin",
    ("stats", "_CERTAIN_CORRELATION / math.sqrt(count):: LtE"): "no correlation is exactly there",
    ("stats", "reshape(-1, 2), 1.0): 1 -> 2"): "any negative extent is the unknown one",
}
"""By module and a word of the mutated line: mutants that change nothing that can be seen."""

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
}
_NAMES = {
    "min": "max",
    "max": "min",
    "median": "mean",
    "mean": "median",
    "exp": "expm1",
    "lo": "hi",
    "hi": "lo",
    "freedom": "log_ratio",
}


class Mutant(NamedTuple):
    """One break."""

    module: str
    line: int
    what: str
    """The line, and what became of it."""
    source: str


class _Place(NamedTuple):
    """Where a change is possible, and which."""

    line: int
    change: str


class _Editor(ast.NodeTransformer):
    """Applies the ``wanted``-th possible change, counted over the whole module."""

    def __init__(self, wanted: int | None = None) -> None:
        self._wanted = wanted
        self.places: list[_Place] = []
        """Those that were come by; all, where none is wanted."""

    def _now(self, node: ast.expr, what: str) -> bool:
        self.places.append(_Place(node.lineno, what))
        return len(self.places) - 1 == self._wanted

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Bounds that are inclusive or not, and directions."""
        self.generic_visit(node)
        for place, op in enumerate(node.ops):
            for table in (_COMPARED, _FLIPPED):
                other = table.get(type(op))
                if other and self._now(node, f"{type(op).__name__} -> {other.__name__}"):
                    node.ops[place] = other()
                    return node
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Arithmetic."""
        self.generic_visit(node)
        other = _OPERATORS.get(type(node.op))
        if other and self._now(node, f"{type(node.op).__name__} -> {other.__name__}"):
            node.op = other()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Signs and negations."""
        self.generic_visit(node)
        dropped = isinstance(node.op, ast.USub | ast.Not)
        if dropped and self._now(node, f"{type(node.op).__name__} dropped"):
            return node.operand
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """Numbers: one more, or a third more."""
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            return node
        value = node.value + 1 if isinstance(node.value, int) else node.value * 1.3 or 0.3
        if self._now(node, f"{node.value!r} -> {value!r}"):
            return ast.copy_location(ast.Constant(value), node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """And, or."""
        self.generic_visit(node)
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        if self._now(node, f"{type(node.op).__name__} -> {other.__name__}"):
            node.op = other()
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Medians for means, one end for the other."""
        self.generic_visit(node)
        other = _NAMES.get(node.attr)
        if (
            other
            and isinstance(node.ctx, ast.Load)
            and self._now(node, f".{node.attr} -> .{other}")
        ):
            node.attr = other
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Least for largest."""
        other = _NAMES.get(node.id)
        if node.id in ("min", "max") and self._now(node, f"{node.id} -> {other}"):
            node.id = str(other)
        return node


def mutants(module: str, line: str = "", change: str = "") -> Iterator[Mutant]:
    """Those of a module, in the order of its lines.

    Args:
        module: Its name.
        line: Only of lines with these words.
        change: Only changes that end with these.
    """
    text = (PACKAGE / "bench" / f"{module}.py").read_text()
    lines = text.splitlines()
    every = _Editor()
    every.visit(ast.parse(text))
    for number, place in enumerate(every.places):
        words = lines[place.line - 1].strip()
        if line in words and place.change.endswith(change):
            tree = _Editor(number).visit(ast.parse(text))
            source = ast.unparse(ast.fix_missing_locations(tree))
            yield Mutant(module, place.line, f"{words}: {place.change}", source)


def fixed_mutants() -> list[Mutant]:
    """A handful that must be killed, one of each kind: the test suite runs these."""
    wanted = (
        ("stats", "return Evidence(level, values, count - 1 - 2 * cut)", "1 -> 2"),
        ("stats", "values.var(ddof=1)", "1 -> 2"),
        ("stats", "if hi < 1 - margin", "Sub -> Add"),
        ("stats", "return 1 - (1 - confidence) * share", "Mult -> Div"),
        ("regressions", "(count - rank)", "Sub -> Add"),
        ("regressions", "limit = -math.log1p(-margin)", "USub dropped"),
    )
    found = []
    for module, line, change in wanted:
        first = next(mutants(module, line, change), None)
        assert first is not None, f"no mutant of {line!r}: the list is not in step with the code"
        found.append(first)
    return found


def survives(mutant: Mutant) -> bool:
    """Whether no test fails."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "kopt_harness"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "bench" / f"{mutant.module}.py").write_text(mutant.source)
        (Path(folder) / "mutant_profile.py").write_text(_PROFILE)
        tests = [
            str(ROOT / "tests" / "harness" / name)
            for name in TESTS.get(mutant.module, ("test_stats.py",))
        ]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["-p", "mutant_profile"]
        command += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), *tests]
        environment = os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(Path(folder) / "hypothesis")
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=ROOT,
                timeout=TIMEOUT_S,
                capture_output=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def known(mutant: Mutant) -> str:
    """Why it changes nothing; empty where nobody has said so."""
    for (module, word), reason in EQUIVALENT.items():
        if module == mutant.module and word in mutant.what:
            return reason
    return ""


def main() -> int:
    """Prints each survivor, and counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--module", action="append", choices=MODULES, help="default: all")
    parser.add_argument("--limit", type=int, default=None, help="only the first so many")
    parser.add_argument("--workers", type=int, default=1, help="mutants at a time")
    parser.add_argument("--fixed", action="store_true", help="the few of the test suite")
    arguments = parser.parse_args()
    chosen = fixed_mutants() if arguments.fixed else []
    if not arguments.fixed:
        for module in arguments.module or MODULES:
            chosen += list(mutants(module))
    chosen = chosen[: arguments.limit]
    killed = equivalent = 0
    with ThreadPoolExecutor(arguments.workers) as pool:
        for mutant, alive in zip(chosen, pool.map(survives, chosen), strict=True):
            reason = known(mutant) if alive else ""
            killed += not alive
            equivalent += bool(reason)
            if alive:
                state = f"equivalent ({reason})" if reason else "SURVIVED"
                print(f"{mutant.module}.py:{mutant.line}: {mutant.what}: {state}", flush=True)
    left = len(chosen) - killed - equivalent
    print(f"{len(chosen)} mutants: {killed} killed, {equivalent} equivalent, {left} survived")
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
