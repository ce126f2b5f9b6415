"""The index says what the journals say, whatever happens to it and whoever else asks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kopt_harness.archive import Archive
from kopt_harness.errors import InvalidInputError
from kopt_harness.index import FILE_NAME, Index
from kopt_harness.journal import Journal, read_journal

_WRITER = """
import sys
from pathlib import Path
from kopt_harness.archive import Archive
from kopt_harness.journal import Journal
archive = Archive(Path(sys.argv[1]))
run = archive.create_run("toy-cpu", {"kind": "toy", "definition": "d", "target": "cpu"})
with Journal(run.journal_path) as journal:
    for number in range(int(sys.argv[2])):
        journal.put(f"note/{number}", {"n": number})
print(run.id)
"""
_ASKER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_index import Notes
from kopt_harness.index import Index
counts = []
for _ in range(20):
    with Index(Path(sys.argv[1]), Notes()) as index:
        index.refresh()
        counts.append(index.counts()["records"])
assert counts == sorted(counts), counts
"""


class Notes:
    """Keeps every note; a note without a number is damaged."""

    version = "1"

    def manifest(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return {"kind": manifest["kind"]}

    def record(self, key: str, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        if not key.startswith("note/"):
            return None
        if "n" not in value:
            raise InvalidInputError("a note without a number")
        return "note", value

    def finishes(self, key: str) -> bool:
        return key == "end"


def _archive(local: Path, count: int = 3) -> Archive:
    archive = Archive(local)
    run = archive.create_run("toy-cpu", {"kind": "toy", "definition": "d", "target": "cpu"})
    with Journal(run.journal_path) as journal:
        for number in range(count):
            journal.put(f"note/{number}", {"n": number})
    return archive


def _notes(local: Path) -> list[list[int]]:
    with Index(local, Notes()) as index:
        index.refresh()
        return [[n["n"] for n in index.digests(run.id, "note")] for run in index.runs()]


def test_what_is_appended_is_taken_in(tmp_path: Path) -> None:
    """Only new records are read, and the state of a run is that of now."""
    archive = _archive(tmp_path)
    (run,) = archive.runs()
    with Index(tmp_path, Notes()) as index:
        assert index.refresh() == 3
        assert index.refresh() == 0
        with Journal(run.journal_path) as journal:
            journal.put("note/3", {"n": 3})
            assert index.refresh() == 1
            (row,) = index.runs("toy", definition="d", target="cpu")
            assert (row.state, row.records) == ("running", 4)
            assert row.last is not None
            assert row.last["key"] == "note/3"
            journal.put("end", {})
        index.refresh()
        assert [each.state for each in index.runs()] == ["finished"]
        assert index.runs("other") == index.runs(definition="e") == index.runs(target="x") == []
        assert [note["n"] for note in index.digests(run.id, "note")] == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", [b"no database", b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_index_is_made_again(tmp_path: Path, damage: bytes) -> None:
    """It holds nothing that the journals do not."""
    _archive(tmp_path)
    assert _notes(tmp_path) == [[0, 1, 2]]
    for suffix in ("-wal", "-shm"):
        (tmp_path / (FILE_NAME + suffix)).unlink(missing_ok=True)
    (tmp_path / FILE_NAME).write_bytes(damage)
    assert _notes(tmp_path) == [[0, 1, 2]]


def test_an_index_of_another_layout_is_made_again(tmp_path: Path) -> None:
    """What another version has kept is not mistaken for this one's."""

    class Later(Notes):
        version = "2"

        def record(self, key: str, value: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
            return "later", value

    (run,) = _archive(tmp_path).runs()
    assert _notes(tmp_path) == [[0, 1, 2]]
    with Index(tmp_path, Later()) as index:
        assert index.refresh() == 3
        assert len(index.digests(run.id, "later")) == 3
        assert index.digests(run.id, "note") == []


def test_a_torn_or_rewritten_journal_is_read_anew(tmp_path: Path) -> None:
    """The rest of it is used, the damage is named until it is gone."""
    (run,) = _archive(tmp_path).runs()
    assert _notes(tmp_path) == [[0, 1, 2]]
    whole = run.journal_path.read_bytes()
    run.journal_path.write_bytes(whole + b'{"schema":1,"seq":3')
    with Index(tmp_path, Notes()) as index:
        index.refresh()
        assert [note["n"] for note in index.digests(run.id, "note")] == [0, 1, 2]
        (problem,) = index.problems()
        assert "the last 19 bytes" in problem
        with Journal(run.journal_path) as journal:
            journal.put("note/3", {"n": 3})
        index.refresh()
        assert index.problems() == []
        assert [note["n"] for note in index.digests(run.id, "note")] == [0, 1, 2, 3]
        run.journal_path.write_bytes(whole.replace(b'"n":2', b'"n":7'))
        index.refresh()
        assert [note["n"] for note in index.digests(run.id, "note")] == [0, 1, 7]


def test_runs_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """A damaged manifest, a damaged record in the middle and a strange record stop nobody else."""
    archive = _archive(tmp_path)
    for _ in range(3):
        _archive(tmp_path)
    good, manifest, middle, strange = archive.runs()
    manifest.manifest_path.write_text("{")
    lines = middle.journal_path.read_bytes().splitlines(keepends=True)
    middle.journal_path.write_bytes(lines[0] + b"?\n" + lines[2])
    with Journal(strange.journal_path) as journal:
        journal.put("note/x", {})
    with Index(tmp_path, Notes()) as index:
        index.refresh()
        problems = dict(line.split(": ", 1) for line in index.problems())
        assert set(problems) == {manifest.id, middle.id, strange.id}
        assert "record 1 " in problems[middle.id]
        assert problems[strange.id] == "a note without a number"
        assert len(index.digests(good.id, "note")) == 3


def test_a_run_that_is_gone_leaves_the_index(tmp_path: Path) -> None:
    """Somebody made room."""
    archive = _archive(tmp_path)
    _archive(tmp_path, 1)
    assert _notes(tmp_path) == [[0, 1, 2], [0]]
    first = archive.runs()[0]
    first.folder.rename(tmp_path / "elsewhere")
    assert _notes(tmp_path) == [[0]]


def test_evaluations_are_found_by_solution(tmp_path: Path) -> None:
    """Under whatever prefix a check or a timing was recorded."""
    (run,) = _archive(tmp_path).runs()
    row = {"uuid": "u1", "verdict": "pass", "phase": "bench", "timing": {"median_us": 2.5}}
    with Journal(run.journal_path) as journal:
        journal.put("scope/bench/abc/u1/3+all", row)
        journal.put("check/abc/u2/3+1", row | {"uuid": "u2", "timing": None, "verdict": "fail"})
        journal.put("block/abc-def/u1/0", {"a_ns": [1]})
    with Index(tmp_path, Notes()) as index:
        index.refresh()
        found = [(e.uuid, e.verdict, e.median_us) for e in index.evaluations(solution="abc")]
        assert found == [("u1", "pass", 2.5), ("u2", "fail", None)]
        assert index.evaluations(solution="def") == []
        assert index.counts()["evaluations"] == 2


def test_several_processes_share_an_archive_and_its_index(tmp_path: Path) -> None:
    """Three write runs while two ask: every record once, and none comes and goes."""
    local = tmp_path / "local"
    local.mkdir()
    here = str(Path(__file__).parent)
    askers = [subprocess.Popen([sys.executable, "-c", _ASKER, str(local), here]) for _ in range(2)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(local), "40"], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    runs = {writer.communicate(timeout=60)[0].strip() for writer in writers}
    assert [each.wait(60) for each in askers] == [0, 0]
    assert len(runs) == 3
    assert _notes(local) == [list(range(40))] * 3
    for run in Archive(local).runs():
        assert [record.seq for record in read_journal(run.journal_path)] == list(range(40))


def test_a_question_loads_no_model(tmp_path: Path) -> None:
    """What takes longer than the question stays out of it."""
    _archive(tmp_path)
    code = (
        "import sys; from pathlib import Path; from kopt_controller.indexed import open_index, "
        "history_document\n"
        "with open_index(Path(sys.argv[1])) as index: history_document(index)\n"
        "print([n for n in ('pydantic', 'numpy', 'kopt_harness.schema') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_folder_and_a_read_only_one_are_answered_from_memory(tmp_path: Path) -> None:
    """A look at somebody else's archive writes nothing there."""
    assert _notes(tmp_path / "nowhere") == []
    assert not (tmp_path / "nowhere").exists()
    _archive(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code = (
        "import json, os, sys; from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from test_index import _notes\n"
        "for change in (os.setresgid, os.setresuid):\n"
        "    if os.getuid() == 0: change(65534, 65534, 65534)\n"
        "print(json.dumps(_notes(Path(sys.argv[1]))))"
    )
    for folder in (tmp_path, *tmp_path.rglob("*")):
        folder.chmod(0o555 if folder.is_dir() else 0o444)
    for folder in tmp_path.parents:
        if folder.owner() == tmp_path.owner() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)
        if folder.name.startswith("pytest-of-"):
            break
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    for folder in (tmp_path, *tmp_path.rglob("*")):
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[0, 1, 2]]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
