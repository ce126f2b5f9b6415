"""What commands print with ``--json`` is what the reference says, and nothing else."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from kopt_controller.ablation import Wish, document_of, start_ablation
from kopt_controller.cli import build_app, main
from kopt_controller.config import RunConfig
from kopt_controller.documents import DOCUMENTS, WITHOUT_DOCUMENT, ErrorDocument
from kopt_controller.documents.loop import RunCost
from kopt_controller.simulated import SimulatedHarness
from kopt_harness.journal import Journal
from kopt_harness.schema import Model
from pydantic import TypeAdapter

from .conftest import make_toy

CHECKOUT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(CHECKOUT / "scripts" / "json_reference.py"))

Print = Callable[..., Any]
Toy = Any
"""The fixture's type lives in conftest.py."""


def names_of(model: type[Model]) -> set[str]:
    """Fields as they are printed."""
    fields = model.model_fields.items()
    return {field.alias or name for name, field in fields} - {"schema_"}


def test_the_reference_is_current() -> None:
    """``make docs`` would change nothing."""
    assert SCRIPT["reference"]() == (CHECKOUT / "docs" / "json.md").read_text(), "run make docs"
    assert SCRIPT["schema"]() == (CHECKOUT / "docs" / "json.schema.json").read_text()


def test_every_command_has_a_document() -> None:
    """A command that is added is described, or it is said why it has no document."""
    group: Any = typer.main.get_command(build_app())
    names = set()
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        names |= {f"{name} {each}" for each in inner} if inner else {name}
    assert names == {*DOCUMENTS, *WITHOUT_DOCUMENT}
    assert not DOCUMENTS.keys() & WITHOUT_DOCUMENT.keys()


def test_schemas_say_what_the_models_say() -> None:
    """Every name that a command has stands among the definitions, each field described or plain."""
    found = json.loads(SCRIPT["schema"]())
    for command, models in DOCUMENTS.items():
        for model, reference in zip(models, found["documents"][command], strict=True):
            definition = found["$defs"][reference["$ref"].rpartition("/")[2]]
            assert set(definition["properties"]) == names_of(model)
            assert definition["additionalProperties"] is False


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds that is not finished."""
    toy = make_toy(tmp_path_factory.mktemp("root"))
    campaign = toy.campaign(rounds=2, promotion="ask")
    campaign.execute()
    lines = campaign.run.journal_path.read_text().splitlines(keepends=True)
    campaign.run.journal_path.write_text("".join(lines[:-1]))
    for name in ("gdn_decode_qk4_v8_d128_k_last",):
        shutil.copytree(CHECKOUT / "artifacts" / "retained" / name, toy.root.retained / name)
        shutil.copytree(CHECKOUT / "kernels" / name, toy.root.kernels / name)
    return toy.root.path


@pytest.fixture
def printed(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Print:
    """What a command line prints."""
    monkeypatch.chdir(root)

    def run(*words: str, code: int = 0) -> Any:
        assert main(["--root", str(root), "--json", *words]) == code
        document = json.loads(capsys.readouterr().out)
        assert next(iter(document)) == "schema"
        assert document.pop("schema") == 1
        return document

    return run


def fits(document: Any, models: tuple[type[Model], ...]) -> bool:
    """Whether it is one of these, with no field too many and none left out."""
    for model in models:
        if set(document) == names_of(model):
            TypeAdapter(model).validate_json(json.dumps(document))
            return True
    return False


@pytest.mark.parametrize(
    "command",
    [
        "definitions",
        "doctor",
        "workloads toy",
        "export definition gdn_decode",
        "export solution kernels/toy_op_n/solutions/plain",
        "new gdn_decode fresh --language python",
        "pack kernels/toy_op_n/solutions/tuned",
        "evidence",
        "explain",
        "history",
        "status",
        "steer --note look",
        "report --definition gdn_decode",
        "reindex",
        "prompt --definition toy --target cpu --mode goal-only",
        "skills list",
        "skills install --for claude --dir skills",
    ],
)
def test_a_command_prints_what_the_reference_says(printed: Print, command: str) -> None:
    """Every field is there, none is unknown, each is of its type."""
    words = command.split()
    name = " ".join(words[:2]) if words[0] in ("export", "skills") else words[0]
    document = printed(*words)
    assert fits(document, DOCUMENTS[name]), sorted(document)


def test_results_of_others_and_packed_files(printed: Print, tmp_path: Path) -> None:
    """Commands that need a file of their own."""
    packed = tmp_path / "packed.json"
    printed("pack", "kernels/toy_op_n/solutions/plain", "-o", str(packed))
    document = printed("unpack", str(packed), str(tmp_path / "folder"))
    assert fits(document, DOCUMENTS["unpack"]), sorted(document)
    (tmp_path / "theirs").mkdir()
    line = {
        "definition": "toy_op_n",
        "workload": {"uuid": "00000000-toy", "axes": {"n": 1}},
        "solution": "theirs",
        "evaluation": {
            "status": "PASSED",
            "environment": {"hardware": "NVIDIA H200"},
            "timestamp": "2026-01-01",
            "log": "",
            "performance": {
                "latency_ms": 0.01,
                "reference_latency_ms": 0.02,
                "speedup_factor": 2.0,
            },
        },
    }
    (tmp_path / "theirs" / "trace.jsonl").write_text(json.dumps(line) + "\n")
    for command in ("audit", "import"):
        document = printed(command, str(tmp_path / "theirs"))
        assert fits(document, DOCUMENTS[command]), sorted(document)


def test_a_running_run_and_a_round(root: Path, printed: Print, tmp_path: Path) -> None:
    """While it is written, and the document of its rounds."""
    (folder,) = (root / "artifacts" / "local" / "runs").iterdir()
    with Journal(folder / "journal.jsonl"):
        document = printed("status")
    assert document["state"] == "running"
    assert fits(document, DOCUMENTS["status"])
    toy = make_toy(tmp_path)
    campaign = toy.campaign(rounds=1)
    campaign.execute()
    resumed = printed("--root", str(toy.root.path), "resume", campaign.run.id)
    assert fits(resumed, DOCUMENTS["resume"]), sorted(resumed)
    assert set(resumed["rounds"][0]["cost"]) == names_of(RunCost) - {"campaign_wall_s"}


def test_an_ablation_is_what_the_reference_says(toy: Toy) -> None:
    """Whole, and ended before its first campaign."""
    config = RunConfig(target="cpu", rounds=1, max_candidates=1)
    wish = Wish(definition="toy", config=config, seeds=2, start="tuned", mechanisms=("memory",))
    for given in (wish, wish._replace(total_s=0.0)):
        ablation = start_ablation(
            toy.root, given, lambda *_: SimulatedHarness("cpu", toy.device), lambda _: None
        )
        results = ablation.execute()
        found = document_of(ablation.run.id, ablation.plan, results, ablation.environment())
        assert found["complete"] == (given.total_s is None)
        assert fits(json.loads(json.dumps(found)), DOCUMENTS["ablate"]), sorted(found)


def test_an_error_is_a_document_too(printed: Print) -> None:
    """With what to do next."""
    assert fits(printed("status", "nothing", code=2), (ErrorDocument,))
