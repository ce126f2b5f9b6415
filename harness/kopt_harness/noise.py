"""Noise floors: how far two runs of the same bytes lie apart, measured, and kept by epoch.

``kopt calibrate DEF --timing`` stores them below ``artifacts/local/noise``; a comparison in
the same epoch, with the same timer, cache state and calls a slot, takes the floor as its
margin where the user gave none. What the interval of one comparison cannot see, such as the
addresses that a process happened to get, is in the floor: its comparisons are between
processes that are started anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError

from kopt_harness.atomic import write_atomic
from kopt_harness.errors import InvalidInputError
from kopt_harness.ledger import Ledger, recorded
from kopt_harness.root import Root
from kopt_harness.schema import Definition, MarginSource, Model, SolutionRef
from kopt_harness.setting import Setting

__all__ = [
    "MARGIN_WITHOUT_FLOOR",
    "Margin",
    "NoiseFloor",
    "NoiseKey",
    "load_floor",
    "margin_of",
    "recorded_margin",
    "store_floor",
]

MARGIN_WITHOUT_FLOOR = 0.02
"""Where nothing was measured and nothing given."""
_LIVE_MIN = 5
"""Comparisons, each with new processes, that a floor is believed from."""
_MIN = 20
"""Together with those that were drawn again: 95 of 100 is a share of them."""


class NoiseKey(Model):
    """What a floor depends on; another one is not its."""

    definition: str
    target: str
    epoch: str
    timer: str
    cache: str
    calls_per_slot: int
    rounds: bool = False
    """Whether blocks come from processes of their own."""

    @classmethod
    def of(cls, setting: Setting, definition: Definition) -> NoiseKey:
        """That of a setting."""
        return cls(
            definition=definition.name,
            target=setting.target.name,
            epoch=str(setting.environment["epoch"]),
            timer=setting.timer,
            cache=setting.options.cache,
            calls_per_slot=setting.calls_per_slot,
            rounds=setting.rounds,
        )

    def path(self, root: Root) -> Path:
        """Where the floor is kept."""
        parts = [self.target, self.epoch, self.timer, self.cache, str(self.calls_per_slot)]
        name = "-".join([*parts, *["rounds"] * self.rounds]) + ".json"
        return root.local / "noise" / self.definition / name


class NoiseFloor(Model):
    """Of one definition in one epoch, at the budget of a comparison."""

    key: NoiseKey
    date: str
    solution: SolutionRef
    """What was compared with itself."""
    comparisons: int = Field(ge=1)
    """Live, each with new processes."""
    resamples: int = Field(ge=0)
    floor: float = Field(ge=0, lt=1)
    """What 95 of 100 comparisons stay within, as a share of the slower one's mean latency; at
    least 2.58 times ``process_spread``."""
    half_width: float = Field(ge=0)
    """Median of half the width of the interval's logarithm."""
    process_spread: float = Field(ge=0)
    """Standard deviation between comparisons of the log ratio, beyond that of their blocks."""
    regimes: dict[str, float] = {}
    """``floor`` of each regime."""
    blocks_max: int
    """Of a workload: the budget."""

    @property
    def is_telling(self) -> bool:
        """Whether it rests on enough comparisons to be a margin."""
        return self.comparisons >= _LIVE_MIN and self.comparisons + self.resamples >= _MIN


class Margin(NamedTuple):
    """A margin, and why it is what it is."""

    value: float
    source: MarginSource


def store_floor(root: Root, floor: NoiseFloor) -> Path:
    """Keeps a floor in the place of an older one of its key."""
    path = floor.key.path(root)
    write_atomic(path, floor.model_dump_json(indent=2) + "\n")
    return path


def load_floor(root: Root, key: NoiseKey) -> NoiseFloor | None:
    """The floor of a key; None where none is stored.

    Raises:
        InvalidInputError: what is stored is no floor, or another one's.
    """
    path = key.path(root)
    if not path.is_file():
        return None
    try:
        floor = NoiseFloor.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise InvalidInputError(
            f"{str(path)!r} is not a noise floor: {error.errors()[0]['msg']}",
            hint="remove it, and measure again with kopt calibrate --timing",
        ) from error
    if floor.key != key:
        raise InvalidInputError(
            f"{str(path)!r} holds the noise floor of {floor.key.definition!r} in epoch "
            f"{floor.key.epoch!r}",
            hint="remove it, and measure again with kopt calibrate --timing",
        )
    return floor


def margin_of(setting: Setting, definition: Definition) -> Margin:
    """What was given; else a telling floor, at least ``margin_min``; else the default."""
    options = setting.options
    if options.margin is not None:
        return Margin(options.margin, "given")
    floor = load_floor(setting.catalog.root, NoiseKey.of(setting, definition))
    if floor is None or not floor.is_telling:
        return Margin(max(options.margin_min, MARGIN_WITHOUT_FLOOR), "default")
    return Margin(max(options.margin_min, floor.floor), "noise-floor")


def recorded_margin(setting: Setting, definition: Definition, ledger: Ledger, key: str) -> Margin:
    """The same, as it was when the ledger was begun.

    A floor that is measured while a run is interrupted must not change what its samples say.
    """
    if setting.options.margin is not None:
        return margin_of(setting, definition)
    value = recorded(ledger, key, lambda: margin_of(setting, definition)._asdict())
    return Margin(**value)
