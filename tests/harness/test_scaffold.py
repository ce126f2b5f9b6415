from pathlib import Path

import pytest
from kopt_harness.build import build_in_worker
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, NotFoundError, UsageError
from kopt_harness.pack import load, read_tunables
from kopt_harness.root import Root
from kopt_harness.scaffold import create_solution
from kopt_harness.schema import Definition

CATALOG = Catalog(Root(Path(__file__).resolve().parents[2]))
DECODE = CATALOG.resolve("gdn_decode")


@pytest.mark.parametrize("definition", CATALOG.definitions(), ids=lambda d: d.kopt.alias)
def test_every_definition_has_a_python_start(tmp_path: Path, definition: Definition) -> None:
    """For any definition the scaffold has the content of a solution that is known to pass."""
    made = create_solution(
        CATALOG, definition, "mine", language="python", author="me", folder=tmp_path / "mine"
    )
    origin = CATALOG.solution(definition, made.origin).solution
    assert "cpu" in origin.spec.target_hardware
    assert made.solution.sha256 == origin.sha256
    assert (made.solution.name, made.solution.author) == ("mine", "me")
    assert (tmp_path / "mine" / "README.md").read_text().startswith("# mine\n")


def test_a_python_scaffold_builds(tmp_path: Path) -> None:
    """The builder accepts what the scaffold wrote."""
    folder = tmp_path / "mine"
    create_solution(CATALOG, DECODE, "mine", language="python", author="me", folder=folder)
    solution = load(folder, known=CATALOG).solution
    assert build_in_worker(solution, "cpu", tmp_path / "cache").ok


def test_knobs_come_along(tmp_path: Path) -> None:
    """A start with tunables keeps them declared, not frozen into a generated file."""
    folder = tmp_path / "mine"
    made = create_solution(CATALOG, DECODE, "mine", language="cpp", author="me", folder=folder)
    origin = CATALOG.folder(DECODE) / "solutions" / made.origin
    assert read_tunables(folder) == read_tunables(origin)
    assert not list(folder.rglob("tunables.h"))


def test_default_place_is_the_definition_folder(tmp_path: Path) -> None:
    """Without a folder, the solution goes where kopt looks for solutions."""
    definition = DECODE
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    source = CATALOG.folder(definition)
    target = kernels / definition.name
    solution = target / "solutions" / "torch-vectorized" / "solution" / "python"
    solution.mkdir(parents=True)
    relative = Path("solutions") / "torch-vectorized"
    for name in ("definition.json", relative / "config.toml"):
        (target / name).write_text((source / name).read_text())
    for file in (source / relative / "solution" / "python").glob("*.py"):
        (solution / file.name).write_text(file.read_text())
    catalog = Catalog(Root(tmp_path))
    made = create_solution(catalog, definition, "mine", language="python", author="me")
    assert made.folder == target / "solutions" / "mine"
    assert "mine" in catalog.solution_names(definition)
    assert "kernels/" in (made.folder / "README.md").read_text()
    assert str(tmp_path) not in (made.folder / "README.md").read_text()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp/x", ".hidden", "-x", "a b", "x" * 65])
def test_names_that_are_no_folder_names_are_refused(tmp_path: Path, name: str) -> None:
    """A name cannot lead out of the solutions folder, and nothing is written."""
    with pytest.raises(InvalidInputError):
        create_solution(
            CATALOG, DECODE, name, language="python", author="me", folder=tmp_path / "out"
        )
    assert list(tmp_path.iterdir()) == []


def test_an_existing_solution_is_not_overwritten() -> None:
    """The name of a shipped solution is taken."""
    with pytest.raises(InvalidInputError, match="exists"):
        create_solution(CATALOG, DECODE, "torch-vectorized", language="python", author="me")


def test_language_without_a_start_lists_those_with_one(tmp_path: Path) -> None:
    """A language that nobody has used yet is a usage error that says which ones have a start."""
    with pytest.raises(UsageError) as caught:
        create_solution(
            CATALOG, DECODE, "mine", language="cobol", author="me", folder=tmp_path / "out"
        )
    assert "python" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_start_can_be_named(tmp_path: Path) -> None:
    """--from takes any solution of the language; another language or name is an error."""
    made = create_solution(
        CATALOG,
        DECODE,
        "mine",
        language="python",
        author="me",
        origin="torch-vectorized",
        folder=tmp_path / "mine",
    )
    assert made.origin == "torch-vectorized"
    with pytest.raises(UsageError, match="python"):
        create_solution(
            CATALOG, DECODE, "other", language="cpp", author="me", origin="torch-vectorized"
        )
    with pytest.raises(NotFoundError, match="absent"):
        create_solution(CATALOG, DECODE, "other", language="cpp", author="me", origin="absent")
