"""``kopt import`` and ``kopt audit``: documents, exit codes, tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_controller.cli import main
from kopt_harness.foreign import FindingCode, Severity


class Ran(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as the one JSON document that it must be."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def kopt(toy: Any, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Calls ``kopt`` on the toy root."""

    def run(*arguments: object) -> Ran:
        code = main(["--root", str(toy.root.path), *map(str, arguments)])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


def lines(path: Path, *statuses: str, count: int = 4) -> Path:
    """A trace of the toy definition: one line a workload, with times only where it passed."""
    made = []
    for number in range(count):
        status = statuses[number % len(statuses)]
        passed = status == "PASSED"
        times = {"latency_ms": 0.01, "reference_latency_ms": 0.02, "speedup_factor": 2.0}
        evaluation = {
            "status": status,
            "environment": {"hardware": "NVIDIA H200"},
            "timestamp": "2026-01-01",
            "log": "" if passed else "connection refused",
            "performance": times if passed else None,
        }
        workload = {"uuid": f"0000000{number}-toy", "axes": {"n": 1}}
        made.append(
            {
                "definition": "toy_op_n",
                "workload": workload,
                "solution": "theirs",
                "evaluation": evaluation,
            }
        )
    path.write_text("\n".join(map(json.dumps, made)) + "\n")
    return path


def test_an_audit_is_one_document(kopt: Callable[..., Ran], tmp_path: Path) -> None:
    """Files, findings with evidence, problems; findings alone do not fail it."""
    path = lines(tmp_path / "t.jsonl", "PASSED", "RUNTIME_ERROR")
    with path.open("a") as file:
        file.write("not json\n")
    ran = kopt("audit", path, "--json")
    assert ran.code == 0
    document = ran.document
    assert document["schema"] == 1
    (file_row,) = document["files"]
    assert file_row["reader"] == "flashinfer-trace"
    assert file_row["results"] == 4
    (problem,) = document["problems"]
    assert (problem["file"], problem["position"]) == (str(path), "5")
    worst = document["findings"][0]
    assert (worst["code"], worst["severity"]) == ("infra-as-failure", "wrong")
    assert worst["evidence"] == [f"{path}:2", f"{path}:4"]
    assert f"problem: {path}:5: " in ran.err


def test_the_exit_code_of_an_audit(kopt: Callable[..., Ran], tmp_path: Path) -> None:
    """1 for a finding of severity wrong, and only when asked; 2 for what cannot be read."""
    bad = lines(tmp_path / "bad.jsonl", "RUNTIME_ERROR")
    good = lines(tmp_path / "good.jsonl", "PASSED")
    assert kopt("audit", bad).code == 0
    assert kopt("audit", bad, "--exit-code").code == 1
    assert kopt("audit", good, "--exit-code").code == 0
    (tmp_path / "broken.json").write_text("{")
    ran = kopt("audit", good, tmp_path / "broken.json", "--json")
    assert ran.code == 2
    assert "broken.json" in ran.document["error"]
    assert kopt("audit", tmp_path / "nowhere").code == 2
    assert kopt("audit", good, "--target", "abacus").code == 2


def test_the_table_of_an_audit(kopt: Callable[..., Ran], tmp_path: Path) -> None:
    """Severity, code, the sentence and where to look."""
    ran = kopt("audit", lines(tmp_path / "t.jsonl", "PASSED", count=3))
    assert ran.code == 0
    assert "3 results of 1 files" in ran.out
    row = next(line for line in ran.out.splitlines() if "partial-sweep" in line)
    assert row.startswith("doubtful")
    assert "3 of 4 workloads" in row


def test_an_import_adds_once_and_is_audited_without_files(
    kopt: Callable[..., Ran], tmp_path: Path, toy: Any
) -> None:
    """The counts say what was new; the audit of what was imported is that of the file."""
    path = lines(tmp_path / "t.jsonl", "PASSED", "RUNTIME_ERROR")
    nothing = kopt("audit", "--json")
    assert nothing.code == 2
    assert "kopt import" in nothing.document["hint"]
    first = kopt("import", path, "--json").document
    assert (first["results"], first["added"], first["known"]) == (4, 4, 0)
    assert first["files"][0]["file"] == str(path)
    assert first["problems"] == []
    second = kopt("import", path, "--json").document
    assert (second["added"], second["known"]) == (0, 4)
    assert (toy.root.local / "foreign" / "journal.jsonl").is_file()
    assert (
        kopt("audit", "--json").document["findings"]
        == (kopt("audit", path, "--json").document["findings"])
    )


def test_an_import_says_what_it_left_out(kopt: Callable[..., Ran], tmp_path: Path) -> None:
    """Files of no known format are counted, malformed ones named, and the rest is kept."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    lines(folder / "t.jsonl", "PASSED")
    (folder / "other.json").write_text("{}")
    (folder / "broken.json").write_text("{")
    ran = kopt("import", folder)
    assert ran.code == 0
    assert "4 results of 1 files: 4 added" in ran.out
    assert "2 files are of no known format, or could not be read" in ran.err
    assert "broken.json" in ran.err
    assert kopt("import", tmp_path / "nowhere").code == 2
    assert kopt("import").code == 2


@pytest.mark.parametrize("command", ["import", "audit", "score"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader sees how it is typed."""
    assert main([command, "--help"]) == 0
    assert f"kopt {command} " in capsys.readouterr().out.partition("Examples")[2]


def test_every_finding_is_documented(repo_root: Path) -> None:
    """docs/audit.md has a row for each code and severity, and none that does not exist."""
    text = (repo_root / "docs" / "audit.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    codes = [cells[1].strip().strip("`") for cells in rows]
    severities = {severity.value for severity in Severity}
    described = [code for code in codes if code not in severities]
    assert sorted(described) == sorted(code.value for code in FindingCode)
    assert severities <= set(codes)
