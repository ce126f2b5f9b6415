"""A solution's device code becomes a library that runs on a CPU.

The solution's own files are compiled by a C++ compiler, but for those that the driver's folder has
stand-ins of, and those that bind tensors. What C++ has no word for is rewritten: variables in
shared memory become parts of the running block's. Objects are kept by what they are made of, so
that a change in one file compiles what includes it and no more.
"""

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kopt_harness.environ import cxx
from kopt_harness.errors import InvalidInputError
from kopt_harness.tunables import choose, read_tunables, render

__all__ = ["CACHE", "Solution", "build"]

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / "artifacts" / "local" / "emulator"
"""Where builds are kept unless something else is asked for."""

_FLAGS = ("-O2", "-std=c++20", "-fPIC")
_INCLUDE = re.compile(r'^\s*#include ["<]([^">]+)[">]', re.MULTILINE)
_BINDS_TENSORS = "#include <tvm/ffi/"
_ALIGNED = r"(?:(?:__align__|alignas)\((?P<alignment>\w+)\) )?"
_DYNAMIC = re.compile(
    rf"^(?P<indent> *)extern __shared__ {_ALIGNED}(?P<type>[\w ]+?) (?P<name>\w+)\[\];",
    re.MULTILINE,
)
_VARIABLE = re.compile(
    rf"__shared__ {_ALIGNED}(?P<type>[\w: ]+?) (?P<name>\w+)(?P<extents>(?:\[[^\]]+\])*);"
)


class Solution(NamedTuple):
    """What is compiled."""

    folder: Path
    """The solution's, with a ``config.toml`` and ``solution/cuda/``."""
    driver: Path
    """Has ``driver.cpp``, which calls the solution, and stand-ins for files of it."""
    tunables: Mapping[str, int] = {}
    """Those that differ from their defaults."""
    replaced: Mapping[str, str] = {}
    """Texts in the solution's files, each of which must be there, and what stands for them."""
    defined: Mapping[str, int] = {}
    """Macros for the stand-ins, in ``tunables.h``."""


def build(solution: Solution, kept: Path = CACHE) -> Path:
    """Compiles a solution with its driver; returns the library's path.

    Args:
        solution: What is compiled.
        kept: The folder of earlier builds.

    Raises:
        InvalidInputError: If a text to be replaced is nowhere in the sources.
        subprocess.CalledProcessError: If a file does not compile.
    """
    texts = _sources(solution)
    folder = kept / "sources" / _digest(*(f"{name}\n{text}" for name, text in texts.items()))
    for name, text in texts.items():
        _write(folder / name, text.encode())
    search = (folder, HERE / "include", HERE)
    units = [folder / name for name in sorted(texts) if name.endswith(".cpp")]
    units += sorted(HERE.glob("*.cpp"))
    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(lambda unit: _compile(unit, search, kept), units))
    library = kept / f"{_digest(*(each.stem for each in objects))}.so"
    return _made(library, "-shared", *map(str, objects))


def _sources(solution: Solution) -> dict[str, str]:
    """All files that are compiled or included, by name."""
    stand_ins = {
        path.name: path.read_text()
        for path in solution.driver.iterdir()
        if path.suffix in (".cpp", ".cuh", ".h")
    }
    missing = set(solution.replaced)
    texts = {}
    root = solution.folder / "solution" / "cuda"
    for path in sorted(root.rglob("*.cu*")):
        name = str(path.relative_to(root))
        text = path.read_text()
        if name in stand_ins or _BINDS_TENSORS in text:
            continue
        for old, new in solution.replaced.items():
            if old in text:
                missing.discard(old)
                text = text.replace(old, new)
        texts[re.sub(r"\.cu$", ".cpp", name)] = _rewritten(text)
    if missing:
        raise InvalidInputError(
            f"no source of {str(root)!r} has {min(missing)!r}",
            hint="the driver replaces what the solution has changed",
        )
    tunables = choose(read_tunables(solution.folder), solution.tunables)
    defines = "".join(f"#define {name} {value}\n" for name, value in solution.defined.items())
    texts["tunables.h"] = render("cuda", tunables).content + defines
    return texts | stand_ins


def _rewritten(text: str) -> str:
    """Shared memory as parts of the running block's."""
    return _VARIABLE.sub(_variable, _DYNAMIC.sub(_dynamic, text))


def _dynamic(found: re.Match[str]) -> str:
    kind, name, alignment = found["type"], found["name"], found["alignment"] or "16"
    if found["indent"]:
        return (
            f"{found['indent']}{kind}* const {name} = "
            f"static_cast<{kind}*>(fibers::dynamic_shared_memory({alignment}));"
        )
    return f"inline const emulated::DynamicShared<{kind}, {alignment}> {name}{{}};"


def _variable(found: re.Match[str]) -> str:
    kind, name = found["type"] + found["extents"], found["name"]
    alignment = f", {found['alignment']}" if found["alignment"] else ""
    return (
        f"static char {name}_key; "
        f"auto& {name} = fibers::shared_variable<{kind}>(&{name}_key{alignment});"
    )


def _compile(unit: Path, search: tuple[Path, ...], kept: Path) -> Path:
    """The object of a file, from before if nothing that it includes is another."""
    parts = [unit.name, *(path.read_text() for path in _included(unit, search))]
    target = kept / "objects" / f"{_digest(_compiler(), *_FLAGS, *parts)}.o"
    return _made(target, *_FLAGS, *(f"-I{place}" for place in search), "-c", str(unit))


def _included(unit: Path, search: tuple[Path, ...]) -> Iterator[Path]:
    """The file and all of ours that it includes."""
    seen: set[Path] = set()
    waiting = [unit]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        for name in _INCLUDE.findall(path.read_text()):
            places = (place / name for place in (path.parent, *search))
            waiting += [place.resolve() for place in places if place.is_file()][:1]


def _made(target: Path, *words: str) -> Path:
    """Runs the compiler unless its output is there; others may be making the same."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            subprocess.run([_command(), *words, "-o", str(made)], check=True)
            made.replace(target)
    return target


def _write(target: Path, content: bytes) -> None:
    """A file that is whole whenever it is there."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(number, "wb") as file:
        file.write(content)
    Path(name).replace(target)


def _command() -> str:
    return cxx() or "g++"


@cache
def _compiler() -> str:
    """The compiler and its version."""
    command = _command()
    version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    return f"{command} {version.stdout}"


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)} ".encode() + part.encode())
    return digest.hexdigest()[:24]
