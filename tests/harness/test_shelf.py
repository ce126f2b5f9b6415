"""Sets that the judge keeps for later sweeps: whole, secret, and never twice the same call."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest
import torch
from kopt_harness.catalog import Catalog
from kopt_harness.evaluate import evaluate
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Definition, Evaluation, Solution, Verdict
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.worker.shelf import MAX_AGE_S, Shelf, ShelvedSet

TELLS = """
def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    import hashlib
    told = []
    for change in (lambda x: x, lambda x: x.abs()):
        data = b"".join(change(x.float()).numpy().tobytes() for x in (q, k, v, state))
        told.append(hashlib.sha256(data).hexdigest()[:16])
    raise RuntimeError(f"given {told[0]} {told[1]}")
"""
LOOKS = """
def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    import os
    raise RuntimeError(f"found {{os.path.exists({path!r})}}")
"""


def shelf_of(folder: Path, definition: Definition, catalog: Catalog) -> Shelf:
    """As a judge opens it."""
    return Shelf(folder, definition, catalog.folder(definition), "cpu")


def drawn() -> ShelvedSet:
    """A set with all that a set can have."""
    values = {
        "x": torch.arange(12, dtype=torch.float32).view(3, 4).to(torch.bfloat16),
        "index": torch.tensor([3, 1], dtype=torch.int64),
        "empty": torch.empty(0, 5),
        "scale": 0.25,
        "state": None,
    }
    return ShelvedSet(values, {"y": torch.full((2, 3), float("nan")), "lse": None})


def same(a: ShelvedSet, b: ShelvedSet) -> bool:
    """Bit for bit, NaN included."""
    for left, right in zip(a, b, strict=True):
        assert list(left) == list(right)
        for name, value in left.items():
            if not isinstance(value, torch.Tensor):
                assert right[name] == value
                continue
            assert (right[name].dtype, right[name].shape) == (value.dtype, value.shape)
            bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (value, right[name])]
            assert torch.equal(*bits)
    return True


def test_a_set_comes_back_bit_for_bit(tmp_path, gdn_decode, catalog) -> None:
    """Tensors of every kind, numbers and what is absent; in memory of its own."""
    shelf = shelf_of(tmp_path, gdn_decode, catalog)
    assert shelf.take("u", "typical", 0) is None
    assert shelf.lay("u", "typical", 0, drawn())
    found = shelf.take("u", "typical", 0)
    assert found is not None
    assert same(found, drawn())
    found.values["x"].zero_()
    again = shelf_of(tmp_path, gdn_decode, catalog).take("u", "typical", 0)
    assert again is not None
    assert same(again, drawn())
    for other in (("v", "typical", 0), ("u", "ragged", 0), ("u", "typical", 1)):
        assert shelf.take(*other) is None


def test_the_first_who_lays_a_set_wins(tmp_path, gdn_decode, catalog) -> None:
    """A second judge keeps its own to itself, so that no contents are new to two candidates."""
    one, other = (shelf_of(tmp_path, gdn_decode, catalog) for _ in range(2))
    assert one.lay("u", "typical", 0, drawn())
    assert not other.lay("u", "typical", 0, ShelvedSet({"x": torch.zeros(2)}, {}))
    found = other.take("u", "typical", 0)
    assert found is not None
    assert same(found, drawn())


@pytest.mark.parametrize("cut", [0, 5, 100, -1])
def test_a_damaged_set_is_drawn_anew(tmp_path, gdn_decode, catalog, cut: int) -> None:
    """A torn or changed file is no expected output."""
    shelf = shelf_of(tmp_path, gdn_decode, catalog)
    assert shelf.lay("u", "typical", 0, drawn())
    (path,) = tmp_path.rglob("*.set")
    data = bytearray(path.read_bytes())
    if cut == -1:
        data[-70] ^= 1
    path.write_bytes(data if cut == -1 else data[:cut])
    assert shelf.take("u", "typical", 0) is None
    assert not path.exists()
    assert shelf.lay("u", "typical", 0, drawn())


def test_nothing_is_kept_of_another_reference_or_of_long_ago(tmp_path, gdn_decode, catalog) -> None:
    """A changed reference, and a pool that too many have met; also one from the future."""
    sources = tmp_path / "sources"
    sources.mkdir()
    for name in ("reference.py", "inputs.py"):
        (sources / name).write_bytes((catalog.folder(gdn_decode) / name).read_bytes())
    folder = tmp_path / "shelf"

    def opened() -> Shelf:
        return Shelf(folder, gdn_decode, sources, "cpu")

    assert opened().lay("u", "typical", 0, drawn())
    assert opened().take("u", "typical", 0) is not None
    (sources / "reference.py").write_text("# another\n")
    assert opened().take("u", "typical", 0) is None
    assert list(folder.rglob("*.set")) == []
    for created in (time.time() - 2 * MAX_AGE_S, time.time() + 2 * MAX_AGE_S):
        assert opened().lay("u", "typical", 0, drawn())
        (pool,) = folder.rglob("pool.json")
        pool.write_text(json.dumps({"created": created}))
        assert opened().take("u", "typical", 0) is None


def test_others_cannot_read_it(tmp_path, gdn_decode, catalog) -> None:
    """Folders and files are the judge's user's alone."""
    folder = tmp_path / "shelf"
    shelf_of(folder, gdn_decode, catalog).lay("u", "typical", 0, drawn())
    for path in (folder, *folder.rglob("*")):
        if path.suffix in ("", ".set"):
            assert path.stat().st_mode & 0o077 == 0, path


@pytest.fixture
def shelved(catalog: Catalog) -> Setting:
    """Two contest sets and a stress set on each workload, with a shelf below ``artifacts/``."""
    setting = Setting.here(catalog, "cpu", MeasureOptions(trials=2))
    folder = catalog.root.local / f"shelf-{time.monotonic_ns()}"
    return dataclasses.replace(setting, shelf=folder)


def run_once(setting: Setting, solution: Solution) -> tuple[Evaluation, dict[str, int]]:
    """A fresh judge and candidate; the evaluation, and what phases took."""
    definition = setting.catalog.resolve(solution.definition)
    workloads = setting.catalog.workloads(definition)[:1]
    with Session(setting, definition, workloads) as session:
        found = evaluate(setting, solution, workloads, DictLedger(), session=session, stress_sets=1)
        return found, session.phases_ns


def test_a_later_candidate_is_judged_by_kept_sets_and_a_new_one(
    shelved, make_solution, honest
) -> None:
    """Kept ones are varied, so that no call meets contents that were in one; all are checked."""
    first, phases = run_once(shelved, make_solution(honest))
    assert first.verdict == Verdict.PASS
    assert "vary" not in phases
    assert shelved.shelf is not None
    kept = sorted(path.stat().st_mtime_ns for path in shelved.shelf.rglob("*.set"))
    assert len(kept) == 2, "one contest set and the stress set; the other contest set is new"
    second, phases = run_once(shelved, make_solution(honest + "\n# b\n"))
    assert second.verdict == Verdict.PASS
    assert phases["vary"] > 0
    assert second.workloads[0].trials == first.workloads[0].trials == 3
    assert sorted(p.stat().st_mtime_ns for p in shelved.shelf.rglob("*.set")) == kept
    wrong = make_solution(honest + "    output[0, 0, 1, 2] += 0.5\n")
    assert run_once(shelved, wrong)[0].verdict == Verdict.FAIL


def test_the_same_contents_are_never_in_two_calls(shelved, make_solution) -> None:
    """Two candidates that tell what they were given in their first call saw different numbers."""
    solution = make_solution(TELLS)
    told = {run_once(shelved, solution)[0].reasons[0].detail for _ in range(3)}
    assert len(told) == 3
    words = [detail.partition("given ")[2].split() for detail in told]
    assert len({given for given, _ in words}) == 3
    assert len({sizes for _, sizes in words}) == 1, "that was not the kept set, varied"


def test_a_candidate_does_not_find_it(shelved, make_solution, honest) -> None:
    """What is below ``artifacts/`` is not there in the sandbox."""
    run_once(shelved, make_solution(honest))
    assert shelved.shelf is not None
    path = next(shelved.shelf.rglob("*.set"))
    for place in (path, shelved.shelf):
        looks = make_solution(LOOKS.format(path=str(place)))
        assert "found False" in run_once(shelved, looks)[0].reasons[0].detail


@pytest.mark.parametrize("how", ["seed", "no vary"])
def test_without_secrets_or_variation_there_is_no_shelf(
    shelved, make_solution, honest, how: str, tmp_path
) -> None:
    """A public seed would fill it with known sets; what cannot be varied is not used twice."""
    from kopt_harness.worker.pool import Pool

    definition = shelved.catalog.resolve("gdn_decode")
    folder = shelved.catalog.folder(definition)
    if how == "seed":
        options = shelved.options.model_copy(update={"seed": 3})
        run_once(dataclasses.replace(shelved, options=options), make_solution(honest))
    else:
        sources = tmp_path / "sources"
        sources.mkdir()
        (sources / "reference.py").write_bytes((folder / "reference.py").read_bytes())
        text = (folder / "inputs.py").read_text().replace("def vary(", "def no_vary(")
        (sources / "inputs.py").write_text(text)
        Pool(sources, definition, "cpu", None, shelved.shelf)
    assert shelved.shelf is not None
    assert not shelved.shelf.exists()
