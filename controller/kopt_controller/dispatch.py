"""Two solutions behind one entry: which of them serves a call, by the value of one axis.

The rule is learned from a sweep and is as cheap as a rule can be: one axis lies between two
measured values, or it does not. It asks no data, so it costs no transfer. What was not measured
stays with the incumbent. An incumbent that is a dispatcher already gets one more rule, and
its parts stay beside each other: nothing is nested.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

from kopt_harness.errors import InvalidInputError
from kopt_harness.schema import (
    Definition,
    Model,
    Solution,
    SourceFile,
    WorkloadComparison,
)
from pydantic import ValidationError

from .result import CandidateRef

__all__ = ["Learned", "Rule", "Table", "dispatcher", "learn_rule", "read_table", "with_rule"]

TABLE_FILE = "dispatch.json"
"""Among the sources of a dispatcher: what it was made of."""
_PACKAGES = frozenset({"python", "triton"})
"""Languages whose parts are packages below one package."""
_UNITS = {"cpp": (".cpp", (".cpp", ".cc", ".cxx", ".c++")), "cuda": (".cu", (".cu",))}
"""By language: suffix of what is generated, and of what is a translation unit."""
_QUOTED = re.compile(r'^(\s*#\s*include\s*)"([^"]+)"', re.MULTILINE)
_SYSTEM = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)


class Rule(Model):
    """A range of one axis and who serves it; both ends belong to it."""

    axis: str
    low: int
    high: int
    part: CandidateRef

    def covers(self, other: Rule) -> bool:
        """Whether nothing is left for a rule that is asked after this one."""
        return self.axis == other.axis and self.low <= other.low and other.high <= self.high


class Table(Model):
    """Rules in the order in which they are asked."""

    rules: tuple[Rule, ...]
    otherwise: CandidateRef

    @property
    def parts(self) -> tuple[CandidateRef, ...]:
        """Each once, in the order of the rules, the last one serves the rest."""
        found = {each.sha256: each for each in (*(r.part for r in self.rules), self.otherwise)}
        return tuple(found.values())


class Learned(NamedTuple):
    """A rule and what it would win."""

    axis: str
    low: int
    high: int
    served: int
    """Workloads that the candidate would serve."""
    gain: float
    """Share of the incumbent's whole time."""
    sure_gain: float = 0.0
    """The same where every interval is at its upper end: the best of many ranges may be luck."""


def learn_rule(rows: Sequence[WorkloadComparison], axes: Iterable[str]) -> Learned | None:
    """The range of one axis in which a candidate wins most; None where it wins nowhere surely.

    No workload in the range may be surely slower, and one at least must be surely faster.

    Args:
        rows: Of a whole sweep; B is the candidate.
        axes: That a call can be asked for without reading data.
    """
    timed = [row for row in rows if row.a_median_us and row.b_median_us and row.ci]
    if len(timed) != len(rows) or not rows:
        return None
    total = sum(row.a_median_us or 0.0 for row in timed)
    best: Learned | None = None
    for axis in axes:
        values = sorted({row.axes[axis] for row in timed})
        for low, high in combinations_with_replacement(values, 2):
            served = [row for row in timed if low <= row.axes[axis] <= high]
            if any(row.slower or (row.ci or (0, 0))[0] > 1 for row in served):
                continue
            if not any((row.ci or (1, 1))[1] < 1 for row in served):
                continue
            won = sum((row.a_median_us or 0.0) - (row.b_median_us or 0.0) for row in served)
            least = sum((row.a_median_us or 0.0) * (1 - (row.ci or (1, 1))[1]) for row in served)
            found = Learned(axis, low, high, len(served), won / total, least / total)
            if best is None or found.gain > best.gain:
                best = found
    return best if best is not None and best.gain > 0 else None


def read_table(solution: Solution) -> Table | None:
    """What a dispatcher was made of; None for any other solution.

    Raises:
        InvalidInputError: If it carries a table that is none.
    """
    text = next((s.content for s in solution.sources if s.path == TABLE_FILE), None)
    if text is None:
        return None
    try:
        return Table.model_validate_json(text)
    except ValidationError as error:
        raise InvalidInputError(
            f"{TABLE_FILE} of {solution.name!r} is no table of rules: {error.errors()[0]['msg']}",
            hint="make the dispatcher again with kopt promote-dispatch",
        ) from error


def with_rule(incumbent: Solution, candidate: Solution, rule: Learned) -> Table:
    """The table of a dispatcher in which the candidate serves a range, and the rest stays.

    Args:
        incumbent: Serves what the rule does not cover; its own rules are kept.
        candidate: Serves the range.
        rule: Which.

    Raises:
        InvalidInputError: If the candidate is a dispatcher itself.
    """
    if read_table(candidate) is not None:
        raise InvalidInputError(
            f"{candidate.name!r} is a dispatcher itself", hint="dispatch to one of its parts"
        )
    part = CandidateRef(name=candidate.name, sha256=candidate.sha256)
    first = Rule(axis=rule.axis, low=rule.low, high=rule.high, part=part)
    own = CandidateRef(name=incumbent.name, sha256=incumbent.sha256)
    before = read_table(incumbent) or Table(rules=(), otherwise=own)
    kept = tuple(each for each in before.rules if not first.covers(each))
    return Table(rules=(first, *kept), otherwise=before.otherwise)


def dispatcher(table: Table, definition: Definition, get: Callable[[str], Solution]) -> Solution:
    """The solution that a table describes: one source tree, one entry, no part built twice.

    Args:
        table: Rules and parts.
        definition: Says where a call carries the axes.
        get: Archived solutions by SHA-256.

    Raises:
        InvalidInputError: If the parts cannot stand in one solution.
    """
    parts = [get(ref.sha256) for ref in table.parts]
    _require_alike(parts)
    first = parts[-1]
    is_package = first.spec.language in _PACKAGES
    unit = ".py" if is_package else _UNITS[first.spec.language][0]
    sources = [SourceFile(path=TABLE_FILE, content=table.model_dump_json(indent=1) + "\n")]
    for number, part in enumerate(parts):
        sources += _package(number, part) if is_package else _part(number, part)
    if is_package:
        content = _python_entry(table, definition, parts)
    else:
        content = _entry(table, definition, first.spec.entry_function)
    sources.append(SourceFile(path=f"dispatch{unit}", content=content))
    names = {ref.sha256: ref.name for ref in table.parts}
    dependencies = dict.fromkeys(d for part in parts for d in part.spec.dependencies)
    entry_point = f"dispatch{unit}::{first.spec.entry_function}"
    return Solution(
        name="dispatch-" + "-or-".join(names.values()),
        definition=definition.name,
        author=first.author,
        description="; ".join(
            f"{r.part.name} where {r.low} <= {r.axis} <= {r.high}" for r in table.rules
        )
        + f"; else {table.otherwise.name}",
        spec=first.spec.model_copy(
            update={"entry_point": entry_point, "dependencies": tuple(dependencies)}
        ),
        sources=tuple(sources),
    )


def _require_alike(parts: Sequence[Solution]) -> None:
    specs = [part.spec for part in parts]
    languages = {spec.language for spec in specs}
    if len(languages) > 1 or not languages <= {*_UNITS, *_PACKAGES}:
        raise InvalidInputError(
            f"parts in {', '.join(sorted(languages))} cannot stand in one dispatcher",
            hint="parts are all of one language",
        )
    if languages <= _PACKAGES:
        if len({spec.destination_passing_style for spec in specs}) > 1:
            raise InvalidInputError(
                "one part returns its outputs and another writes into given ones",
                hint="set destination_passing_style alike in all parts",
            )
        return
    if any(spec.binding == "torch" or not spec.destination_passing_style for spec in specs):
        raise InvalidInputError(
            "a dispatcher takes parts of the binding tvm-ffi that write into given outputs",
            hint='set binding = "tvm-ffi" and destination_passing_style = true',
        )


def _part(number: int, part: Solution) -> list[SourceFile]:
    """The sources of a part in a folder and a namespace of its own, under one unit.

    System headers come before the namespace, so that inside it they are empty.
    """
    unit, units = _UNITS[part.spec.language]
    folder = f"part_{number}"
    paths = frozenset(source.path for source in part.sources)
    moved = [
        SourceFile(path=f"{folder}/{_header(source.path, units)}", content=_relative(source, paths))
        for source in part.sources
    ]
    headers = dict.fromkeys(h for s in part.sources for h in _SYSTEM.findall(s.content))
    lines = [f"// {part.name}, {part.sha256}"]
    for header in headers:
        lines += [f"#if __has_include(<{header}>)", f"#include <{header}>", "#endif"]
    entry = part.spec.entry_function
    lines += [
        f"#define __tvm_ffi_{entry} kopt_part_{number}",
        f"#define __tvm_ffi__metadata_{entry} kopt_metadata_{number}",
        f"namespace kopt_{folder} {{",
        *(
            f'#include "{folder}/{_header(source.path, units)}"'
            for source in part.sources
            if source.path.endswith(units)
        ),
        "}",
    ]
    return [*moved, SourceFile(path=f"{folder}{unit}", content="\n".join(lines) + "\n")]


def _package(number: int, part: Solution) -> list[SourceFile]:
    """The sources of a part in a folder of its own: imports in a solution are relative anyway."""
    return [
        SourceFile(path=f"part_{number}/{source.path}", content=source.content)
        for source in part.sources
    ]


def _python_entry(table: Table, definition: Definition, parts: Sequence[Solution]) -> str:
    spec = parts[-1].spec
    arguments = list(definition.inputs)
    if spec.destination_passing_style:
        arguments += definition.outputs
    numbers = {ref.sha256: number for number, ref in enumerate(table.parts)}
    modules = [_module(number, part) for number, part in enumerate(parts)]
    call = ", ".join(arguments)
    asked, ahead = [], []
    for rule in table.rules:
        number = numbers[rule.part.sha256]
        argument, dimension = _place(definition, rule.axis)
        extent = f"{arguments[argument]}.shape[{dimension}]"
        asked += [
            f"    if {rule.low} <= {extent} <= {rule.high}:  # {rule.axis}",
            f"        return part_{number}.{parts[number].spec.entry_function}({call})",
        ]
        ahead += [
            f'    if {rule.low} <= axes["{rule.axis}"] <= {rule.high}:',
            f"        return part_{number}",
        ]
    last = numbers[table.otherwise.sha256]
    lines = [
        f'"""{spec.entry_function}: which part serves a call, by extents that it carries."""',
        "",
        *modules,
        "",
        "",
        f"def {spec.entry_function}({call}):",
        *asked,
        f"    return part_{last}.{parts[last].spec.entry_function}({call})",
        "",
        "",
        "def _serving(axes):",
        *ahead,
        f"    return part_{last}",
        "",
        "",
        "def precompile(axes):",
        "    part = _serving(axes)",
        '    if hasattr(part, "precompile"):',
        "        part.precompile(axes)",
        "",
    ]
    return "\n".join(lines)


def _module(number: int, part: Solution) -> str:
    """Imports the entry module of a part."""
    *folders, name = posixpath.splitext(part.spec.entry_file)[0].split("/")
    if name == "__init__":
        return f"from . import part_{number}"
    package = ".".join((f"part_{number}", *folders))
    return f"from .{package} import {name} as part_{number}"


def _relative(source: SourceFile, paths: frozenset[str]) -> str:
    """Its content, with includes from the top of the part's tree written from where it stands."""
    here = posixpath.dirname(source.path)

    def written(found: re.Match[str]) -> str:
        name = found.group(2)
        if posixpath.normpath(posixpath.join(here, name)) in paths or name not in paths:
            return found.group()
        return f'{found.group(1)}"{posixpath.relpath(name, here or ".")}"'

    return _QUOTED.sub(written, source.content)


def _header(path: str, units: tuple[str, ...]) -> str:
    """A unit of a part is included, not compiled by itself."""
    return f"{path}.h" if path.endswith(units) else path


def _entry(table: Table, definition: Definition, entry: str) -> str:
    numbers = {ref.sha256: number for number, ref in enumerate(table.parts)}
    declared = [
        f'extern "C" int kopt_part_{n}(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);'
        for n in numbers.values()
    ]
    asked = []
    for rule in table.rules:
        place = _place(definition, rule.axis)
        asked += [
            f"  if (const int64_t extent = extent_of(args, {place[0]}, {place[1]}); "
            f"{rule.low} <= extent && extent <= {rule.high}) {{  // {rule.axis}",
            f"    return kopt_part_{numbers[rule.part.sha256]}(self, args, count, result);",
            "  }",
        ]
    return "\n".join(
        [
            f"// {entry}: which part serves a call, by extents that the call carries anyway.",
            "#include <tvm/ffi/tvm_ffi.h>",
            "",
            "#include <cstdint>",
            "",
            *declared,
            "",
            "namespace {",
            "int64_t extent_of(const TVMFFIAny* args, int argument, int dimension) {",
            "  return tvm::ffi::AnyView::CopyFromTVMFFIAny(args[argument])",
            "      .cast<tvm::ffi::TensorView>()",
            "      .size(dimension);",
            "}",
            "}  // namespace",
            "",
            f'extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_{entry}(',
            "    void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {",
            "  TVM_FFI_SAFE_CALL_BEGIN();",
            *asked,
            f"  return kopt_part_{numbers[table.otherwise.sha256]}(self, args, count, result);",
            "  TVM_FFI_SAFE_CALL_END();",
            "}",
            "",
        ]
    )


def _place(definition: Definition, axis: str) -> tuple[int, int]:
    """Argument and dimension in which a call carries an axis."""
    for argument, tensor in enumerate(definition.inputs.values()):
        if tensor.shape is not None and axis in tensor.shape:
            return argument, list(tensor.shape).index(axis)
    raise InvalidInputError(
        f"no input of {definition.name!r} has the axis {axis!r}",
        hint=f"axes are {', '.join(definition.axes)}",
    )
