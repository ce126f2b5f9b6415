"""Noise floors: what they are kept by, and what a comparison makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError
from kopt_harness.ledger import DictLedger
from kopt_harness.noise import (
    MARGIN_WITHOUT_FLOOR,
    NoiseFloor,
    NoiseKey,
    load_floor,
    margin_of,
    recorded_margin,
    store_floor,
)
from kopt_harness.options import MeasureOptions
from kopt_harness.root import Root
from kopt_harness.schema import Definition, SolutionRef
from kopt_harness.setting import Setting


@pytest.fixture
def root(tmp_path: Path, checkout: Path) -> Root:
    """The project's definitions, with no floors."""
    (tmp_path / "kernels").symlink_to(checkout / "kernels")
    return Root(tmp_path)


def here(root: Root, **options: object) -> Setting:
    """The CPU of this machine."""
    return Setting.here(Catalog(root), "cpu", MeasureOptions.model_validate(options))


def floor_of(setting: Setting, definition: Definition, value: float) -> NoiseFloor:
    """A floor for exactly this setting."""
    return NoiseFloor(
        key=NoiseKey.of(setting, definition),
        date="2026-11-29T00:00:00+00:00",
        solution=SolutionRef(name="s", definition=definition.name, sha256="0" * 64),
        comparisons=30,
        resamples=2000,
        floor=value,
        half_width=0.01,
        process_spread=0.001,
        regimes={"batch_size=1": 0.03},
        blocks_max=16,
    )


def test_a_floor_is_read_as_it_was_stored(root: Root, gdn_decode: Definition) -> None:
    """The newest of its key, below the root's local data."""
    setting = here(root)
    for value in (0.03, 0.04):
        path = store_floor(root, floor_of(setting, gdn_decode, value))
    assert path.is_relative_to(root.local)
    assert load_floor(root, NoiseKey.of(setting, gdn_decode)) == floor_of(setting, gdn_decode, 0.04)
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"epoch": "another"},
        {"target": "h200"},
        {"timer": "events"},
        {"cache": "warm"},
        {"calls_per_slot": 9},
        {"definition": "another"},
    ],
)
def test_a_floor_of_another_key_is_none(
    root: Root, gdn_decode: Definition, other: dict[str, object]
) -> None:
    """A reboot, another timer, another cache state: measured again, or not known."""
    setting = here(root)
    store_floor(root, floor_of(setting, gdn_decode, 0.03))
    key = NoiseKey.of(setting, gdn_decode).model_copy(update=other)
    assert load_floor(root, key) is None


def test_the_floor_is_the_margin_where_none_was_given(root: Root, gdn_decode: Definition) -> None:
    """Given, floor, default, in this order; and never below the least."""
    assert margin_of(here(root), gdn_decode) == (MARGIN_WITHOUT_FLOOR, "default")
    assert margin_of(here(root, margin_min=0.05), gdn_decode) == (0.05, "default")
    store_floor(root, floor_of(here(root), gdn_decode, 0.03))
    assert margin_of(here(root), gdn_decode) == (0.03, "noise-floor")
    assert margin_of(here(root, margin=0.0), gdn_decode) == (0.0, "given")
    assert margin_of(here(root, margin=0.1), gdn_decode) == (0.1, "given")
    assert margin_of(here(root, margin_min=0.04), gdn_decode) == (0.04, "noise-floor")
    assert margin_of(here(root, cache="warm"), gdn_decode).source == "default"


@pytest.mark.parametrize("counts", [{"comparisons": 4}, {"comparisons": 9, "resamples": 10}])
def test_a_floor_of_few_comparisons_is_no_margin(
    root: Root, gdn_decode: Definition, counts: dict[str, int]
) -> None:
    """One comparison, however often it is drawn again, knows one pair of processes."""
    few = floor_of(here(root), gdn_decode, 0.001).model_copy(update=counts)
    store_floor(root, few)
    assert margin_of(here(root), gdn_decode) == (MARGIN_WITHOUT_FLOOR, "default")


def test_a_margin_is_recorded_once(root: Root, gdn_decode: Definition) -> None:
    """Unless it was given: then what is given now counts, and nothing is recorded."""
    ledger, setting = DictLedger(), here(root)
    first = recorded_margin(setting, gdn_decode, ledger, "margin/a-b")
    store_floor(root, floor_of(setting, gdn_decode, 0.07))
    assert recorded_margin(setting, gdn_decode, ledger, "margin/a-b") == first
    assert recorded_margin(setting, gdn_decode, ledger, "margin/a-c").value == 0.07
    given = recorded_margin(here(root, margin=0.3), gdn_decode, ledger, "margin/a-b")
    assert given == (0.3, "given")
    assert ledger.completed() == ("margin/a-b", "margin/a-c")


def test_what_is_no_floor_is_refused_with_its_place(root: Root, gdn_decode: Definition) -> None:
    """A damaged file, and one that somebody copied from another machine."""
    setting = here(root)
    key = NoiseKey.of(setting, gdn_decode)
    path = key.path(root)
    path.parent.mkdir(parents=True)
    path.write_text('{"floor": -1}')
    with pytest.raises(InvalidInputError, match="not a noise floor") as refused:
        load_floor(root, key)
    assert str(path) in refused.value.message
    foreign = floor_of(setting, gdn_decode, 0.01)
    moved = foreign.model_copy(update={"key": key.model_copy(update={"epoch": "elsewhere"})})
    path.write_text(moved.model_dump_json())
    with pytest.raises(InvalidInputError, match="'elsewhere'"):
        margin_of(setting, gdn_decode)
