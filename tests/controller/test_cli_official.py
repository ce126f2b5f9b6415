"""``kopt official`` and ``kopt export trace-set``: reasons, exit codes, documents."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_controller.cli import main
from kopt_controller.cli.official import print_side_by_side
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InfraError
from kopt_harness.official import SideBySide, side_by_side
from kopt_harness.official_bench import about_bench
from kopt_harness.options import MeasureOptions
from kopt_harness.root import Root
from kopt_harness.setting import Setting
from kopt_harness.targets import best_target
from rich.console import Console

CHECKOUT = Path(__file__).parents[2]
DECODE = "gdn_decode_qk4_v8_d128_k_last"
SOLUTION = CHECKOUT / "kernels" / DECODE / "solutions" / "torch-vectorized"
HAS_SAFETENSORS = importlib.util.find_spec("safetensors") is not None
needs_safetensors = pytest.mark.skipif(not HAS_SAFETENSORS, reason="safetensors is not installed")

STAND_IN = """\
import json, sys
from pathlib import Path
request = json.loads(Path(sys.argv[2]).read_text())
if request["job"] == "about":
    answer = {"version": "0.0", "commit": None, "torch": "0", "python": "3.11",
              "device": "a GPU", "timer": "cupti", "timer_note": "spans"}
else:
    (path,) = Path(request["root"], "workloads").rglob("*.jsonl")
    traces = [json.loads(line) for line in path.read_text().splitlines()]
    passed = {"status": "PASSED", "performance": {"latency_ms": 1.5}, "log": ""}
    answer = {"traces": [t | {"evaluation": passed} for t in traces[: STOP]]}
    assert request["flags"]["num_trials"] == 2
    assert (Path(request["root"]) / "solutions").is_dir()
Path(sys.argv[3]).write_text(json.dumps(answer))
"""
"""Speaks the runner's protocol where there is no GPU; it measures nothing."""


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


Run = Callable[..., Ran]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The project's definitions, with an archive of its own."""
    (tmp_path / "kernels").symlink_to(CHECKOUT / "kernels")
    return tmp_path


@pytest.fixture
def kopt(root: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls the command line in that root."""

    def run(*arguments: object) -> Ran:
        code = main(["--root", str(root), *map(str, arguments)])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def _stand_in(folder: Path, *, stop: str = "") -> Path:
    """An interpreter for the runner's requests that answers by itself."""
    script = folder / "stand_in.py"
    script.write_text(STAND_IN.replace("STOP", stop))
    program = folder / "python"
    # The first three words are those before the runner's own script.
    program.write_text(f'#!/bin/sh\nshift 2\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    return program


def test_where_flashinfer_bench_is_missing_it_is_said(kopt: Run, tmp_path: Path) -> None:
    """Exit 3, the reason, and both ways on."""
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    ran = kopt("official", SOLUTION, "--python", bare, "--json")
    assert ran.code == 3
    assert "flashinfer-bench is not installed" in ran.document["error"]
    assert "--python" in ran.document["hint"]


def test_an_interpreter_that_is_not_there(kopt: Run) -> None:
    """Named, exit 3."""
    ran = kopt("official", SOLUTION, "--python", "/no/such/python")
    assert ran.code == 3
    assert "'/no/such/python' cannot be started" in ran.err
    assert "hint:" in ran.err
    assert not ran.out


@pytest.mark.skipif(best_target().kind == "cuda", reason="there is a GPU")
def test_a_cpu_is_refused(kopt: Run, tmp_path: Path) -> None:
    """Even by an interpreter that claims to see a GPU: kopt has no target for it."""
    ran = kopt("official", SOLUTION, "--python", _stand_in(tmp_path), "--json")
    assert ran.code == 3
    assert "CUDA devices only" in ran.document["error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workload", "9999"), "9999"),
        (("--dataset-only", "d", "--python", "p"), "--dataset-only"),
        (("--target", "nothing"), "nothing"),
    ],
)
def test_bad_input_is_exit_2(kopt: Run, arguments: tuple[str, ...], words: str) -> None:
    """Before anything is started or written."""
    ran = kopt("official", SOLUTION, *arguments, "--json")
    assert ran.code == 2
    assert words in ran.document["error"] + ran.document["hint"]


@needs_safetensors
def test_the_data_set_alone_is_written_anywhere(kopt: Run, tmp_path: Path) -> None:
    """No GPU, no flashinfer-bench: the same files, and a document that says what is in them."""
    ran = kopt(
        "official", SOLUTION, "--dataset-only", tmp_path / "d", "--workload", "0", "--seed", "7",
        "--json",
    )  # fmt: skip
    assert ran.code == 0
    document = ran.document
    assert (document["definition"], document["solution"]) == (DECODE, "torch-vectorized")
    assert document["seed"] == 7
    assert len(document["workloads"]) == 1
    assert document["bytes"] > 0
    assert (tmp_path / "d" / "solutions" / "gdn" / DECODE / "torch-vectorized.json").is_file()
    again = kopt(
        "export", "trace-set", "gdn_decode", "-o", tmp_path / "e", "--workload", "0",
        "--seed", "7", "--json",
    )  # fmt: skip
    assert again.code == 0
    assert again.document["solution"] is None
    assert not (tmp_path / "e" / "solutions").exists()
    blobs = [sorted((tmp_path / n / "blob").rglob("*.safetensors")) for n in "de"]
    assert [p.read_bytes() for p in blobs[0]] == [p.read_bytes() for p in blobs[1]]


@needs_safetensors
def test_a_data_set_never_mixes_with_other_files(kopt: Run, tmp_path: Path) -> None:
    """A folder in use is bad input."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").touch()
    ran = kopt("export", "trace-set", "gdn_decode", "-o", tmp_path / "used", "--json")
    assert ran.code == 2
    assert "not an empty folder" in ran.document["error"]


@pytest.mark.skipif(HAS_SAFETENSORS, reason="safetensors is installed")
def test_without_safetensors_nothing_is_left(kopt: Run, tmp_path: Path) -> None:
    """The reason and how to get it; exit 3 where flashinfer-bench was asked for."""
    folder = tmp_path / "d"
    for code, command in (
        (3, ("official", SOLUTION, "--dataset-only", folder)),
        (2, ("export", "trace-set", "gdn_decode", "-o", folder)),
    ):
        ran = kopt(*command, "--workload", "0", "--json")
        assert ran.code == code
        assert "safetensors" in ran.document["error"]
        assert "'.[official]'" in ran.document["hint"]
        assert not folder.exists()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> SideBySide:
    """The whole way on this machine's CPU, with a stand-in for flashinfer-bench."""
    if not HAS_SAFETENSORS:
        pytest.skip("safetensors is not installed")
    folder = tmp_path_factory.mktemp("root")
    (folder / "kernels").symlink_to(CHECKOUT / "kernels")
    catalog = Catalog(Root(folder))
    definition = catalog.resolve("gdn_decode")
    bench = about_bench(str(_stand_in(folder, stop="1")))
    setting = Setting.here(catalog, "cpu", MeasureOptions(bench_calls=3))
    solution = catalog.solution(definition, "torch-vectorized").solution
    workloads = catalog.workloads(definition)[:2]
    said: list[str] = []
    found = side_by_side(setting, solution, workloads, bench, trials=2, notify=said.append)
    assert [text.split()[0] for text in said] == ["inputs", "flashinfer-bench", "kopt"]
    assert not list((folder / "artifacts" / "local" / "official").iterdir())
    return found


def test_both_are_asked_about_the_same_workloads(both: SideBySide) -> None:
    """What flashinfer-bench left no trace of stands there as such, and is no pass."""
    document = both.document()
    assert [row["official"]["status"] for row in document["workloads"]] == ["PASSED", "NO_TRACE"]
    assert [row["kopt"]["verdict"] for row in document["workloads"]] == ["pass", "pass"]
    assert not both.passed
    first, second = document["workloads"]
    assert first["official"]["latency_us"] == 1500.0
    assert first["ratio"] == pytest.approx(first["kopt"]["median_us"] / 1500.0)
    assert first["kopt"]["n"] == 50
    assert second["ratio"] is None
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_a_person_sees_both_in_one_table(both: SideBySide) -> None:
    """Verdicts, timers, latencies, and the sentences about what differs."""
    text = io.StringIO()
    print_side_by_side(Console(file=text, width=220), both)
    shown = text.getvalue()
    for words in ("PASSED", "NO_TRACE", "1500.00", "cupti", "timer: flashinfer-bench cupti"):
        assert words in shown
    assert "flashinfer-bench NO_TRACE, kopt pass" in shown


def test_a_bench_that_dies_is_a_failure_of_the_machine(tmp_path: Path) -> None:
    """Its last words are the message."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho out of memory >&2\nexit 9\n")
    program.chmod(0o755)
    with pytest.raises(InfraError, match="failed: out of memory"):
        about_bench(str(program))
