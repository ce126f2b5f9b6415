"""What the operating system or a value refuses, from the command line."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_controller.cli import main
from kopt_harness.catalog import Catalog

CHECKOUT = Path(__file__).parents[2]
DECODE = "gdn_decode_qk4_v8_d128_k_last"
PLAIN = CHECKOUT / "kernels" / DECODE / "solutions" / "torch-vectorized"


class Ran(NamedTuple):
    """Exit code and the one document on standard output."""

    code: int
    document: dict[str, Any]


Kopt = Callable[..., Ran]


@pytest.fixture
def kopt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kopt:
    """Runs a command line with ``--json`` in a scratch root with one definition."""
    shutil.copytree(CHECKOUT / "kernels" / DECODE, tmp_path / "kernels" / DECODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KOPT_ROOT", raising=False)

    def run(*arguments: object) -> Ran:
        code = main([*map(str, arguments), "--json"])
        return Ran(code, json.loads(capsys.readouterr().out))

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "n" * 300), "name too long"),
        (("check", PLAIN, "--workload", ""), "no workload ''"),
        (("check", PLAIN, "--workload", "0,"), "no workload ''"),
        (("check", PLAIN, "--seed", "-1"), "measure.seed"),
        (("check", PLAIN, "--seed", 10**30), "measure.seed"),
        (("round", "--definition", "gdn_decode", "--inbox", "absent"), "no inbox at 'absent'"),
        (("round", "--definition", "gdn_decode", "--workload", ""), "no workload ''"),
    ],
)
def test_values_that_cannot_be_used(
    kopt: Kopt, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    """Exit 2 and a document that names the value; nothing is written."""
    before = sorted(tmp_path.rglob("*"))
    ran = kopt(*arguments)
    assert ran.code == 2
    assert set(ran.document) == {"schema", "error", "hint"}
    assert message in ran.document["error"].replace("Name", "name")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dashboard", "--port", 99999), "'--port' must be at most 65535, not '99999'"),
        (("ablate", "gdn_decode", "--seeds", 0), "'--seeds' must be at least 2, not '0'"),
        (("history", "--config", "bad.toml"), "'bad.toml' is not valid TOML"),
        (("skills",), "kopt skills needs a command"),
    ],
)
def test_what_is_refused_before_a_command_begins(
    kopt: Kopt, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    """The value and the rule, in the words of kopt; also where the command needs no file."""
    (tmp_path / "bad.toml").write_text("rounds =\n")
    ran = kopt(*arguments)
    assert ran.code == 2
    assert message in ran.document["error"]


def test_a_group_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, and no error that says nothing."""
    assert main(["skills"]) == 2
    said = capsys.readouterr()
    assert "install" in said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EROFS, 2), (errno.EACCES, 2), (errno.ENOSPC, 3), (errno.EIO, 3)]
)
def test_what_the_system_refuses_has_an_exit_code(
    kopt: Kopt, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    """A place that cannot be written is the user's to change; a full disk is the machine's."""

    def refused(self: Catalog) -> None:
        raise OSError(number, os.strerror(number), "/some/place")

    monkeypatch.setattr(Catalog, "definitions", refused)
    ran = kopt("definitions")
    assert ran.code == code
    assert ran.document["error"] == f"'/some/place': {os.strerror(number)}"
    assert ran.document["hint"]


def test_a_path_that_is_not_utf8_is_still_json(kopt: Kopt, tmp_path: Path) -> None:
    """Its bytes are escaped, so that the document can be parsed and names the file."""
    output = tmp_path / os.fsdecode(b"\xff.json")
    ran = kopt("pack", PLAIN, "-o", output)
    assert ran.code == 0
    assert ran.document["output"] == str(output)
    assert output.is_file()


def test_results_of_another_seed_are_not_taken_from_a_journal(kopt: Kopt, tmp_path: Path) -> None:
    """A sweep on public inputs, resumed without the seed, is measured again."""
    common = ("sweep", PLAIN, "--workload", "0", "--trials", "1", "--target", "cpu")
    options = (*common, "--correctness-only", "--out-dir", tmp_path / "results")
    public = kopt(*options, "--seed", "1")
    assert [flag["code"] for flag in public.document["flags"]] == ["public-seed"]
    before = (tmp_path / "results" / "journal.jsonl").read_bytes()
    assert kopt(*options, "--resume").code == 0
    after = (tmp_path / "results" / "journal.jsonl").read_bytes()
    assert after.startswith(before)
    assert len(after) > len(before)
