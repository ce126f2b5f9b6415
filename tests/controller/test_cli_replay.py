"""``kopt replay``: exit codes, document, table, journal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_controller.cli import main

CHECKOUT = Path(__file__).parents[2]
DECODE = "gdn_decode_qk4_v8_d128_k_last"
SMALL = ("--workload", "0", "--target", "cpu")
BESIDE_CHECK = {"trials", "failures", "detection_probability", "p_upper_95"}


class Cli(NamedTuple):
    """A root and a way to call ``kopt`` in it."""

    root: Path
    run: Callable[..., tuple[int, str, str]]

    def solution(self, *, then: str = "") -> Path:
        """A copy of the PyTorch solution with lines added to its function."""
        folder = self.root / "mine"
        shutil.copytree(
            CHECKOUT / "kernels" / DECODE / "solutions" / "torch-vectorized",
            folder,
            dirs_exist_ok=True,
        )
        kernel = folder / "solution" / "python" / "kernel.py"
        kernel.write_text(kernel.read_text() + then)
        return folder

    def document(self, *arguments: object) -> tuple[int, dict[str, Any]]:
        """Exit code, and standard output as JSON."""
        code, out, _ = self.run("replay", *arguments, "--json")
        return code, json.loads(out)


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A scratch root with one definition."""
    shutil.copytree(CHECKOUT / "kernels" / DECODE, tmp_path / "kernels" / DECODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KOPT_ROOT", raising=False)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return Cli(tmp_path, run)


def test_an_honest_solution_passes_with_what_that_proves(cli: Cli) -> None:
    """Exit 0; the document of a check and what replay adds; a person gets the same numbers."""
    folder = cli.root / "kept"
    code, document = cli.document(cli.solution(), *SMALL, "--trials", 20, "--out-dir", folder)
    assert code == 0
    assert set(document) >= BESIDE_CHECK | {"schema", "solution", "verdict", "workloads"}
    assert (document["verdict"], document["trials"], document["failures"]) == ("pass", 20, 0)
    assert document["p_upper_95"] == pytest.approx(1 - 0.05 ** (1 / 20))
    assert document["detection_probability"] == pytest.approx(1 - 0.99**20)
    assert [line["rate"] for line in document["detection"]] == [0.001, 0.01, 0.015, 0.05]

    again = ("--trials", 20, "--out-dir", folder, "--resume")
    code, text, _ = cli.run("replay", cli.root / "mine", *SMALL, *again)
    assert code == 0
    assert "20 of 20 trials, 20 distinct inputs" in text
    assert "at most 13.91% of such inputs" in text
    assert "26.1 %" in text, "1.5 % over 20 trials"


def test_a_fault_now_and_then_exits_1_and_names_its_trials(cli: Cli) -> None:
    """Failures with number, generator and first wrong element; text shows them too."""
    then = "    if float(v.float().sum()) % 1.0 < 0.4:\n        new_state[0, 1, 2, 3] += 9.0\n"
    folder = cli.root / "kept"
    arguments = (cli.solution(then=then), *SMALL, "--trials", 24, "--generator", "typical")
    code, document = cli.document(*arguments, "--out-dir", folder)
    assert code == 1
    assert 0 < document["failures"] < 24
    failed = document["failed"]
    assert len(failed) == document["failures"]
    assert {f["generator"] for f in failed} == {"typical"}
    assert all(f["first_wrong"]["index"] == [0, 1, 2, 3] for f in failed)
    assert document["failures"] / 24 < document["p_upper_95"] < 1

    code, text, _ = cli.run("replay", *arguments, "--out-dir", folder, "--resume")
    assert code == 1
    assert f"trial {failed[0]['trial']} (typical" in text
    assert "new_state[0, 1, 2, 3] is" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--generator", "nothing"), "no generator 'nothing'"),
        (("--trials", "0"), "'--trials'"),
        (("--resume",), "needs a journal"),
        (("--resume", "--out-dir", "empty"), "no journal"),
        (("--resume", "--out-dir", "empty", "--seed", "1"), "same inputs"),
    ],
)
def test_what_cannot_be_is_refused_with_exit_2(
    cli: Cli, arguments: tuple[str, ...], words: str
) -> None:
    """One line that names the value, and a hint."""
    code, out, err = cli.run("replay", cli.solution(), *SMALL, *arguments)
    assert code == 2
    assert not out
    assert words in " ".join(err.split())


def test_a_journal_is_not_written_over(cli: Cli) -> None:
    """A folder with a journal needs --resume."""
    folder = cli.root / "kept"
    folder.mkdir()
    (folder / "journal.jsonl").write_text("")
    code, _, err = cli.run("replay", cli.solution(), *SMALL, "--out-dir", folder)
    assert code == 2
    assert "--resume" in err
