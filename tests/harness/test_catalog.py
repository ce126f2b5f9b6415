import json
from pathlib import Path
from typing import Any

import pytest
from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.pack import pack
from kopt_harness.regimes import Cost, derive_regimes, representatives
from kopt_harness.root import Root
from kopt_harness.schema import Definition, Workload

CHECKOUT = Path(__file__).resolve().parents[2]

COST = """
def compulsory_bytes(axes):
    return 8 * axes["rows"] * axes["width"]

def flops(axes):
    return axes["rows"] * axes["width"]
"""


def write_definition(root: Path, name: str, alias: str, rows: list[int]) -> Path:
    """A small definition with one variable axis and a python solution."""
    folder = root / "kernels" / name
    solution = folder / "solutions" / "plain" / "solution" / "python"
    solution.mkdir(parents=True)
    tensor = {"shape": ["rows", "width"], "dtype": "float32"}
    definition = {
        "name": name,
        "description": "Twice the input.",
        "op_type": "elementwise",
        "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 16}},
        "inputs": {"x": tensor},
        "outputs": {"y": tensor},
        "kopt": {"alias": alias, "strict": {"y": {"rel": 0.0, "source": "exact"}}},
    }
    (folder / "definition.json").write_text(json.dumps(definition))
    lines = [
        json.dumps({"uuid": f"{alias}-{i:04d}", "axes": {"rows": n}}) for i, n in enumerate(rows)
    ]
    (folder / "workloads.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "cost.py").write_text(COST)
    (folder / "retained.toml").write_text('[cpu]\nsolution = "plain"\n')
    (folder / "solutions" / "plain" / "config.toml").write_text(
        f'[solution]\nname = "plain"\ndefinition = "{name}"\nauthor = "me"\n'
        '[build]\nlanguage = "python"\nentry_point = "kernel.py::run"\n'
    )
    (solution / "kernel.py").write_text("def run(x, y):\n    y.copy_(2 * x)\n")
    return folder


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Three small definitions, two of which share a prefix."""
    write_definition(tmp_path, "twice_w16", "twice", [1, 1, 2, 64, 64, 4096])
    write_definition(tmp_path, "twice_w32", "double", [3])
    write_definition(tmp_path, "thrice_w16", "triple", [5])
    return Catalog(Root(tmp_path))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("twice", "twice_w16"),  # an alias wins over the prefix of two ids
        ("twice_w32", "twice_w32"),
        ("double", "twice_w32"),
        ("dou", "twice_w32"),
        ("thr", "thrice_w16"),
        ("tri", "thrice_w16"),
    ],
)
def test_names_resolve(catalog: Catalog, name: str, expected: Any) -> None:
    """An alias, an id, or an unambiguous prefix of either names a definition."""
    assert catalog.resolve(name).name == expected


def test_one_definition_matching_twice_is_unambiguous(tmp_path: Path) -> None:
    """A prefix of both the id and the alias of one definition is no ambiguity."""
    write_definition(tmp_path, "twice_w16", "twice", [1])
    assert Catalog(Root(tmp_path)).resolve("twi").name == "twice_w16"


@pytest.mark.parametrize("name", ["t", "twice_"])
def test_ambiguous_names_list_the_matches(catalog: Catalog, name: str) -> None:
    """A prefix of several definitions is an error that names them."""
    with pytest.raises(NotFoundError) as caught:
        catalog.resolve(name)
    assert "ambiguous" in caught.value.message
    assert "twice_w16" in caught.value.hint
    assert "twice_w32" in caught.value.hint


@pytest.mark.parametrize("name", ["", "twicee", "TWICE"])
def test_unknown_names_list_what_there_is(catalog: Catalog, name: str) -> None:
    """An unknown definition is an error with all aliases, and near misses."""
    with pytest.raises(NotFoundError) as caught:
        catalog.resolve(name)
    assert repr(name) in caught.value.message
    assert "double" in caught.value.hint


def test_an_empty_root_says_so(tmp_path: Path) -> None:
    """Where kernels/ has no definition the error points at --root."""
    (tmp_path / "kernels").mkdir()
    with pytest.raises(NotFoundError) as caught:
        Catalog(Root(tmp_path)).resolve("gdn_decode")
    assert "--root" in caught.value.hint


@pytest.mark.parametrize(
    ("selectors", "indices"),
    [
        (["all"], [0, 1, 2, 3, 4, 5]),
        (["2"], [2]),
        (["twice-0003"], [3]),
        (["5", "0", "5"], [0, 5]),
        (["rep", "0"], None),
        ([], []),
    ],
)
def test_selectors(catalog: Catalog, selectors: list[str], indices: list[int] | None) -> None:
    """Indices, uuids, all and rep combine, each workload once, in file order."""
    definition = catalog.resolve("twice")
    found = [workload.index for workload in catalog.select(definition, selectors)]
    expected = indices or sorted({0} | {w.index for w in catalog.representatives(definition)})
    assert found == (expected if selectors else [])


@pytest.mark.parametrize("selector", ["6", "99", "-1", "twice-", "nope", ""])
def test_wrong_selectors(catalog: Catalog, selector: str) -> None:
    """An index out of range, an ambiguous prefix and an unknown uuid are errors with a hint."""
    with pytest.raises(NotFoundError) as caught:
        catalog.select(catalog.resolve("twice"), [selector])
    assert caught.value.hint


def test_uuid_prefix_selects(catalog: Catalog) -> None:
    """An unambiguous beginning of a uuid is enough."""
    definition = catalog.resolve("double")
    assert catalog.select(definition, ["double-"])[0].index == 0


def test_cost_comes_from_the_model(catalog: Catalog) -> None:
    """The cost model sees all axes, constant ones included."""
    assert catalog.cost(catalog.resolve("twice"), {"rows": 2}) == Cost(bytes=256, flops=32)


def read_everything(catalog: Catalog) -> None:
    """Reads every file of the definition ``twice``."""
    definition = catalog.resolve("twice")
    catalog.regimes(definition)
    catalog.incumbent(definition, "cpu")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("definition.json", "{", "not valid JSON"),
        ("definition.json", "[]", "definition.json"),
        ("definition.json", '{"name": "x"}', "missing"),
        ("workloads.jsonl", "{}\n", "workloads.jsonl:1"),
        ("workloads.jsonl", '{"uuid": "a", "axes": {"cols": 1}}\n', "cols"),
        ("workloads.jsonl", '{"uuid": "a", "axes": {"rows": 1}}\n' * 2, "twice"),
        ("workloads.jsonl", "[1]\n", "not a workload"),
        ("workloads.jsonl", "", "no workload"),
        ("workloads.jsonl", "[" * 100_000, "nested too deeply"),
        ("workloads.jsonl", '{"uuid": "a/b", "axes": {"rows": 1}}\n', "uuid"),
        ("workloads.jsonl", '{"uuid": "a", "axes": {"rows": -1}}\n', "rows"),
        ("workloads.jsonl", '{"uuid": "a", "axes": {"rows": true}}\n', "rows"),
        ("workloads.jsonl", '{"uuid": "a", "axes": {"rows": 1e18}}\n', "rows"),
        ("workloads.jsonl", '{"uuid": "a", "axes": {"rows": 1}, "index": 7}\n', "not a workload"),
        ("cost.py", "def (\n", "SyntaxError"),
        ("cost.py", "raise LookupError('it')\n", "LookupError: 'it'|LookupError: it"),
        ("cost.py", "def compulsory_bytes(axes): return axes['zz']\nflops = len\n", "zz"),
        ("cost.py", "def compulsory_bytes(axes): return -1\nflops = len\n", "-1 bytes"),
        ("retained.toml", "[cpu]\nsolution = 'x'\nsha256 = 3\n", "sha256"),
        ("cost.py", "flops = None\n", "cost model"),
        ("retained.toml", "[cpu\n", "not valid TOML"),
        ("retained.toml", "[cpu]\nsha256 = 'x'\n", "no solution"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, file: str, content: str, message: str) -> None:
    """Every file of a definition folder that is malformed is an error that names it."""
    folder = write_definition(tmp_path, "twice_w16", "twice", [1])
    (folder / file).write_text(content)
    with pytest.raises(InvalidInputError, match=message):
        read_everything(Catalog(Root(tmp_path)))


def test_folder_and_name_must_agree(tmp_path: Path) -> None:
    """A definition that was copied and not renamed is refused."""
    folder = write_definition(tmp_path, "twice_w16", "twice", [1])
    folder.rename(folder.with_name("copy"))
    with pytest.raises(InvalidInputError, match="twice_w16"):
        Catalog(Root(tmp_path)).definitions()


def test_aliases_are_distinct(tmp_path: Path) -> None:
    """Two definitions of one alias are refused, rather than one of them hidden."""
    write_definition(tmp_path, "twice_w16", "twice", [1])
    write_definition(tmp_path, "twice_w32", "twice", [1])
    with pytest.raises(InvalidInputError, match="'twice'"):
        Catalog(Root(tmp_path)).definitions()


def test_first_incumbent_is_the_folder(catalog: Catalog) -> None:
    """Without a hash, what the solution's folder packs to now is the incumbent."""
    incumbent = catalog.incumbent(catalog.resolve("twice"), "cpu")
    assert incumbent is not None
    assert incumbent.name == "plain"
    assert catalog.incumbent(catalog.resolve("twice"), "h200") is None


def test_incumbent_by_hash_survives_edits(catalog: Catalog) -> None:
    """With a hash, exactly those bytes count: from the archive once the folder has changed."""
    definition = catalog.resolve("twice")
    folder = catalog.folder(definition)
    solution = pack(folder / "solutions" / "plain").solution
    retained = f'[cpu]\nsolution = "plain"\nsha256 = "{solution.sha256}"\n'
    (folder / "retained.toml").write_text(retained)
    assert catalog.incumbent(definition, "cpu") == solution
    kernel = folder / "solutions" / "plain" / "solution" / "python" / "kernel.py"
    kernel.write_text("def run(x, y):\n    y.copy_(x + x)\n")
    with pytest.raises(NotFoundError, match="missing"):
        catalog.incumbent(definition, "cpu")
    Archive(catalog.root.local).put(solution)
    assert catalog.incumbent(definition, "cpu") == solution


def test_incumbent_comes_from_committed_evidence(catalog: Catalog) -> None:
    """A fresh checkout has no local archive: the committed solution is found."""
    definition = catalog.resolve("twice")
    solution = catalog.solution(definition, "plain").solution.model_copy(update={"name": "tuned"})
    evidence = catalog.root.retained / definition.name / "cpu" / "solution.json"
    evidence.parent.mkdir(parents=True)
    evidence.write_text(solution.model_dump_json())
    retained = f'[cpu]\nsolution = "tuned"\nsha256 = "{solution.sha256}"\n'
    (catalog.folder(definition) / "retained.toml").write_text(retained)
    found = catalog.incumbent(definition, "cpu")
    assert found is not None
    assert found.name == "tuned"


def test_unknown_solution_lists_those_there_are(catalog: Catalog) -> None:
    """A solution that does not exist is an error with the names."""
    with pytest.raises(NotFoundError) as caught:
        catalog.solution(catalog.resolve("twice"), "fancy")
    assert "plain" in caught.value.hint


def workloads_of(axes: list[dict[str, int]]) -> list[Workload]:
    """Workloads with these axes."""
    return [Workload(index=i, uuid=str(i), axes=a) for i, a in enumerate(axes)]


def product_cost(workload: Workload) -> Cost:
    """Proportional to the product of the axes."""
    size = 1
    for extent in workload.axes.values():
        size *= extent
    return Cost(bytes=100 * size, flops=1000 * size)


def test_workloads_of_equal_cost_are_one_regime() -> None:
    """Nothing is cut where nothing differs."""
    regimes = derive_regimes(workloads_of([{"n": 7}] * 5), ["n"], product_cost)
    assert [regime.name for regime in regimes] == ["n=7"]


def test_within_a_factor_of_two_is_one_regime() -> None:
    """Neighbours in cost stay together, and the name says their range."""
    regimes = derive_regimes(workloads_of([{"n": 32}, {"n": 64}]), ["n"], product_cost)
    assert [regime.name for regime in regimes] == ["n=32..64"]


def test_regimes_are_cut_where_cost_jumps() -> None:
    """The cuts fall into the gaps, cheapest regime first, whatever the order of the file."""
    rows = [5000, 1, 60, 4000, 1, 50, 55]
    regimes = derive_regimes(workloads_of([{"n": n} for n in rows]), ["n"], product_cost)
    assert [regime.name for regime in regimes] == ["n=1", "n=50..60", "n=4000..5000"]


def test_regimes_are_few_disjoint_and_complete() -> None:
    """At most six boxes; every workload in exactly one; every name different."""
    workloads = workloads_of([{"m": m, "n": n} for m in (1, 9, 80, 700) for n in range(1, 40, 3)])
    regimes = derive_regimes(workloads, ["m", "n"], product_cost)
    assert len(regimes) == 6
    assert len({regime.name for regime in regimes}) == 6
    members = [workload.index for regime in regimes for workload in regime.workloads]
    assert sorted(members) == list(range(len(workloads)))


def test_regimes_do_not_depend_on_file_order() -> None:
    """Equal workloads give equal regimes."""
    axes = [{"n": n} for n in (1, 2, 3, 40, 50, 900, 1000, 30000)]
    forward = derive_regimes(workloads_of(axes), ["n"], product_cost)
    backward = derive_regimes(workloads_of(axes[::-1]), ["n"], product_cost)
    assert [regime.name for regime in forward] == [regime.name for regime in backward]


def test_representative_is_the_median_of_its_regime() -> None:
    """One per regime, of middle cost."""
    workloads = workloads_of([{"n": n} for n in (1, 10, 12, 14)])
    chosen = representatives(derive_regimes(workloads, ["n"], product_cost), product_cost)
    assert [workload.axes["n"] for workload in chosen] == [1, 12]


def test_many_workloads_have_three_representatives() -> None:
    """Forty workloads in one regime are not represented by a single one."""
    workloads = workloads_of([{"n": 40 + i} for i in range(40)])
    regimes = derive_regimes(workloads, ["n"], product_cost)
    assert len(regimes) == 1
    assert len(representatives(regimes, product_cost)) == 3


def test_no_workloads_have_no_regimes() -> None:
    """A definition without workloads is not an error here."""
    assert derive_regimes([], ["n"], product_cost) == ()


@pytest.mark.parametrize("definition", Catalog(Root(CHECKOUT)).definitions(), ids=lambda d: d.name)
def test_every_shipped_definition_is_complete(definition: Definition) -> None:
    """Each definition has workloads, a cost for each, regimes, and a solution for its pointer."""
    catalog = Catalog(Root(CHECKOUT))
    workloads = catalog.workloads(definition)
    assert workloads
    for workload in workloads:
        cost = catalog.cost(definition, workload.axes)
        assert cost.bytes > 0
        assert cost.flops >= 0
    assert set(catalog.regimes(definition)) == {workload.uuid for workload in workloads}
    assert 1 <= len(catalog.representatives(definition)) <= 6
    assert catalog.incumbent(definition, "cpu") is not None
