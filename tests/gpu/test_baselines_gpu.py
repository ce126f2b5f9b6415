"""Baselines on the GPU that is here: peers that are installed are right, and timed in pairs."""

from __future__ import annotations

import pytest
from kopt_harness.baselines import (
    REFERENCE,
    baselines_document,
    find_baseline,
    peer_names,
    require_usable,
)
from kopt_harness.catalog import Catalog
from kopt_harness.errors import UnavailableError
from kopt_harness.evaluate import evaluate
from kopt_harness.lease import device_lease
from kopt_harness.ledger import DictLedger
from kopt_harness.options import MeasureOptions
from kopt_harness.schema import Definition, Verdict, Workload
from kopt_harness.setting import Setting
from kopt_harness.sweep import sweep
from kopt_harness.targets import best_target

TARGET = best_target()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(TARGET.kind != "cuda", reason="no GPU target is in this machine"),
]
OPTIONS = MeasureOptions(trials=2, pool=2, bench_calls=20, blocks_min=3, blocks_max=4)


@pytest.fixture(scope="module")
def workloads(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """B = 1 and B = 64."""
    by_batch = {w.axes["batch_size"]: w for w in catalog.workloads(gdn_decode)}
    return [by_batch[1], by_batch[64]]


@pytest.mark.parametrize("name", [REFERENCE, "fla", "fla@graph", "flashinfer"])
def test_a_baseline_is_right_and_timed(catalog, gdn_decode, workloads, name: str) -> None:
    """Both tiers on every generator; a peer is flagged, so that it can promote nobody."""
    setting = Setting.here(catalog, TARGET.name, OPTIONS)
    peer = find_baseline(catalog, gdn_decode, name)
    try:
        require_usable(peer, TARGET)
    except UnavailableError as error:
        pytest.skip(error.message)
    with device_lease(setting.device_id):
        found = evaluate(setting, peer, workloads, DictLedger(), timed=True)
    assert found.verdict == Verdict.PASS, found.reasons
    codes = {flag.code for flag in found.flags}
    if name != REFERENCE:
        assert {"lint-library-call", "library-call"} <= codes
    for row in found.workloads:
        assert row.timing is not None
        assert row.timing["median_us"] > 0


def test_a_sweep_reports_ratios_to_every_baseline(catalog, gdn_decode, workloads) -> None:
    """Reference and installed peers, each paired with the candidate on every workload."""
    names = [REFERENCE]
    for name in peer_names(catalog, gdn_decode):
        try:
            require_usable(find_baseline(catalog, gdn_decode, name), TARGET)
        except UnavailableError:
            continue
        names.append(name)
    options = OPTIONS.model_copy(update={"baselines": tuple(names)})
    setting = Setting.here(catalog, TARGET.name, options)
    candidate = catalog.solution(gdn_decode, "triton-recurrent").solution
    found = sweep(setting, candidate, None, workloads, DictLedger())
    assert found.evaluation.verdict == Verdict.PASS, found.evaluation.reasons
    document = baselines_document(found)
    assert list(document["baselines"]) == names
    for row in document["baselines"].values():
        assert row["ci"][0] <= row["ratio"] <= row["ci"][1]
    # float64 in dozens of launches against one kernel
    assert document["baselines"][REFERENCE]["ratio"] > 2
    assert (document["best_baseline"] is None) == (len(names) == 1)
