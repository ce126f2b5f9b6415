"""Solutions by content, runs by id, and evidence that is written whole."""

import gzip
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kopt_harness.archive import Archive
from kopt_harness.atomic import write_atomic
from kopt_harness.errors import InvalidInputError, NotFoundError
from kopt_harness.retain import Evidence, point_to, set_incumbent, write_evidence
from kopt_harness.schema import BuildSpec, Solution, SourceFile


def _solution(body: str = "def run(x): return x\n", name: str = "plain") -> Solution:
    return Solution(
        name=name,
        definition="op",
        author="kopt",
        spec=BuildSpec(language="python", entry_point="kernel.py::run"),
        sources=(SourceFile(path="kernel.py", content=body),),
    )


def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    """The name is not part of the content."""
    archive = Archive(tmp_path)
    archive.put(_solution(name="one"))
    archive.put(_solution(name="two"))
    archive.put(_solution("def run(x): return x + 1\n"))
    assert len(list(archive.objects.iterdir())) == 2


def test_a_solution_comes_back_by_prefix(tmp_path: Path) -> None:
    """As short as history prints it."""
    archive = Archive(tmp_path)
    solution = _solution()
    archive.put(solution)
    assert archive.get(solution.sha256) == solution
    assert archive.get(solution.sha256[:12]) == solution


@pytest.mark.parametrize("name", ["", "abc", "ffffffffffff", "../objects/x", "*", "????????"])
def test_an_unknown_hash_is_a_clear_error(tmp_path: Path, name: str) -> None:
    """Wildcards and paths are not hashes either."""
    archive = Archive(tmp_path)
    archive.put(_solution())
    with pytest.raises(NotFoundError, match="no archived solution"):
        archive.get(name)


def test_a_changed_object_is_not_trusted(tmp_path: Path) -> None:
    """An object whose content is not its name is refused, so it can never be promoted."""
    archive = Archive(tmp_path)
    path = archive.put(_solution())
    path.write_text(path.read_text().replace("return x", "return 0"))
    with pytest.raises(InvalidInputError, match="was changed"):
        archive.get(path.stem)


def test_runs_are_found_by_any_part_of_their_id(tmp_path: Path) -> None:
    """Ids sort by time, and an ambiguous part is an error that lists the matches."""
    archive = Archive(tmp_path)
    first = archive.create_run("gdn_decode-cpu", {"definition": "a"})
    second = archive.create_run("moe_fp8-cpu", {"definition": "b"})
    assert {run.id for run in archive.runs()} == {first.id, second.id}
    assert archive.run("moe_fp8").manifest()["definition"] == "b"
    assert archive.run(first.id).manifest()["run"] == first.id
    with pytest.raises(NotFoundError, match="part of 2 runs"):
        archive.run("cpu")
    with pytest.raises(NotFoundError, match="no run 'nothing'"):
        archive.run("nothing")


def test_a_run_folder_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    """A run killed while it was created is not offered for resumption."""
    archive = Archive(tmp_path)
    (archive.runs_folder / "half" / "logs").mkdir(parents=True)
    assert archive.runs() == ()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """A reader never sees a part of a file."""
    path = tmp_path / "file.json"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.json"]


def test_evidence_is_complete_and_repeatable(tmp_path: Path) -> None:
    """Writing it again after an interruption changes no byte."""
    evidence = Evidence(
        solution=_solution(),
        summary={"mean_us": 1.5},
        samples={"r1/sweep/b0": {"a_ns": [1], "b_ns": [2]}},
        decision={"label": "promote"},
        profile={"kernels": []},
    )
    write_evidence(tmp_path, evidence)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {
        "decision.json",
        "profile.json",
        "samples.json.gz",
        "solution.json",
        "summary.json",
    }
    assert json.loads(gzip.decompress(before["samples.json.gz"])) == evidence.samples
    write_evidence(tmp_path, evidence)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


_RETAINED = """\
# Incumbents; kopt promote moves an entry.

[cpu]  # the processor
solution = "old"

# A note about the H200.
[h200]
solution = "other"
sha256 = "aa"  # checked by hand
"""


def test_only_one_target_of_the_pointer_moves(tmp_path: Path) -> None:
    """Comments and the entries of other targets stay as they are."""
    path = tmp_path / "retained.toml"
    path.write_text(_RETAINED)
    solution = _solution(name="new")
    set_incumbent(path, "cpu", solution)
    expected = _RETAINED.replace(
        'solution = "old"', f'solution = "new"\nsha256 = "{solution.sha256}"'
    )
    text = path.read_text()
    assert tomllib.loads(text) == tomllib.loads(expected)
    assert [line for line in text.splitlines() if "sha256" not in line] == [
        line.replace('"old"', '"new"') for line in _RETAINED.splitlines() if "sha256" not in line
    ]
    assert 'sha256 = "aa"  # checked by hand' in text


def test_a_missing_file_and_a_missing_table_are_made(tmp_path: Path) -> None:
    """The first promotion for a target adds its table."""
    path = tmp_path / "retained.toml"
    set_incumbent(path, "cpu", _solution(name="a"))
    set_incumbent(path, "b200", _solution(name="b"))
    data = tomllib.loads(path.read_text())
    assert (data["cpu"]["solution"], data["b200"]["solution"]) == ("a", "b")


@pytest.mark.parametrize("text", ['cpu = {solution = "a"}\n', "cpu.solution = 'a'\n", "[cpu\n"])
def test_a_layout_that_cannot_be_kept_is_refused(text: str) -> None:
    """Rather no promotion than a damaged file."""
    with pytest.raises(InvalidInputError):
        point_to(text, "cpu", "new", "00")


@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\x7f")))
def test_any_name_is_written_as_toml(name: str) -> None:
    """Quotes, backslashes and control characters in a name do not break the file."""
    data = tomllib.loads(point_to(_RETAINED, "h200", name, "bb"))
    assert data["h200"] == {"solution": name, "sha256": "bb"}
    assert data["cpu"] == {"solution": "old"}


def test_runs_of_one_second_are_listed_in_the_order_of_their_start(tmp_path: Path) -> None:
    """The latest run is the last one, which status and resume rely on."""
    archive = Archive(tmp_path)
    created = [archive.create_run("toy-cpu", {}).id for _ in range(20)]
    assert [run.id for run in archive.runs()] == created
    assert len(set(created)) == 20


@pytest.mark.parametrize(
    ("latest", "first"),
    [
        ("20991231-101010-toy-cpu-00fe", "20991231-101010-x-00ff"),
        ("20991231-235959-a-ffff", "2100"),
    ],
)
def test_a_run_after_the_clock_was_set_back_is_the_latest(
    tmp_path: Path, latest: str, first: str
) -> None:
    """Its name tells another time; the order is that in which runs were made."""
    archive = Archive(tmp_path)
    (archive.runs_folder / latest).mkdir(parents=True)
    (archive.runs_folder / latest / "manifest.json").write_text("{}")
    made = [archive.create_run("x", {}).id for _ in range(3)]
    assert made[0].startswith(first)
    assert [run.id for run in archive.runs()] == [latest, *made]


def test_a_sweep_elsewhere_is_linked(tmp_path: Path) -> None:
    """Once, however often it is continued; one whose folder is gone is not listed."""
    archive = Archive(tmp_path / "local")
    place = tmp_path / "results"
    first = archive.create_sweep("toy-cpu", {"kind": "sweep"}, place)
    manifest = first.manifest()
    assert archive.create_sweep("toy-cpu", {"kind": "sweep"}, place).manifest() == manifest
    (link,) = archive.sweeps_folder.iterdir()
    assert link.name == manifest["run"]
    assert link.resolve() == place
    assert archive.create_sweep("toy-cpu", {"kind": "sweep"}).folder.parent == link.parent
