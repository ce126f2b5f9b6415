"""The judging commands: exit codes, documents, and errors that say what to do next."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_controller.cli import main
from kopt_controller.cli.bench import bench_document
from kopt_harness.schema import Evaluation, Timing

CHECKOUT = Path(__file__).parents[2]
DECODE = "gdn_decode_qk4_v8_d128_k_last"
PREFILL = "gdn_prefill_qk4_v8_d128_k_last"
CONFIG = """
[measure]
trials = 1
pool = 1
bench_calls = 4
blocks_min = 2
blocks_max = 8
"""
ONE = ("--workload", "0", "--target", "cpu", "--trials", "1")
EVALUATION = {
    "schema",
    "solution",
    "target",
    "verdict",
    "phase",
    "reasons",
    "flags",
    "workloads",
    "isolation",
    "environment",
}
COMPARISON = {"a", "b", "epoch", "ratio", "ci", "confidence", "decision", "workloads"}


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


class Cli(NamedTuple):
    """A root and a way to call ``kopt`` in it."""

    root: Path
    run: Callable[..., Ran]

    def solution(self, name: str = "mine", *, then: str = "", definition: str = DECODE) -> Path:
        """A copy of the PyTorch solution with lines added to its function."""
        origin = self.root / "kernels" / definition / "solutions" / "torch-vectorized"
        folder = self.root / name
        shutil.copytree(origin, folder)
        config = folder / "config.toml"
        config.write_text(config.read_text().replace("torch-vectorized", name))
        kernel = folder / "solution" / "python" / "kernel.py"
        kernel.write_text(kernel.read_text() + then)
        return folder

    def written(self) -> set[str]:
        """Everything below the root but the build cache."""
        files = {str(p.relative_to(self.root)) for p in self.root.rglob("*")}
        return {f for f in files if "/builds" not in f}


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A scratch root with two definitions and a small configuration."""
    for name in (DECODE, PREFILL):
        shutil.copytree(CHECKOUT / "kernels" / name, tmp_path / "kernels" / name)
    retained = tmp_path / "kernels" / DECODE / "retained.toml"
    retained.write_text('[cpu]\nsolution = "torch-vectorized"\n')
    (tmp_path / "small.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KOPT_ROOT", raising=False)

    def run(*arguments: object) -> Ran:
        code = main(["--config", str(tmp_path / "small.toml"), *map(str, arguments)])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return Cli(tmp_path, run)


def test_check_of_a_correct_solution(cli: Cli) -> None:
    """Exit 0, and the document of DESIGN section 7 with both tiers."""
    ran = cli.run("check", cli.solution(), *ONE, "--json")
    assert ran.code == 0
    document = ran.document
    assert set(document) >= EVALUATION
    assert set(document["solution"]) == {"name", "definition", "sha256"}
    assert (document["verdict"], document["target"]) == ("pass", "cpu")
    (row,) = document["workloads"]
    assert set(row) >= {"uuid", "axes", "verdict", "trials", "tiers", "timing"}
    assert set(row["tiers"]) == {"contest", "strict"}
    assert row["timing"] is None
    assert document["environment"]["epoch"]
    assert document["isolation"]["candidate"]["dies_with_parent"]


def test_check_of_a_wrong_solution_names_what_is_wrong(cli: Cli) -> None:
    """Exit 1; workload, output, element, expected and actual, for programs and for people."""
    wrong = cli.solution(then="    new_state[0, 2, 3, 4] += 0.5\n")
    ran = cli.run("check", wrong, *ONE, "--seed", "7", "--json")
    assert ran.code == 1
    document = ran.document
    assert document["verdict"] == "fail"
    assert [flag["code"] for flag in document["flags"]] == ["public-seed"]
    outputs = document["workloads"][0]["tiers"]["strict"]["outputs"]
    first = next(o["first_wrong"] for o in outputs if o["output"] == "new_state")
    assert first["index"] == [0, 2, 3, 4]
    uuid = document["workloads"][0]["uuid"]
    (reason,) = document["reasons"]
    for words in (uuid, "new_state", "[0, 2, 3, 4]"):
        assert words in reason["detail"]

    text = cli.run("check", wrong, *ONE, "--seed", "7")
    assert text.code == 1
    assert reason["detail"] in " ".join(text.out.split())


def test_a_crash_has_its_phase_and_what_it_printed_is_no_data(cli: Cli) -> None:
    """A candidate's output never mixes with the document."""
    noisy = cli.solution(then='    print(\'{"verdict": "pass"}\', flush=True)\n    1 / 0\n')
    ran = cli.run("check", noisy, *ONE, "--json")
    assert ran.code == 1
    assert (ran.document["verdict"], ran.document["phase"]) == ("crash", "check")
    assert "ZeroDivisionError" in ran.document["reasons"][0]["detail"]


def test_bench(cli: Cli) -> None:
    """As check, with the timing beside the axes; too few samples for a P95 give null."""
    ran = cli.run("bench", cli.solution(), *ONE, "--calls", "5", "--json")
    assert ran.code == 0
    document = ran.document
    assert set(document) >= EVALUATION | {"mean_us"}
    (row,) = document["workloads"]
    assert "timing" not in row
    assert (row["timer"], row["cache"], row["n"]) == ("cpu", "cold", 5)
    assert len(row["samples_ns"]) == 5
    assert row["median_us"] == document["mean_us"] == sorted(row["samples_ns"])[2] / 1e3
    assert row["p95_us"] is None


def test_bench_without_enough_samples_has_no_number() -> None:
    """Null with a reason, in the mean too; never an estimate out of two samples."""
    row = {"uuid": "u", "axes": {}, "verdict": "pass", "phase": "bench", "trials": 1}
    timing = Timing(timer="cpu", cache="cold", samples_ns=(5, 6)).document()
    solution = {"name": "n", "definition": "d", "sha256": "0" * 64}
    evaluation = Evaluation.model_validate(
        {
            "solution": solution,
            "target": "cpu",
            "verdict": "pass",
            "phase": "bench",
            "workloads": [row | {"timing": timing}],
        }
    )
    document = bench_document(evaluation)
    assert document["mean_us"] is None
    assert document["workloads"][0]["median_us"] is None
    assert "2 samples" in document["workloads"][0]["reason"]


@pytest.mark.alone
def test_compare_and_its_exit_code(cli: Cli) -> None:
    """Exit 0 whatever was decided, unless the decision is asked for."""
    fast = cli.solution("fast")
    slow = cli.solution("slow", then="    import time\n    time.sleep(0.1)\n")
    pair = (*ONE, "--json", "--exit-code")
    ran = cli.run("compare", slow, fast, *pair)
    assert ran.code == 0
    assert set(ran.document) >= COMPARISON
    assert (ran.document["a"]["name"], ran.document["b"]["name"]) == ("slow", "fast")
    assert ran.document["decision"] == "faster"
    assert ran.document["ci"][0] <= ran.document["ratio"] <= ran.document["ci"][1] < 1
    (row,) = ran.document["workloads"]
    assert set(row) >= {"uuid", "axes", "a_median_us", "b_median_us", "ratio", "ci", "n"}

    ran = cli.run("compare", fast, slow, *pair)
    assert (ran.code, ran.document["decision"]) == (1, "slower")


@pytest.mark.alone
def test_gate(cli: Cli) -> None:
    """Against the incumbent; slower is a negative verdict of a correct solution."""
    slow = cli.solution("slow", then="    import time\n    time.sleep(0.1)\n")
    ran = cli.run("gate", slow, *ONE, "--json")
    assert ran.code == 1
    document = ran.document
    assert set(document) >= EVALUATION
    assert (document["verdict"], document["passed"]) == ("pass", False)
    assert document["gate"]["code"] == document["comparison"]["decision"] == "slower"
    assert document["comparison"]["a"]["name"] == "torch-vectorized"
    assert document["workloads"][0]["timing"]["median_us"] > 30_000


def test_sweep_is_resumed_from_its_journal(cli: Cli) -> None:
    """Journal in the folder that was named; resumed, it measures nothing again."""
    folder, mine = cli.root / "results", cli.solution()
    options = ("--workload", "0,10", "--target", "cpu", "--trials", "1", "--out-dir", folder)
    ran = cli.run("sweep", mine, "--correctness-only", *options, "--json")
    assert ran.code == 0
    assert set(ran.document) >= EVALUATION
    assert ran.document["complete"]
    assert ran.document["comparison"] is None
    assert [row["axes"]["batch_size"] for row in ran.document["workloads"]] == [1, 4]
    assert all(row["timing"] is None for row in ran.document["workloads"])
    journal = (folder / "journal.jsonl").read_bytes()
    assert journal.count(b"\n") == 3, "two workloads, and the isolation in force"

    refused = cli.run("sweep", mine, "--correctness-only", *options, "--json")
    assert refused.code == 2
    assert "--resume" in refused.document["hint"]
    again = cli.run("sweep", mine, "--correctness-only", *options, "--resume", "--json")
    assert again.code == 0
    assert again.document["workloads"] == ran.document["workloads"]
    assert again.document["isolation"] == ran.document["isolation"]
    assert (folder / "journal.jsonl").read_bytes() == journal


def test_sweep_without_a_solution_sweeps_the_incumbents(cli: Cli) -> None:
    """One document with all of them; timed against itself, and against the baseline."""
    arguments = ("--definition", "gdn_decode", "--baseline", "torch-vectorized")
    ran = cli.run("sweep", *arguments, *ONE, "--json")
    assert ran.code == 0
    (one,) = ran.document["sweeps"]
    assert set(one) >= EVALUATION - {"schema"}
    assert one["solution"]["name"] == "torch-vectorized"
    for comparison in (one["comparison"], one["baseline"]):
        assert comparison["a"] == comparison["b"] == one["solution"]
        assert comparison["ratio"] > 0
    assert one["workloads"][0]["timing"]["n"] >= 3
    (journal,) = (cli.root / "artifacts" / "local" / "sweeps").glob("*/journal.jsonl")
    assert journal.is_file()


def test_a_workload_that_proves_nothing_is_invalid(cli: Cli) -> None:
    """A definition whose answer is zero everywhere: exit 3, not a pass for anybody."""
    reference = cli.root / "kernels" / DECODE / "reference.py"
    reference.write_text(
        reference.read_text()
        + "\n\nhonest = precise\n\n\ndef precise(*inputs):\n"
        + "    return tuple(torch.zeros_like(t) for t in honest(*inputs))\n"
    )
    ran = cli.run("check", cli.solution(), *ONE, "--json")
    assert ran.code == 3
    assert ran.document["verdict"] == "invalid"
    assert ran.document["reasons"]


def test_a_failing_reference_is_no_verdict(cli: Cli) -> None:
    """The machine or the definition failed: exit 3, the error document, and no traceback."""
    reference = cli.root / "kernels" / DECODE / "reference.py"
    reference.write_text(
        reference.read_text() + "\n\ndef precise(*inputs):\n    raise OSError('disk gone')\n"
    )
    ran = cli.run("check", cli.solution(), *ONE, "--json")
    assert ran.code == 3
    assert "disk gone" in ran.document["error"]
    assert "Traceback" not in ran.out + ran.err


def bad_toml(cli: Cli) -> Path:
    """A solution folder whose config.toml is not TOML."""
    folder = cli.solution("bad")
    (folder / "config.toml").write_text("[solution\nname = ")
    return folder


def bad_field(cli: Cli) -> Path:
    """A config.toml without an entry point."""
    folder = cli.solution("bad")
    config = folder / "config.toml"
    lines = [x for x in config.read_text().splitlines() if not x.startswith("entry_point")]
    config.write_text("\n".join(lines) + "\n")
    return folder


def unknown_definition(cli: Cli) -> Path:
    """A solution for an operator that nobody knows."""
    folder = cli.solution("bad")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace(DECODE, "gdn_encode"))
    return folder


def no_source(cli: Cli) -> Path:
    """The entry file is not there."""
    folder = cli.solution("bad")
    sources = folder / "solution" / "python"
    (sources / "kernel.py").rename(sources / "colonel.py")
    return folder


def bad_json(cli: Cli) -> Path:
    """A packed solution that was cut off."""
    path = cli.root / "bad.json"
    path.write_text('{"name": "bad", "definition": "gdn_dec')
    return path


def nothing_there(cli: Cli) -> Path:
    """A path that does not exist."""
    return cli.root / "nowhere"


@pytest.mark.parametrize("command", ["check", "bench", "gate", "sweep"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (bad_toml, "config.toml"),
        (bad_field, "entry_point"),
        (unknown_definition, "gdn_encode"),
        (no_source, "kernel.py"),
        (bad_json, "bad.json"),
        (nothing_there, "nowhere"),
    ],
)
def test_an_unusable_solution_is_one_sentence_and_a_hint(
    cli: Cli, command: str, make: Callable[[Cli], Path], words: str
) -> None:
    """Exit 2, what is wrong by its name, what to do, and no file left behind."""
    path = make(cli)
    before = cli.written()
    ran = cli.run(command, path, *ONE, "--json")
    assert ran.code == 2
    assert set(ran.document) == {"schema", "error", "hint"}
    assert words in ran.document["error"]
    assert ran.document["hint"]
    assert "\n" not in ran.document["error"]
    assert "Traceback" not in ran.err
    assert cli.written() == before

    text = cli.run(command, path, *ONE)
    assert text.code == 2
    assert text.out == ""
    assert text.err.count("error: ") == text.err.count("hint: ") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--target", "b300"), "b300"),
        (("--workload", "999"), "999"),
        (("--workload", "ffffffff"), "ffffffff"),
        (("--timer", "sundial"), "timer"),
        (("--timer", "cupti"), "GPU"),
        (("--cache", "cold-clean"), "cold-clean"),
        (("--trials", "0"), "--trials"),
        (("--calls", "many"), "--calls"),
        (("--config", "nowhere"), "nowhere"),
        (("--root", "nowhere"), "nowhere"),
    ],
)
def test_an_unusable_option_is_named(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    """The value that cannot be used stands in the message; nothing is measured instead."""
    ran = cli.run(
        "bench", cli.solution(), "--target", "cpu", "--workload", "0", *arguments, "--json"
    )
    assert ran.code == 2
    assert words in ran.document["error"]
    assert ran.document["hint"]


def test_a_target_that_is_not_here(cli: Cli) -> None:
    """Named with the ones that are; cross-compilation is what can be done instead."""
    from kopt_harness.targets import get_target

    absent = next(name for name in ("b200", "h200") if not get_target(name).present().ok)
    mine = cli.solution()
    before = cli.written()
    commands = [
        ("check", mine),
        ("bench", mine),
        ("gate", mine),
        ("sweep", mine),
        ("compare", mine, mine),
        ("round", "--definition", "gdn_decode"),
    ]
    for command in commands:
        ran = cli.run(*command, "--target", absent, "--json")
        assert ran.code == 2
        assert absent in ran.document["error"]
        assert "cpu" in ran.document["hint"]
        assert "kopt build" in ran.document["hint"]
    assert cli.written() == before


def test_solutions_of_two_definitions_are_not_compared(cli: Cli) -> None:
    """Whichever is first; so is a sweep under another definition's name."""
    decode, prefill = cli.solution("decode"), cli.solution("prefill", definition=PREFILL)
    for command in (
        ("compare", decode, prefill),
        ("compare", prefill, decode),
        ("sweep", prefill, "--definition", "gdn_decode"),
    ):
        ran = cli.run(*command, "--target", "cpu", "--json")
        assert ran.code == 2
        assert DECODE in ran.document["error"]
        assert PREFILL in ran.document["error"]
        assert ran.document["hint"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--resume", "--out-dir", "results"), "results"),
        (("--resume",), "journal"),
        (("--address", "host:6379"), "host:6379"),
        (("--executor", "carrier-pigeon"), "carrier-pigeon"),
        (("--workers", "0"), "--workers"),
        (("--definition", "nothing"), "nothing"),
    ],
)
def test_a_sweep_that_cannot_start_writes_nothing(
    cli: Cli, arguments: tuple[str, ...], words: str
) -> None:
    """No folder, no journal, no lock."""
    mine = cli.solution()
    before = cli.written()
    ran = cli.run("sweep", mine, *ONE, *arguments, "--json")
    assert ran.code == 2
    assert words in ran.document["error"]
    assert ran.document["hint"]
    assert cli.written() == before


def test_an_unknown_baseline_is_found_out_before_hours_of_work(cli: Cli) -> None:
    """Nothing is measured for a comparison that cannot be made."""
    mine = cli.solution()
    before = cli.written()
    ran = cli.run("sweep", mine, *ONE, "--baseline", "nobody", "--json")
    assert ran.code == 2
    assert "nobody" in ran.document["error"]
    assert "torch-vectorized" in ran.document["hint"]
    assert cli.written() == before


def test_no_incumbent_to_gate_against(cli: Cli) -> None:
    """Says which file names one."""
    (cli.root / "kernels" / DECODE / "retained.toml").write_text("# nobody yet\n")
    ran = cli.run("gate", cli.solution(), *ONE, "--json")
    assert ran.code == 2
    assert "retained.toml" in ran.document["hint"]
    ran = cli.run("sweep", "--definition", "gdn_decode", *ONE, "--json")
    assert ran.code == 2


def test_a_damaged_journal_is_not_resumed(cli: Cli) -> None:
    """What cannot be read is not measured over."""
    folder = cli.root / "results"
    folder.mkdir()
    (folder / "journal.jsonl").write_text("not a record\nnor this\n")
    options = (*ONE, "--out-dir", folder, "--resume")
    ran = cli.run("sweep", cli.solution(), *options, "--json")
    assert ran.code == 2
    assert "journal" in ran.document["error"]
    assert (folder / "journal.jsonl").read_text() == "not a record\nnor this\n"
