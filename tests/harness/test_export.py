import ast
import json
from pathlib import Path

import pytest
from kopt_harness.catalog import Catalog
from kopt_harness.export import definition_document, definition_json
from kopt_harness.root import Root
from kopt_harness.schema import Definition

CHECKOUT = Path(__file__).resolve().parents[2]
OFFICIAL = CHECKOUT.parent / "shared" / "data" / "definitions"
CATALOG = Catalog(Root(CHECKOUT))


@pytest.mark.parametrize("definition", CATALOG.definitions(), ids=lambda d: d.kopt.alias)
def test_export_is_a_flashinfer_trace_definition(definition: Definition) -> None:
    """The document has that format's keys only, and a reference that defines run()."""
    document = json.loads(definition_json(CATALOG, definition))
    assert set(document) == {
        "name",
        "description",
        "op_type",
        "tags",
        "axes",
        "constraints",
        "inputs",
        "outputs",
        "reference",
    }
    functions = [
        node.name
        for node in ast.parse(document["reference"]).body
        if isinstance(node, ast.FunctionDef)
    ]
    assert "run" in functions
    for constraint in document["constraints"]:
        ast.parse(constraint, mode="eval")
    for axis in document["axes"].values():
        assert ("value" in axis) == (axis["type"] == "const")


@pytest.mark.parametrize("definition", CATALOG.definitions(), ids=lambda d: d.kopt.alias)
def test_export_has_the_official_interface(definition: Definition) -> None:
    """Axes, inputs and outputs have the official names, order, shapes and types."""
    path = OFFICIAL / f"{definition.name}.json"
    if not path.is_file():
        pytest.skip("the official definitions are not here")
    official, ours = json.loads(path.read_text()), definition_document(CATALOG, definition)
    assert ours["op_type"] == official["op_type"]
    for name, axis in official["axes"].items():
        assert ours["axes"][name]["type"] == axis["type"]
        assert ours["axes"][name].get("value") == axis.get("value")
    for side in ("inputs", "outputs"):
        assert list(ours[side]) == list(official[side])
        for name, spec in official[side].items():
            for key in ("shape", "dtype", "optional"):
                assert ours[side][name].get(key) == spec.get(key), (name, key)


@pytest.mark.parametrize("definition", CATALOG.definitions(), ids=lambda d: d.kopt.alias)
def test_flashinfer_bench_reads_the_export(definition: Definition) -> None:
    """Where the official package is installed, its own model accepts the file."""
    bench = pytest.importorskip("flashinfer_bench")
    read = bench.Definition.model_validate(definition_document(CATALOG, definition))
    assert read.name == definition.name
