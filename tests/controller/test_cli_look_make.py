import importlib
import json
import os
import pkgutil
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from kopt_controller import cli
from kopt_controller.cli import _common, build_app, hoist_globals, main
from kopt_harness.catalog import Catalog
from kopt_harness.root import Root

CHECKOUT = Path(__file__).resolve().parents[2]
DECODE = CHECKOUT / "kernels" / "gdn_decode_qk4_v8_d128_k_last"
PLAIN = DECODE / "solutions" / "torch-vectorized"
KNOBS = DECODE / "solutions" / "cpp-recurrent"
ALIASES = ["gdn_decode", "gdn_prefill", "dsa_topk", "dsa_attention", "moe_fp8"]


class Ran(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


Kopt = Callable[..., Ran]


@pytest.fixture
def kopt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Kopt:
    """Runs a command line in this process, at the root of the checkout."""
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.delenv("KOPT_ROOT", raising=False)

    def run(*arguments: object) -> Ran:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def test_definitions_document(kopt: Kopt) -> None:
    """All five contest operators are listed, with what the contract promises."""
    ran = kopt("definitions", "--json")
    assert ran.code == 0
    assert ran.document["schema"] == 1
    rows = ran.document["definitions"]
    assert sorted(row["alias"] for row in rows) == sorted(ALIASES)
    assert sum(row["workloads"] for row in rows) == 324
    assert all({"id", "alias", "op_type", "workloads"} <= set(row) for row in rows)


def test_definitions_for_a_person(kopt: Kopt) -> None:
    """The table has a line for each, unwrapped, and nothing goes to stderr."""
    ran = kopt("definitions")
    for alias in ALIASES:
        assert any(line.startswith(alias) for line in ran.out.splitlines())
    assert ran.err == ""


@pytest.mark.parametrize("name", [*ALIASES, "gdn_dec", "moe"])
def test_workloads_document(kopt: Kopt, name: str) -> None:
    """Every workload has index, uuid, axes, regime and cost, by any name of the definition."""
    document = kopt("workloads", name, "--json").document
    definition = Catalog(Root(CHECKOUT)).resolve(name)
    assert document["definition"] == definition.name
    assert [row["index"] for row in document["workloads"]] == list(
        range(len(document["workloads"]))
    )
    for row in document["workloads"]:
        assert {"uuid", "axes", "regime", "bytes", "flops"} <= set(row)
        assert set(row["axes"]) == set(definition.var_axes)


def test_regimes_cover_all_workloads(kopt: Kopt) -> None:
    """--regimes shows groups that add up to the whole."""
    document = kopt("workloads", "gdn_decode", "--regimes", "--json").document
    assert sum(row["workloads"] for row in document["regimes"]) == len(document["workloads"])
    shown = kopt("workloads", "gdn_decode", "--regimes").out
    assert all(row["name"] in shown for row in document["regimes"])


def test_doctor_document(kopt: Kopt) -> None:
    """The report has the three promised parts, with agents among the tools."""
    document = kopt("doctor", "--json").document
    assert {"schema", "targets", "tools", "isolation", "disk"} <= set(document)
    assert {"knobs", "inbox", "scripted"} <= {tool["name"] for tool in document["tools"]}
    cpu = next(target for target in document["targets"] if target["name"] == "cpu")
    assert cpu["present"]


def test_pack_and_unpack(kopt: Kopt, tmp_path: Path) -> None:
    """A folder packs to a file, which unpacks to a folder of the same content."""
    packed = kopt("pack", PLAIN, "-o", tmp_path / "s.json", "--json").document
    assert json.loads((tmp_path / "s.json").read_text())["definition"] == DECODE.name
    assert kopt("unpack", tmp_path / "s.json", tmp_path / "out").code == 0
    again = kopt("pack", tmp_path / "out", "--json").document
    assert again["solution"] == packed["solution"]


def test_pack_sets_tunables(kopt: Kopt, tmp_path: Path) -> None:
    """--set chooses a declared value; an undeclared one is an error that lists them."""
    default = kopt("pack", KNOBS, "--json").document["solution"]["sha256"]
    ran = kopt("pack", KNOBS, "--set", "ROWS=8", "--json")
    assert ran.document["solution"]["sha256"] != default
    for wrong in ("ROWS=3", "ROWS", "COLUMNS=1"):
        assert kopt("pack", KNOBS, "--set", wrong).code == 2


def test_pack_without_output_writes_nothing(
    kopt: Kopt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing only validates where no file is named."""
    monkeypatch.chdir(tmp_path)
    assert kopt("--root", CHECKOUT, "pack", PLAIN).code == 0
    assert list(tmp_path.iterdir()) == []


def test_new_build_and_hash(kopt: Kopt, tmp_path: Path) -> None:
    """A scaffold builds, and says where it is and what it was begun from."""
    document = kopt(
        "new", "gdn_decode", "mine", "--language", "python", "--folder", tmp_path / "m", "--json"
    ).document
    assert document["origin"] == "torch-vectorized"
    built = kopt("build", tmp_path / "m", "--target", "cpu", "--json")
    assert built.code == 0
    assert built.document["ok"]
    assert {"solution", "target", "ok", "artefacts", "log"} <= set(built.document)
    assert built.document["solution"]["sha256"] == document["solution"]["sha256"]


def test_build_failure_is_a_negative_verdict(kopt: Kopt, tmp_path: Path) -> None:
    """Source that does not compile gives exit 1 and a log, not an error."""
    kopt("new", "gdn_decode", "mine", "--language", "python", "--folder", tmp_path / "m")
    kernel = next((tmp_path / "m" / "solution" / "python").glob("*.py"))
    kernel.write_text("def run(:\n")
    ran = kopt("build", tmp_path / "m", "--target", "cpu", "--json")
    assert ran.code == 1
    assert not ran.document["ok"]
    assert ran.document["log"]


def test_export_definition(kopt: Kopt, tmp_path: Path) -> None:
    """The file and standard output have the same definition."""
    assert kopt("export", "definition", "gdn_decode", "-o", tmp_path / "d.json").code == 0
    document = json.loads((tmp_path / "d.json").read_text())
    assert document["name"] == DECODE.name
    assert json.loads(kopt("export", "definition", "gdn_decode").out) == document
    assert kopt("export", "definition", "gdn_decode", "--json").document["definition"] == document


def test_export_solution_is_what_pack_writes(kopt: Kopt, tmp_path: Path) -> None:
    """Two ways to one file."""
    kopt("export", "solution", PLAIN, "-o", tmp_path / "a.json")
    kopt("pack", PLAIN, "-o", tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


BAD = [
    (["workloads", "nonesuch"], "nonesuch"),
    (["workloads", "gdn"], "ambiguous"),
    (["workloads", ""], "''"),
    (["workloads"], "DEF"),
    (["workloads", "gdn_decode", "extra"], "extra"),
    (["workloads", "gdn_decode", "--nonesuch"], "--nonesuch"),
    (["nonesuch"], "nonesuch"),
    (["definitions", "--root", "{tmp}/absent"], "absent"),
    (["--root"], "--root"),
    (["definitions", "--config"], "--config"),
    (["--root", "--quiet", "definitions"], "--root"),
    (["pack", "{tmp}/absent"], "absent"),
    (["pack", "{tmp}"], "config.toml"),
    (["pack", "{tmp}/broken"], "not valid TOML"),
    (["pack", "{tmp}/sourceless"], "no sources"),
    (["pack", "{tmp}/stranger"], "unknown definition"),
    (["pack", str(PLAIN), "-o", "{tmp}"], "folder"),
    (["pack", str(PLAIN), "-o", "{tmp}/file/out.json"], "cannot write"),
    (["unpack", "{tmp}/absent.json", "{tmp}/out"], "absent.json"),
    (["unpack", "{tmp}/file", "{tmp}/out"], "not valid JSON"),
    (["unpack", "{tmp}/broken", "{tmp}/out"], "folder"),
    (["unpack", "{tmp}/good.json", "{tmp}/broken"], "not empty"),
    (["new", "nonesuch", "mine", "--language", "cpp"], "nonesuch"),
    (["new", "gdn_decode", "../mine", "--language", "python"], "../mine"),
    (["new", "gdn_decode", "mine", "--language", "fortran"], "fortran"),
    (["new", "gdn_decode", "mine"], "--language"),
    (["build", str(PLAIN), "--target", "h20"], "h20"),
    (["build", str(PLAIN), "--workload", "999"], "999"),
    (["build", "{tmp}/stranger"], "unknown definition"),
    (["build", "{tmp}/absent"], "absent"),
    (["export"], "command"),
    (["export", "definition", "nonesuch"], "nonesuch"),
    (["export", "definition", "gdn_decode", "-o", "{tmp}/file/out"], "cannot write"),
]


@pytest.fixture
def material(kopt: Kopt, tmp_path: Path) -> Path:
    """Files and folders that are wrong in one way each."""
    (tmp_path / "file").write_text("x")
    kopt("pack", PLAIN, "-o", tmp_path / "good.json")
    config = (PLAIN / "config.toml").read_text()
    texts = {
        "broken": "[solution",
        "sourceless": config,
        "stranger": config.replace(DECODE.name, "somebody_elses_operator"),
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(text)
    sources = tmp_path / "stranger" / "solution" / "python"
    sources.mkdir(parents=True)
    (sources / "kernel.py").write_text("def run():\n    pass\n")
    return tmp_path


def tree(folder: Path) -> list[str]:
    """Everything below a folder."""
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize(("command", "message"), BAD, ids=lambda value: " ".join(value)[:60])
@pytest.mark.parametrize("json_flag", [False, True], ids=["text", "json"])
def test_bad_input(
    kopt: Kopt, material: Path, command: list[str], message: str, json_flag: bool
) -> None:
    """Exit 2, one sentence that names the value, a hint, no traceback, nothing written."""
    before = tree(material), tree(DECODE / "solutions")
    arguments = [part.replace("{tmp}", str(material)) for part in command]
    ran = kopt(*arguments, *(["--json"] if json_flag else []))
    assert ran.code == 2
    assert (tree(material), tree(DECODE / "solutions")) == before
    if json_flag:
        document = ran.document
        assert document["schema"] == 1
        assert message in document["error"]
        assert document["hint"]
    else:
        assert ran.out == ""
        error, hint = ran.err.splitlines()
        assert error.startswith("error: ")
        assert message in error
        assert len(hint) > len("hint: ")
        assert hint.startswith("hint: ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["a", "--json"], ["--json", "a"]),
        (["a", "b", "--root", "r", "-o", "f"], ["--root", "r", "a", "b", "-o", "f"]),
        (["a", "--root=r", "-qq", "-v"], ["--root=r", "-qq", "-v", "a"]),
        (["--config", "c", "a"], ["--config", "c", "a"]),
        (["a", "--", "--json"], ["a", "--", "--json"]),
        (["a", "-", "--jsonl", "-o"], ["a", "-", "--jsonl", "-o"]),
        ([], []),
    ],
)
def test_global_options_move_to_the_front(arguments: list[str], expected: Any) -> None:
    """They may stand anywhere before --, with their values, and nothing else moves."""
    assert hoist_globals(arguments) == expected


def test_root_works_before_and_after_the_command(kopt: Kopt, tmp_path: Path) -> None:
    """The same document, wherever the global options stand."""
    (tmp_path / "kernels").mkdir()
    before = kopt("--json", "--root", tmp_path, "definitions")
    after = kopt("definitions", "--root", tmp_path, "--json")
    assert before == after
    assert before.document["definitions"] == []
    assert "--root" in before.err


def test_quiet_silences_notes(kopt: Kopt, tmp_path: Path) -> None:
    """-q leaves stdout alone and stderr empty."""
    (tmp_path / "kernels").mkdir()
    assert kopt("definitions", "--root", tmp_path).err
    assert kopt("definitions", "--root", tmp_path, "-q").err == ""


def test_version_and_help(kopt: Kopt) -> None:
    """Both exit 0; the bare command is help; --json without a command is an error."""
    assert kopt("--version").out.startswith("kopt 0.")
    assert kopt("--version", "--json").document["version"]
    assert "Usage" in kopt("--help").out
    assert "Usage" in kopt().out
    assert kopt("--json").code == 2


def test_help_groups_commands_in_order(kopt: Kopt) -> None:
    """look, make, judge, loop, evidence, agents: those that have commands, in this order."""
    text = kopt("--help").out
    places = [text.find(f"─ {panel} ─") for panel in _common.PANELS]
    present = [place for place in places if place >= 0]
    assert len(present) >= 3
    assert present == sorted(present)


def test_every_command_has_help_with_an_example(kopt: Kopt) -> None:
    """Each module of the folder registers commands with a panel, help and an example."""
    names = [info.name for info in pkgutil.iter_modules(cli.__path__)]
    for name in names:
        if name.startswith("_"):
            continue
        app = typer.Typer()
        importlib.import_module(f"kopt_controller.cli.{name}").register(app)
        groups = [group.typer_instance for group in app.registered_groups if group.typer_instance]
        commands = [*app.registered_commands, *(c for g in groups for c in g.registered_commands)]
        assert commands, name
        for command in commands:
            assert command.callback is not None
            assert command.callback.__doc__, name
            assert "Examples:" in (command.epilog or ""), name
        panels = [c.rich_help_panel for c in app.registered_commands]
        panels += [group.rich_help_panel for group in app.registered_groups]
        assert set(panels) <= set(_common.PANELS), name


def test_interrupt_is_130(kopt: Kopt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is not a traceback."""

    def interrupted(self: Catalog) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Catalog, "definitions", interrupted)
    ran = kopt("definitions")
    assert ran.code == 130
    assert "hint:" in ran.err


def test_our_own_fault_is_not_hidden(kopt: Kopt, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception is a bug of ours and keeps its traceback."""

    def broken(self: Catalog) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Catalog, "definitions", broken)
    with pytest.raises(ZeroDivisionError):
        kopt("definitions")


def start(*arguments: object, **variables: str) -> subprocess.Popen[bytes]:
    """The installed command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "kopt_controller.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=CHECKOUT,
        env={**os.environ, **variables},
    )


def test_closed_pipe_is_no_error() -> None:
    """``kopt workloads ... | head`` ends quietly."""
    process = start("workloads", "dsa_topk", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_completion_names_commands() -> None:
    """The shell gets the commands that begin as typed."""
    process = start(_KOPT_COMPLETE="complete_bash", COMP_WORDS="kopt def", COMP_CWORD="1")
    out, _ = process.communicate(timeout=30)
    assert out.decode().split() == ["definitions"]


GUARD = """
import sys
from kopt_controller.cli import main
code = main(sys.argv[1:])
loaded = {name.partition(".")[0] for name in sys.modules}
forbidden = loaded & {"torch", "triton", "cupti", "cutlass", "cuda", "tvm_ffi"}
sys.exit(f"loaded {forbidden}" if forbidden else code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["doctor", "--json"],
        ["definitions"],
        ["workloads", "gdn_prefill", "--regimes"],
        ["pack", str(PLAIN)],
        ["unpack", "{tmp}/s.json", "{tmp}/out"],
        ["new", "gdn_decode", "mine", "--language", "cpp", "--folder", "{tmp}/mine"],
        ["export", "definition", "moe_fp8"],
        ["build", str(PLAIN), "--target", "cpu", "--json"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_command_loads_the_gpu_stack(tmp_path: Path, arguments: list[str]) -> None:
    """Kopt lists, packs, validates, scaffolds and exports where torch cannot be imported."""
    assert main(["pack", str(PLAIN), "-o", str(tmp_path / "s.json"), "--root", str(CHECKOUT)]) == 0
    process = subprocess.run(
        [sys.executable, "-c", GUARD, *(a.replace("{tmp}", str(tmp_path)) for a in arguments)],
        cwd=CHECKOUT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr.decode()


def test_help_is_quick() -> None:
    """The command line imports little: a third of a second of processor time when measured."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start("--help").communicate(timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5


def test_app_can_be_built_twice() -> None:
    """Building the application has no effect on another one."""
    assert len(build_app().registered_commands) == len(build_app().registered_commands)
