"""Peers and the reference as baselines: found, packed, never candidates, timed in pairs."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.cli.sweep import _baseline_line, sweep_document
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_controller.space import CatalogSpace
from kopt_harness.baselines import (
    REFERENCE,
    baseline_names,
    baselines_document,
    find_baseline,
    find_baselines,
    peer_names,
    peers_among,
    reference_latency,
    reference_solution,
    require_usable,
    workload_medians,
)
from kopt_harness.catalog import Catalog
from kopt_harness.compare import Pair
from kopt_harness.errors import NotFoundError, UnavailableError
from kopt_harness.evaluate import evaluate
from kopt_harness.ledger import DictLedger
from kopt_harness.lint import lint
from kopt_harness.options import MeasureOptions
from kopt_harness.outcome import CandidateFailedError
from kopt_harness.pack import pack
from kopt_harness.retain import summarise
from kopt_harness.root import Root
from kopt_harness.schema import BuildSpec, Definition, Solution, SweepResult, Verdict, Workload
from kopt_harness.session import Session
from kopt_harness.setting import Setting
from kopt_harness.sweep import sweep
from kopt_harness.targets import get_target
from kopt_harness.worker.imports import install_import_hook

CHECKOUT = Path(__file__).resolve().parents[2]
CATALOG = Catalog(Root(CHECKOUT))
ALIASES = [definition.kopt.alias for definition in CATALOG.definitions()]
PEERS = [
    (definition.kopt.alias, name)
    for definition in CATALOG.definitions()
    for name in peer_names(CATALOG, definition)
]
MOE_PEERS = [
    "deepgemm-grouped",
    "deepgemm-grouped-lmdeploy",
    "deepgemm-mega",
    "deepgemm-mega-lmdeploy",
    "triton-fused-moe",
]
LIBRARIES = {"fla", "flashinfer", "deep_gemm", "lmdeploy", "vllm"}
OTHER_NAMES = {"flashinfer.topk", "deep_gemm", "lmdeploy.pytorch.kernels.cuda.moe.route_noaux_tc"}
"""Modules whose parameters are not named as the operator's inputs: positions are counted alone."""
OPTIONS = MeasureOptions(trials=1, pool=1, calls_per_slot=1, blocks_min=2, blocks_max=2)


@pytest.mark.parametrize(
    ("alias", "names"),
    [
        ("gdn_decode", ["fla", "flashinfer"]),
        ("gdn_prefill", ["fla", "fla-recurrent", "flashinfer", "flashinfer-cp"]),
        ("dsa_attention", ["fa3"]),
        ("dsa_topk", ["deepgemm-flashinfer", "deepgemm-torch"]),
        ("moe_fp8", MOE_PEERS),
    ],
)
def test_the_peers_are_those_that_the_documents_promise(alias: str, names: list[str]) -> None:
    """Found by their folders."""
    assert [name for of, name in PEERS if of == alias] == names


@pytest.mark.parametrize(("alias", "name"), PEERS)
def test_a_peer_packs_and_is_flagged_as_a_library_call(alias: str, name: str) -> None:
    """Name, definition, a pinned dependency, and nothing in it that would be rejected."""
    definition = CATALOG.resolve(alias)
    peer = find_baseline(CATALOG, definition, name)
    assert (peer.name, peer.definition) == (name, definition.name)
    assert all("==" in requirement for requirement in peer.spec.dependencies)
    assert peer.spec.dependencies
    found = lint(peer)
    assert found.reject is None
    assert [flag.code for flag in found.flags] == ["lint-library-call"]
    arguments = list(definition.inputs)
    if peer.spec.destination_passing_style:
        arguments += definition.outputs
    assert _parameters(peer) == arguments


def _parameters(solution: Solution) -> list[str]:
    source = next(s.content for s in solution.sources if s.path == solution.spec.entry_file)
    functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    (entry,) = [f for f in functions if f.name == solution.spec.entry_function]
    return [argument.arg for argument in entry.args.args]


@pytest.mark.parametrize(("alias", "name"), PEERS)
def test_a_peer_is_no_candidate(alias: str, name: str) -> None:
    """Neither the catalogue's solutions nor the space of the default agent have it."""
    definition = CATALOG.resolve(alias)
    assert name not in CATALOG.solution_names(definition)
    for target in ("cpu", "h200", "b200"):
        space = CatalogSpace(CATALOG, definition, get_target(target))
        assert name not in [family.name for family in space.families()]
    with pytest.raises(NotFoundError):
        CATALOG.solution(definition, name)


@pytest.mark.parametrize(("alias", "name"), PEERS)
def test_a_peer_calls_the_library_as_its_installed_version_allows(alias: str, name: str) -> None:
    """Where the package is here, it accepts every keyword that the peer gives."""
    peer = find_baseline(CATALOG, CATALOG.resolve(alias), name)
    tree = ast.parse(peer.sources[0].content)
    imports = [
        (str(node.module), imported.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in LIBRARIES
        for imported in node.names
    ]
    assert imports
    for module, function in imports:
        _accepts(tree, module, function)


def _accepts(tree: ast.Module, module: str, function: str) -> None:
    """Whether the installed library takes the one call of it as it is written."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        pytest.skip(f"{module} is not installed")
    (call,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == function
    )
    script = (
        f"import inspect, json, {module} as m\n"
        f"f = inspect.unwrap(m.{function})\n"
        "of = inspect.signature(f).parameters\n"
        "print(json.dumps([(name, of[name].kind.name) for name in of]))"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        pytest.skip(f"{module} cannot be imported here: {ran.stderr.strip().splitlines()[-1]}")
    parameters = dict(json.loads(ran.stdout.splitlines()[-1]))
    given = {keyword.arg for keyword in call.keywords}
    assert given <= set(parameters) or "VAR_KEYWORD" in parameters.values()
    if module in OTHER_NAMES:
        assert len(call.args) <= len(parameters)
        return
    positional = [
        node.id
        for argument in call.args
        for node in ast.walk(argument)
        if isinstance(node, ast.Name)
    ]
    expected = [name.replace("new_state", "state") for name in positional]
    assert list(parameters)[: len(positional)] == expected


INTERPRET = """
import json, runpy, sys
import torch
entry, folder = sys.argv[1:]
run = runpy.run_path(entry)["run"]
inputs, reference = (runpy.run_path(f"{folder}/{n}.py") for n in ("inputs", "reference"))
axes = {"batch_size": 2, "seq_len": 1, "num_q_heads": 4, "num_k_heads": 4, "num_v_heads": 8}
found = {}
for name, generator in inputs["GENERATORS"].items():
    rng = torch.Generator().manual_seed(3)
    drawn = generator.draw(axes | {"head_size": 128}, rng)
    expected, actual = reference["precise"](*drawn.values()), run(*drawn.values())
    found[name] = [
        float((a.double() - e.double()).norm() / e.double().norm())
        for a, e in zip(actual, expected)
    ]
print(json.dumps(found))
"""


def test_fla_has_the_semantics_of_the_operator() -> None:
    """Under Triton's interpreter, on every generator: gates, layout, heads, scale, no state."""
    # The interpreter cuts off where hardware rounds to bfloat16, so outputs get 2^-7.
    if importlib.util.find_spec("fla") is None:
        pytest.skip("fla-core is not installed")
    folder = CATALOG.folder(CATALOG.resolve("gdn_decode"))
    entry = folder / "peers" / "fla" / "solution" / "python" / "kernel.py"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERPRET, entry, folder],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found) >= 9
    for name, (output, state) in found.items():
        assert output <= 2**-7, name
        assert state <= 1e-5, name


@pytest.mark.parametrize("alias", ALIASES)
def test_the_reference_is_packed_from_the_definition(alias: str) -> None:
    """Its source is the definition's file, byte for byte, and it comes first."""
    definition = CATALOG.resolve(alias)
    assert baseline_names(CATALOG, definition)[0] == REFERENCE
    packed = find_baseline(CATALOG, definition, REFERENCE)
    (source,) = packed.sources
    assert source.content == (CATALOG.folder(definition) / "reference.py").read_text()
    assert lint(packed).reject is None
    assert not list((CATALOG.folder(definition) / "peers").glob("reference*"))


@pytest.mark.parametrize("alias", [alias for alias in ALIASES if alias != "moe_fp8"])
def test_the_reference_passes_its_own_definition(alias: str, catalog: Catalog) -> None:
    """In both tiers, on the smallest workload, as any solution must."""
    definition = catalog.resolve(alias)
    workload = min(catalog.workloads(definition), key=lambda w: catalog.cost(definition, w.axes))
    setting = Setting.here(catalog, "cpu", OPTIONS)
    solution = reference_solution(catalog, definition)
    found = evaluate(setting, solution, [workload], DictLedger(), stress_sets=1)
    assert found.verdict == Verdict.PASS, found.reasons
    assert not found.flags


def test_an_unknown_baseline_lists_those_there_are(gdn_decode: Definition) -> None:
    """Reference, peers and solutions."""
    with pytest.raises(NotFoundError, match="no baseline 'nobody'") as caught:
        find_baseline(CATALOG, gdn_decode, "nobody")
    for name in (REFERENCE, "fla", "flashinfer", "torch-vectorized"):
        assert name in caught.value.hint


def test_a_peer_for_gpus_is_refused_on_a_cpu(catalog: Catalog, gdn_decode: Definition) -> None:
    """Before anything is measured, with what could be done."""
    setting = Setting.here(catalog, "cpu", MeasureOptions(baselines=("fla",)))
    with pytest.raises(UnavailableError, match="for cuda, not 'cpu'") as caught:
        find_baselines(setting, gdn_decode)
    assert REFERENCE in caught.value.hint


@pytest.mark.parametrize(
    ("requirement", "words"),
    [("no-such-package-of-kopt==1", "not installed"), ("numpy==0.0.1", "is installed")],
)
def test_a_missing_package_is_named(make_solution: Any, requirement: str, words: str) -> None:
    """And so is one of another version: its times would be another baseline's."""
    solution = _with_dependency(make_solution("run = None"), requirement)
    with pytest.raises(UnavailableError, match=words) as caught:
        require_usable(solution, get_target("cpu"))
    assert requirement in caught.value.hint


def _with_dependency(solution: Solution, requirement: str) -> Solution:
    spec = solution.spec.model_dump() | {"dependencies": (requirement,)}
    return solution.model_copy(update={"spec": BuildSpec.model_validate(spec)})


@pytest.mark.parametrize(
    ("requirement", "module"),
    [
        ("fla-core==0.6.0", "fla"),
        ("flash-linear-attention", "fla"),
        ("flashinfer-python==0.6.18.post1", "flashinfer"),
        ("Flashinfer_Python>=0.6", "flashinfer"),
        ("sgl-deep-gemm", "deep_gemm"),
        ("lmdeploy==0.18.0", "lmdeploy"),
        ("vllm~=0.24", "vllm"),
    ],
)
def test_a_declared_library_can_be_imported(
    monkeypatch: pytest.MonkeyPatch, requirement: str, module: str
) -> None:
    """Distributions are often called otherwise than what they install."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    install_import_hook([])
    with pytest.raises(ImportError, match="declare it as a dependency"):
        sys.meta_path[0].find_spec(module, None)
    install_import_hook([requirement])
    assert sys.meta_path[0].find_spec(module, None) is None
    with pytest.raises(ImportError):
        sys.meta_path[0].find_spec("xformers", None)


@pytest.fixture(scope="module")
def smallest(catalog: Catalog, gdn_decode: Definition) -> list[Workload]:
    """B = 1 and B = 4."""
    by_batch = {w.axes["batch_size"]: w for w in catalog.workloads(gdn_decode)}
    return [by_batch[1], by_batch[4]]


@pytest.fixture(scope="module")
def swept(catalog: Catalog, gdn_decode: Definition, smallest: list[Workload]) -> SweepResult:
    """A solution against an incumbent, the reference and one more, really measured."""
    candidate = catalog.solution(gdn_decode, "torch-vectorized").solution
    options = OPTIONS.model_copy(update={"baselines": (REFERENCE, "cpp-recurrent")})
    setting = Setting.here(catalog, "cpu", options)
    return sweep(setting, candidate, candidate, smallest, DictLedger())


def test_a_sweep_times_its_baselines_in_pairs(
    swept: SweepResult, gdn_decode: Definition, smallest: list[Workload]
) -> None:
    """The baseline is A and the candidate B, on every workload, in the same epoch."""
    assert swept.evaluation.verdict == Verdict.PASS
    assert swept.comparison is not None
    assert list(swept.baselines) == [REFERENCE, "cpp-recurrent"]
    for comparison in swept.baselines.values():
        assert comparison.b == swept.evaluation.solution
        assert comparison.epoch == swept.comparison.epoch
        assert [row.uuid for row in comparison.workloads] == [w.uuid for w in smallest]
        assert all(row.n >= 2 for row in comparison.workloads)
    assert swept.baselines[REFERENCE].a.sha256 == reference_solution(CATALOG, gdn_decode).sha256


def test_ratios_are_baseline_over_candidate(swept: SweepResult) -> None:
    """The inverse of the comparison's, with the interval turned round."""
    found = baselines_document(swept)["baselines"]
    for name, comparison in swept.baselines.items():
        row = found[name]
        assert comparison.ratio is not None
        assert comparison.ci is not None
        assert row["ratio"] == pytest.approx(1 / comparison.ratio)
        assert row["ci"] == pytest.approx([1 / comparison.ci[1], 1 / comparison.ci[0]])
        assert row["ci"][0] <= row["ratio"] <= row["ci"][1]
        assert row["mean_us"] == comparison.a_mean_us


def test_the_best_baseline_is_a_peer_and_not_the_reference(swept: SweepResult) -> None:
    """With one peer it is that one; the smallest ratio of a workload is among its own."""
    best = swept.best_baseline
    assert best is not None
    assert set(best.fastest.values()) == {"cpp-recurrent"}
    peer = baselines_document(swept)["baselines"]["cpp-recurrent"]
    assert best.ratio == pytest.approx(peer["ratio"])
    assert best.ci is not None
    assert best.ci[0] <= best.ratio <= best.ci[1]
    ratios = [1 / row.ratio for row in swept.baselines["cpp-recurrent"].workloads if row.ratio]
    assert best.per_workload_min == pytest.approx(min(ratios))


def test_retained_evidence_has_the_baselines(swept: SweepResult) -> None:
    """Medians of each workload, both ratios, and the reference's latency in milliseconds."""
    document = summarise(
        swept, floors_us={}, floor_source="none", limits="none", date="d", provisional=True
    )
    assert set(document["baselines"]) == {REFERENCE, "cpp-recurrent"}
    assert set(document["best_baseline"]) >= {"ratio", "ci", "per_workload_min"}
    for row in document["workloads"]:
        assert row["baselines"] == workload_medians(swept, row["uuid"])
        assert all(median > 0 for median in row["baselines"].values())
        assert row["reference_latency_ms"] == row["baselines"][REFERENCE] / 1e3
        assert "reference_latency_reason" not in row
    assert document["incumbent"]["name"] == "torch-vectorized"


def test_result_files_have_the_baselines(swept: SweepResult) -> None:
    """The document of a sweep: by workload, over all, and a line for a person."""
    document = sweep_document(swept)
    assert document["baseline"]["a"]["name"] == REFERENCE
    assert set(document["baselines"]) == {REFERENCE, "cpp-recurrent"}
    assert document["best_baseline"]["ratio"] > 0
    for row in document["workloads"]:
        assert set(row["baselines"]) == set(document["baselines"])
        assert row["reference_latency_ms"] > 0
    found = document["baselines"][REFERENCE]
    line = _baseline_line(REFERENCE, found)
    assert f"{found['ratio']:.3f}" in line
    assert json.loads(json.dumps(document, allow_nan=False))["complete"]


def test_a_slow_reference_is_null_with_a_reason(
    catalog: Catalog, gdn_decode: Definition, smallest: list[Workload]
) -> None:
    """A call above the time allowed is not timed, and no number stands for it."""
    candidate = catalog.solution(gdn_decode, "torch-vectorized").solution
    options = OPTIONS.model_copy(update={"baselines": (REFERENCE,), "timed_call_s": 1e-6})
    setting = Setting.here(catalog, "cpu", options)
    found = sweep(setting, candidate, None, smallest[:1], DictLedger())
    assert found.evaluation.verdict == Verdict.PASS
    row = reference_latency(found, smallest[0].uuid)
    assert row["reference_latency_ms"] is None
    assert "one call takes" in row["reference_latency_reason"]
    assert baselines_document(found)["baselines"][REFERENCE]["ratio"] is None
    assert found.best_baseline is None


def test_a_wrong_baseline_ends_its_own_comparison(
    tmp_path: Path, smallest: list[Workload], honest: str
) -> None:
    """Its fault is the reason; the candidate keeps its verdict and its other baselines."""
    catalog = _root_with_peer(tmp_path, honest.replace("scale * (fresh", "2 * scale * (fresh"))
    definition = catalog.resolve("gdn_decode")
    candidate = catalog.solution(definition, "torch-vectorized").solution
    options = OPTIONS.model_copy(update={"baselines": ("doubled", REFERENCE)})
    found = sweep(
        Setting.here(catalog, "cpu", options), candidate, None, smallest[:1], DictLedger()
    )
    assert found.evaluation.verdict == Verdict.PASS
    assert "doubled: fail" in found.baselines["doubled"].reason
    assert found.baselines["doubled"].ratio is None
    assert found.baselines[REFERENCE].ratio is not None
    assert found.best_baseline is None


def test_a_peer_is_held_to_the_contests_rule_alone(
    tmp_path: Path, smallest: list[Workload], honest: str
) -> None:
    """A library that rounds more coarsely is timed all the same, and the document says so."""
    source = honest.replace("new_state.copy_(fresh)", "new_state.copy_(fresh.bfloat16())")
    assert source != honest
    catalog = _root_with_peer(tmp_path, source)
    definition = catalog.resolve("gdn_decode")
    candidate = catalog.solution(definition, "torch-vectorized").solution
    coarse = find_baseline(catalog, definition, "doubled")
    assert peers_among(catalog, candidate, coarse) == {coarse.sha256}
    setting = Setting.here(catalog, "cpu", OPTIONS.model_copy(update={"baselines": ("doubled",)}))
    assert evaluate(setting, coarse, smallest[:1], DictLedger()).verdict == Verdict.FAIL
    ledger = DictLedger()
    found = sweep(setting, candidate, None, smallest[:1], ledger)
    assert found.evaluation.verdict == Verdict.PASS
    assert "strict tier" in found.baselines["doubled"].deviations["doubled"].detail
    row = baselines_document(found)["baselines"]["doubled"]
    assert row["ratio"] is not None
    assert "as a candidate it would be refused" in _baseline_line("doubled", row)
    again = sweep(setting, candidate, None, smallest[:1], ledger)
    assert again.baselines["doubled"].deviations == found.baselines["doubled"].deviations
    with Session(setting, definition, smallest[:1]) as session:
        pair = Pair.of(
            setting, session, DictLedger(), coarse, candidate, peers=frozenset({coarse.sha256})
        )
        pair.measure(smallest[0], 1)
        assert pair.failure is None
        # Nowhere else: it may be a candidate of the same session.
        (number,) = session.sets(next(iter(session.generators)), 1)
        with pytest.raises(CandidateFailedError, match="strict tier"):
            session.call(coarse.sha256, number, phase="check", timed=False, full=True)
    copied = sweep(setting, coarse, None, smallest[:1], DictLedger())
    assert copied.evaluation.verdict == Verdict.FAIL


@pytest.mark.parametrize(("rows", "timed"), [(1, True), (2, False)])
def test_a_peer_that_misses_the_contests_rule_in_few_elements_is_timed(
    tmp_path: Path, smallest: list[Workload], honest: str, rows: int, timed: bool
) -> None:
    """One row of 128 may be a library's rounding; two are another operator."""
    source = honest.replace(
        "new_state.copy_(fresh)", f"new_state.copy_(fresh); new_state[..., :{rows}, :] += 100.0"
    )
    assert source != honest
    catalog = _root_with_peer(tmp_path, source)
    definition = catalog.resolve("gdn_decode")
    candidate = catalog.solution(definition, "torch-vectorized").solution
    setting = Setting.here(catalog, "cpu", OPTIONS.model_copy(update={"baselines": ("doubled",)}))
    found = sweep(setting, candidate, None, smallest[:1], DictLedger())
    assert found.evaluation.verdict == Verdict.PASS
    comparison = found.baselines["doubled"]
    if timed:
        assert comparison.ratio is not None
        assert "contest tier" in comparison.deviations["doubled"].detail
    else:
        assert comparison.ratio is None
        assert "contest tier" in comparison.reason


def _root_with_peer(path: Path, source: str) -> Catalog:
    """A root whose gdn_decode has the peer ``doubled``."""
    folder = path / "kernels" / "gdn_decode_qk4_v8_d128_k_last"
    folder.mkdir(parents=True)
    for entry in (CHECKOUT / "kernels" / folder.name).iterdir():
        if entry.name != "peers":
            (folder / entry.name).symlink_to(entry)
    peer = folder / "peers" / "doubled"
    (peer / "solution" / "python").mkdir(parents=True)
    config = (CHECKOUT / "kernels" / folder.name / "solutions" / "torch-vectorized").joinpath(
        "config.toml"
    )
    (peer / "config.toml").write_text(config.read_text().replace("torch-vectorized", "doubled"))
    (peer / "solution" / "python" / "kernel.py").write_text(source)
    assert pack(peer).solution.name == "doubled"
    return Catalog(Root(path))


def test_without_baselines_the_reference_latency_says_so(
    catalog, gdn_decode, make_solution
) -> None:
    """Null, and how to have it measured."""
    fast, slow = make_solution("run = 1", name="fast"), make_solution("run = 2", name="slow")
    device = SimulatedDevice(latency_us=lambda s, _: 50.0 if s.name == "fast" else 100.0)
    workloads = catalog.workloads(gdn_decode)
    found = SimulatedHarness("cpu", device).sweep(fast, slow, workloads, DictLedger())
    row = reference_latency(found, workloads[0].uuid)
    assert row["reference_latency_ms"] is None
    assert "--baseline reference" in row["reference_latency_reason"]
