"""Solutions made out of a solution: the same code under another hash, and a slower one.

A twin is what a solution is compared with when the comparison itself is on trial: it is built,
loaded and called like any other candidate, in a process of its own. A slowed twin does the
same and then keeps its processor busy for a known share of the time that the call took.
"""

from __future__ import annotations

import re

from kopt_harness.errors import UnavailableError
from kopt_harness.schema import Solution, SourceFile

__all__ = ["slowed", "twin"]

_PYTHON = """

from time import perf_counter_ns as _kopt_now

_kopt_call = {function}


def {function}(*arguments):
    begin = _kopt_now()
    result = _kopt_call(*arguments)
    end = _kopt_now()
    until = end + {share!r} * (end - begin)
    while _kopt_now() < until:
        pass
    return result
"""
_CPP = """
#include <chrono>

namespace {{
template <auto kCall>
struct KoptSlowed;

template <typename... Arguments, void (*kCall)(Arguments...)>
struct KoptSlowed<kCall> {{
  static void call(Arguments... arguments) {{
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    kCall(arguments...);
    const auto end = Clock::now();
    while (Clock::now() - end < {share!r} * (end - begin)) {{
    }}
  }}
}};
}}  // namespace
"""
_EXPORT = r"TVM_FFI_DLL_EXPORT_TYPED_FUNC\(\s*{function}\s*,\s*([A-Za-z_]\w*)\s*\)"


def twin(solution: Solution) -> Solution:
    """The same code under another hash: an empty line more at the end of the entry file."""
    entry = _entry(solution)
    return _with_entry(solution, entry.content + "\n", f"{solution.name}-twin")


def slowed(solution: Solution, share: float) -> Solution:
    """A solution that does the same, and then busy work for a share of the call's time.

    Args:
        solution: for a CPU, in Python or in C++ with the tvm-ffi binding.
        share: 0.05 makes it 5 % slower.

    Raises:
        UnavailableError: it is not of this kind.
    """
    spec, entry = solution.spec, _entry(solution)
    name = f"{solution.name}-slowed-{100 * share:g}"
    function = spec.entry_function
    if "cpu" in spec.target_hardware and spec.language == "python":
        added = _PYTHON.format(function=function, share=share)
        return _with_entry(solution, entry.content + added, name)
    export = re.compile(_EXPORT.format(function=re.escape(function)))
    found = export.search(entry.content)
    if "cpu" in spec.target_hardware and spec.language == "cpp" and found is not None:
        line = f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({function}, KoptSlowed<{found[1]}>::call)"
        wrapper = _CPP.format(share=share)
        content = export.sub(lambda _: f"{wrapper}\n{line}", entry.content, count=1)
        return _with_entry(solution, content, name)
    raise UnavailableError(
        f"{solution.name!r} cannot be slowed: it is no CPU solution in Python or in C++ that "
        f"exports {function!r} by TVM_FFI_DLL_EXPORT_TYPED_FUNC",
        hint="leave --slowdown out: detectable effects are computed from the recorded blocks",
    )


def _entry(solution: Solution) -> SourceFile:
    return next(each for each in solution.sources if each.path == solution.spec.entry_file)


def _with_entry(solution: Solution, content: str, name: str) -> Solution:
    entry = _entry(solution)
    sources = tuple(
        each.model_copy(update={"content": content}) if each is entry else each
        for each in solution.sources
    )
    # Not model_copy: it would keep the hash of the original, which is cached.
    return Solution.model_validate(solution.model_dump() | {"name": name, "sources": sources})
