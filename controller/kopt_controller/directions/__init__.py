"""The catalogue of optimisation directions: one TOML file each in this folder.

A direction says when it applies (preconditions over a state signature), what it is expected
to do, which levers pull it (the tags that tunables carry), in which languages and on which targets,
how to go about it (playbook) and what may go wrong, and has an example signature that it is for
and one that it is not for. To add one, add a file; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kopt_harness.errors import InvalidInputError
from kopt_harness.files import read_toml
from kopt_harness.schema import Model
from pydantic import Field, ValidationError, model_validator

from ..state import Signature

__all__ = ["Direction", "Match", "Precondition", "load_directions"]

Truth = Literal["yes", "no", "unknown"]


class Precondition(Model):
    """One condition on one field of the signature; bounds are inclusive."""

    field: str
    """Name of a field of ``Signature``."""
    is_in: tuple[str, ...] | None = None
    """Values that a text field may have."""
    not_in: tuple[str, ...] | None = None
    """Values of a text field that exclude the direction; what nobody has measured does not, and
    makes the match no weaker."""
    min: float | None = None
    max: float | None = None
    measured: bool = False
    """Whether an unmeasured (null) field excludes the direction instead of leaving it open."""

    @model_validator(mode="after")
    def _one_test(self) -> Precondition:
        if self.field not in Signature.model_fields:
            raise ValueError(f"a signature has no field {self.field!r}")
        bounds = None if self.min is None and self.max is None else (self.min, self.max)
        if sum(test is not None for test in (self.is_in, self.not_in, bounds)) != 1:
            raise ValueError("give one of is_in, not_in, or min and/or max")
        return self

    def holds(self, signature: Signature) -> Truth:
        """Whether the signature meets it; ``unknown`` where the field was not measured."""
        value = getattr(signature, self.field)
        if value is None or value == "unknown":
            return "no" if self.measured else "unknown"
        if self.not_in is not None:
            return "no" if value in self.not_in else "yes"
        if self.is_in is not None:
            return "yes" if value in self.is_in else "no"
        low = self.min is None or value >= self.min
        high = self.max is None or value <= self.max
        return "yes" if low and high else "no"


class Match(NamedTuple):
    """How well a direction fits a signature."""

    score: float
    """0 excluded, 1 every precondition holds; an unknown one counts half."""
    reason: str


class Direction(Model):
    """One way of making a kernel faster."""

    id: str
    """Name of the file."""
    title: str
    preconditions: tuple[Precondition, ...] = ()
    """All must hold; what is unknown makes the match weaker."""
    expected_effect: str
    """What should change in the signature, for a reader who checks it afterwards."""
    prior_gain: float = Field(gt=0, lt=1)
    """Share of the time that it may win before anything is known; a prior, no measurement."""
    levers: tuple[str, ...]
    """Tags of the tunables that pull it."""
    languages: tuple[str, ...]
    """Languages in which it makes sense."""
    targets: tuple[str, ...]
    """Kinds of target, or names, for which it makes sense."""
    risks: tuple[str, ...]
    """What has gone wrong on this way, for whoever writes and whoever reviews."""
    references: tuple[str, ...]
    """Where more about it is written."""
    fits: dict[str, Any]
    """Fields of a signature that it is for; all others are as if nobody had measured them."""
    misses: dict[str, Any]
    """Fields of a signature that it is not for."""
    rewrites: bool = False
    """Whether another implementation serves it, not only another setting of the same."""
    playbook: str
    """How to go about it, for whoever writes candidates."""

    @model_validator(mode="after")
    def _examples_are_signatures(self) -> Direction:
        for name in (*self.fits, *self.misses):
            if name not in Signature.model_fields:
                raise ValueError(f"a signature has no field {name!r}")
        return self

    def is_for(self, target: str, kind: str) -> bool:
        """Whether it makes sense on a target of this name and kind; a simulated one is any."""
        return bool({target, kind} & set(self.targets)) or kind == "simulated"

    def match(self, signature: Signature) -> Match:
        """How well it fits; a condition that does not hold excludes it."""
        holds = [(condition, condition.holds(signature)) for condition in self.preconditions]
        # What only excludes says nothing where it is not known.
        holds = [(c, t) for c, t in holds if c.not_in is None or t != "unknown"]
        for condition, truth in holds:
            if truth == "no":
                value = getattr(signature, condition.field)
                return Match(0.0, f"{condition.field} is {value!r}")
        unknown = [condition.field for condition, truth in holds if truth == "unknown"]
        score = 1.0 if not holds else 1 - 0.5 * len(unknown) / len(holds)
        met = [
            f"{c.field} is {_short(getattr(signature, c.field))}" for c, t in holds if t == "yes"
        ]
        not_known = [f"{field} is not known" for field in unknown]
        return Match(score, ", ".join([*met, *not_known]) or "fits every state")

    def document(self) -> dict[str, Any]:
        """For the round's JSON: without the playbook."""
        return self.model_dump(mode="json", exclude={"playbook", "preconditions", "fits", "misses"})


@cache
def load_directions(folder: Path | None = None) -> Mapping[str, Direction]:
    """All directions by id, sorted.

    Args:
        folder: Another catalogue; the one that kopt ships by default.

    Raises:
        InvalidInputError: If a file is not a direction.
    """
    found = {}
    place = Path(__file__).parent if folder is None else folder
    for path in sorted(place.glob("*.toml")):
        try:
            found[path.stem] = Direction.model_validate({"id": path.stem, **read_toml(path)})
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InvalidInputError(
                f"the direction {path.stem!r} is malformed: {field}: {first['msg']}",
                hint=f"fields are {', '.join(Direction.model_fields)}",
            ) from error
    return found


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else repr(value)
