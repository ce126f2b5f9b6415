"""Definitions, their workloads, regimes, costs and incumbents, as they lie in ``kernels/``.

Everything is read when asked for and kept; importing this module reads nothing. A definition
folder is data: its ``cost.py`` is pure Python and runs here, its ``reference.py`` and
``inputs.py`` need torch and run in workers only.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ._invalid import invalid_input
from .archive import Archive, read_solution
from .errors import InvalidInputError, NotFoundError
from .files import parse_json, read_json, read_text, read_toml
from .pack import Packed, pack
from .regimes import Cost, Regime, derive_regimes, representatives
from .root import Root
from .schema import Definition, Solution, Workload

__all__ = ["Catalog", "Cost", "Regime"]

_MIN_UUID_PREFIX = 4
_WORKLOAD_HINT = 'write {"uuid": "...", "axes": {"name": 1}}'
_FAULTS_OF_CODE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a mistake in the Python of a definition raises."""


class _CostModel(NamedTuple):
    compulsory_bytes: Callable[[Mapping[str, int]], int]
    flops: Callable[[Mapping[str, int]], int]


class Catalog:
    """All that ``kernels/`` of one root says."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._definitions: list[Definition] | None = None
        self._workloads: dict[str, list[Workload]] = {}
        self._cost_models: dict[str, _CostModel] = {}
        self._regimes: dict[str, tuple[Regime, ...]] = {}

    def definitions(self) -> list[Definition]:
        """All definitions, by id.

        Raises:
            InvalidInputError: If a ``definition.json`` is malformed, or two share an alias.
        """
        if self._definitions is None:
            files = sorted(self.root.kernels.glob("*/definition.json"))
            self._definitions = [_read_definition(file) for file in files]
            _require_distinct_aliases(self._definitions)
        return list(self._definitions)

    def resolve(self, name: str) -> Definition:
        """The definition of an alias, an id, or an unambiguous prefix of either.

        Raises:
            NotFoundError: If there is none, or more than one; lists the matches.
        """
        definitions = self.definitions()
        exact = [d for d in definitions if name in (d.name, d.kopt.alias)]
        if exact:
            return exact[0]
        matches = [d for d in definitions if name and (d.name.startswith(name) or _alias(d, name))]
        if len(matches) == 1:
            return matches[0]
        if matches:
            found = ", ".join(f"{d.kopt.alias} ({d.name})" for d in matches)
            raise NotFoundError(f"the definition {name!r} is ambiguous", hint=f"it matches {found}")
        raise self._unknown(name)

    def resolve_exact(self, name: str) -> Definition:
        """The definition of an id or alias; prefixes do not count in a file.

        Raises:
            NotFoundError: If there is none; the hint has close matches.
        """
        for definition in self.definitions():
            if name in (definition.name, definition.kopt.alias):
                return definition
        raise self._unknown(name)

    def _unknown(self, name: str) -> NotFoundError:
        definitions = self.definitions()
        if not definitions:
            return NotFoundError(
                f"unknown definition {name!r}: {str(self.root.kernels)!r} has none",
                hint="name a kopt checkout with --root DIR or $KOPT_ROOT",
            )
        ids = {key: d for d in definitions for key in (d.name, d.kopt.alias)}
        close = get_close_matches(name, ids, n=3, cutoff=0.5) or [
            key for key in ids if name and name in key
        ]
        near = dict.fromkeys(ids[key].name for key in close)
        guess = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
        known = ", ".join(d.kopt.alias for d in definitions)
        return NotFoundError(f"unknown definition {name!r}", hint=f"{guess}definitions: {known}")

    def folder(self, definition: Definition) -> Path:
        """The folder of a definition."""
        return self.root.kernels / definition.name

    def workloads(self, definition: Definition) -> list[Workload]:
        """All workloads, in the order of their file.

        Raises:
            NotFoundError: If there is no ``workloads.jsonl``.
            InvalidInputError: If a line is malformed; names it.
        """
        if definition.name not in self._workloads:
            path = self.folder(definition) / "workloads.jsonl"
            self._workloads[definition.name] = _read_workloads(path, definition)
        return list(self._workloads[definition.name])

    def select(self, definition: Definition, selectors: Sequence[str]) -> list[Workload]:
        """The workloads that selectors name, each once, in the order of the file.

        Args:
            definition: Whose workloads.
            selectors: Each ``all``, ``rep`` (one representative per regime), an index, a uuid,
                or an unambiguous beginning of one.

        Raises:
            NotFoundError: If a selector names none, or more than one.
        """
        workloads = self.workloads(definition)
        chosen: set[int] = set()
        for selector in selectors:
            if selector == "all":
                chosen.update(workload.index for workload in workloads)
            elif selector == "rep":
                chosen.update(workload.index for workload in self.representatives(definition))
            else:
                chosen.add(_find_workload(workloads, selector, definition).index)
        return [workload for workload in workloads if workload.index in chosen]

    def regime_list(self, definition: Definition) -> tuple[Regime, ...]:
        """Regimes with their workloads, cheapest first; see ``regimes.py`` for the rule."""
        if definition.name not in self._regimes:
            axes = definition.kopt.regime_axes or definition.var_axes
            self._regimes[definition.name] = derive_regimes(
                self.workloads(definition), axes, lambda w: self.cost(definition, w.axes)
            )
        return self._regimes[definition.name]

    def regimes(self, definition: Definition) -> dict[str, str]:
        """Name of the regime of each workload, by uuid."""
        return {
            workload.uuid: regime.name
            for regime in self.regime_list(definition)
            for workload in regime.workloads
        }

    def representatives(self, definition: Definition) -> tuple[Workload, ...]:
        """What ``rep`` stands for: the workload of median cost of each regime."""
        regimes = self.regime_list(definition)
        return representatives(regimes, lambda w: self.cost(definition, w.axes))

    def cost(self, definition: Definition, axes: Mapping[str, int]) -> Cost:
        """Least work of a workload, from the cost model of its definition.

        Args:
            definition: Of the workload.
            axes: Its variable axes.
        """
        model = self._cost_models.get(definition.name)
        if model is None:
            model = _load_cost_model(self.folder(definition) / "cost.py", definition.name)
            self._cost_models[definition.name] = model
        bound = definition.bind(axes)
        path = self.folder(definition) / "cost.py"
        try:
            found = (model.compulsory_bytes(bound), model.flops(bound))
        except _FAULTS_OF_CODE as error:
            raise _broken_cost_model(path, f"{type(error).__name__}: {error}") from error
        if not all(isinstance(value, int) and value >= 0 for value in found):
            raise _broken_cost_model(path, f"it gives {found[0]!r} bytes and {found[1]!r} FLOPs")
        return Cost(*found)

    def incumbent(self, definition: Definition, target: str) -> Solution | None:
        """The retained solution of a target; None if there is none yet.

        Without ``sha256`` in ``retained.toml``, the solution's folder as it packs now; with it,
        exactly those bytes: from the folder, the committed evidence or the archive.

        Raises:
            NotFoundError: If the solution that ``retained.toml`` names is nowhere.
            InvalidInputError: If ``retained.toml`` is malformed.
        """
        path = self.folder(definition) / "retained.toml"
        if not path.is_file():
            return None
        entry = read_toml(path, "retained.toml").get(target)
        if entry is None:
            return None
        if not isinstance(entry, dict) or not isinstance(entry.get("solution"), str):
            raise InvalidInputError(
                f"{str(path)!r}: [{target}] names no solution", hint='write solution = "NAME"'
            )
        name, sha256 = entry["solution"], entry.get("sha256") or ""
        if not isinstance(sha256, str):
            raise InvalidInputError(
                f"{str(path)!r}: the sha256 of [{target}] is {sha256!r}",
                hint='write sha256 = "..." with 64 hexadecimal digits, or leave it out',
            )
        if sha256:
            return self._solution_of(definition, target, name, sha256)
        return self.solution(definition, name).solution

    def solution(self, definition: Definition, name: str) -> Packed:
        """A solution of ``kernels/<id>/solutions/``, packed.

        Raises:
            NotFoundError: If there is none of this name; lists those that exist.
        """
        folder = self.folder(definition) / "solutions" / name
        if not (folder / "config.toml").is_file():
            names = ", ".join(self.solution_names(definition)) or "none yet"
            raise NotFoundError(
                f"{definition.name} has no solution {name!r}", hint=f"solutions: {names}"
            )
        return pack(folder, known=self)

    def solution_names(self, definition: Definition) -> list[str]:
        """Names of the solution folders of a definition, sorted."""
        files = (self.folder(definition) / "solutions").glob("*/config.toml")
        return sorted(file.parent.name for file in files)

    def _solution_of(self, definition: Definition, target: str, name: str, sha256: str) -> Solution:
        if name in self.solution_names(definition):
            folder = self.solution(definition, name).solution
            if folder.sha256 == sha256:
                return folder
        evidence = self.root.retained / definition.name / target / "solution.json"
        if evidence.is_file():
            committed = read_solution(evidence)
            if committed.sha256 == sha256:
                return committed
        if (self.root.local / "objects" / f"{sha256}.json").is_file():
            return Archive(self.root.local).get(sha256)
        raise NotFoundError(
            f"the incumbent {name!r} ({sha256[:12]}) of {definition.name} on {target} is missing",
            hint=f"restore {str(evidence)!r}, or remove its sha256 from retained.toml",
        )


def _alias(definition: Definition, name: str) -> bool:
    return definition.kopt.alias.startswith(name)


def _read_definition(path: Path) -> Definition:
    data = read_json(path, "definition.json")
    try:
        definition = Definition.model_validate(data)
    except ValidationError as error:
        raise invalid_input(
            error, str(path), Definition, hint="see the definitions in kernels/"
        ) from error
    if definition.name != path.parent.name:
        raise InvalidInputError(
            f"{str(path)!r} defines {definition.name!r}, not the name of its folder",
            hint="give the folder and the definition one name",
        )
    return definition


def _require_distinct_aliases(definitions: Sequence[Definition]) -> None:
    owners: dict[str, str] = {}
    for definition in definitions:
        for key in (definition.name, definition.kopt.alias):
            owner = owners.setdefault(key, definition.name)
            if owner != definition.name:
                raise InvalidInputError(
                    f"{owner!r} and {definition.name!r} are both called {key!r}",
                    hint="change kopt.alias in one definition.json",
                )


def _read_workloads(path: Path, definition: Definition) -> list[Workload]:
    workloads: list[Workload] = []
    uuids: set[str] = set()
    for number, line in enumerate(read_text(path, "workloads.jsonl").splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        workload = _read_workload(line, len(workloads), where, definition)
        if workload.uuid in uuids:
            raise InvalidInputError(
                f"{where}: the uuid {workload.uuid!r} appears twice", hint="remove one line"
            )
        uuids.add(workload.uuid)
        workloads.append(workload)
    if not workloads:
        raise InvalidInputError(f"{str(path)!r} has no workload", hint=_WORKLOAD_HINT)
    return workloads


def _read_workload(line: str, index: int, where: str, definition: Definition) -> Workload:
    data: Any = parse_json(line, where, "workload")
    if not isinstance(data, dict) or "index" in data:
        raise InvalidInputError(f"{where}: not a workload", hint=_WORKLOAD_HINT)
    try:
        workload = Workload.model_validate(data | {"index": index})
    except ValidationError as error:
        raise invalid_input(error, where, Workload, hint=_WORKLOAD_HINT) from error
    if set(workload.axes) != set(definition.var_axes):
        raise InvalidInputError(
            f"{where}: binds {sorted(workload.axes)}",
            hint=f"bind exactly {', '.join(definition.var_axes)}",
        )
    return workload


def _find_workload(
    workloads: Sequence[Workload], selector: str, definition: Definition
) -> Workload:
    last = len(workloads) - 1
    if selector.isdecimal() and len(selector) <= len(str(last)):
        if int(selector) <= last:
            return workloads[int(selector)]
        raise NotFoundError(
            f"{definition.kopt.alias} has no workload {selector}", hint=f"indices are 0 to {last}"
        )
    exact = [workload for workload in workloads if workload.uuid == selector]
    long_enough = len(selector) >= _MIN_UUID_PREFIX
    found = exact or [w for w in workloads if long_enough and w.uuid.startswith(selector)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(workload.uuid for workload in found[:4])
        raise NotFoundError(f"the workload {selector!r} is ambiguous", hint=f"it matches {names}")
    raise NotFoundError(
        f"{definition.kopt.alias} has no workload {selector!r}",
        hint=f"give a uuid, an index 0 to {last}, rep or all; "
        f"kopt workloads {definition.kopt.alias} lists them",
    )


def _load_cost_model(path: Path, name: str) -> _CostModel:
    if not path.is_file():
        raise NotFoundError(f"no cost model at {str(path)!r}", hint="add cost.py")
    spec = importlib.util.spec_from_file_location(f"kopt_cost_{name}", path)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except _FAULTS_OF_CODE as error:
        raise _broken_cost_model(path, f"{type(error).__name__}: {error}") from error
    functions = [getattr(module, function, None) for function in _CostModel._fields]
    if not all(callable(function) for function in functions):
        raise InvalidInputError(
            f"{str(path)!r} does not define both functions of a cost model",
            hint="define compulsory_bytes(axes) and flops(axes)",
        )
    return _CostModel(*functions)  # type: ignore[arg-type]  # checked above


def _broken_cost_model(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"the cost model {str(path)!r} does not work: {why}",
        hint="compulsory_bytes(axes) and flops(axes) return whole numbers",
    )
