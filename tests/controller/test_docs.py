"""What the documents say exists: commands, flags, files, modules, codes."""

import ast
import re
import runpy
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from kopt_controller.cli import build_app
from kopt_harness.schema import Verdict

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "artifacts/README.md",
    "configs/README.md",
    "kernels/README.md",
    *sorted(str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "docs").glob("*.md")),
)
GROUP: Any = typer.main.get_command(build_app())


def text_of(name: str) -> str:
    """A document."""
    return (CHECKOUT / name).read_text()


def test_the_command_reference_is_current() -> None:
    """``make docs`` would change nothing."""
    script = runpy.run_path(str(CHECKOUT / "scripts" / "command_reference.py"))
    assert script["reference"]() == text_of("docs/commands.md"), "run make docs"


class CommandLine(NamedTuple):
    """A command line as a document shows it."""

    document: str
    words: tuple[str, ...]


def command_lines() -> list[CommandLine]:
    """Lines of code blocks and inline code that begin with ``kopt``."""
    found = {}
    for name in DOCUMENTS:
        text = text_of(name)
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        lines = [line for block in blocks for line in block.splitlines()]
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        lines += [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", prose)]
        for line in lines:
            words = re.sub(r"\s#.*", "", line.removeprefix("$ ")).split()
            if words[:1] == ["kopt"] and len(words) > 1:
                found[CommandLine(name, tuple(words))] = None
    return list(found)


@pytest.mark.parametrize("line", command_lines(), ids=lambda line: " ".join(line.words))
def test_commands_in_documents_exist_with_their_flags(line: CommandLine) -> None:
    """A reader can type what a document shows."""
    known = {"--help", "-h", *(option for p in GROUP.params for option in p.opts)}
    command, plain = GROUP, [word for word in line.words[1:] if not word.startswith("-")]
    for word in plain[: 2 if plain[:1] in (["export"], ["skills"]) else 1]:
        if word.isupper() or word in configuration_values(line):
            continue
        assert word in command.commands, f"{line.document}: no command {word!r}"
        command = command.commands[word]
    known |= {option for p in command.params for option in p.opts}
    flags = {word.partition("=")[0] for word in line.words if word.startswith("-")}
    assert flags <= known, f"{line.document}: {sorted(flags - known)} of {line.words}"


def configuration_values(line: CommandLine) -> set[str]:
    """Values of global options that stand before the command."""
    pairs = zip(line.words, line.words[1:], strict=False)
    return {value for option, value in pairs if option in ("--root", "--config")}


class Entry(NamedTuple):
    """A line of the README's tree."""

    path: str
    phrase: str


def tree() -> list[Entry]:
    """The tree, with full paths made of the indentation."""
    block = re.search(r"<!-- tree -->\n```text\n(.*?)```", text_of("README.md"), re.DOTALL)
    assert block is not None, "the README has a tree between comments"
    parents: list[str] = []
    entries = []
    for line in block.group(1).splitlines():
        name, _, phrase = line.strip().partition(" ")
        depth = (len(line) - len(line.lstrip())) // 2
        parents[depth:] = [name]
        entries.append(Entry("".join(parents), phrase.strip()))
    return entries


def test_the_tree_names_only_what_exists_each_with_a_phrase() -> None:
    """No entry points at nothing."""
    for entry in tree():
        place = CHECKOUT / entry.path
        assert place.is_dir() if entry.path.endswith("/") else place.is_file(), entry.path
        assert entry.phrase, entry.path


def test_the_tree_names_every_module_once() -> None:
    """A module that is added gets its phrase; the folder's line stands for ``__init__``."""
    packages = (CHECKOUT / "harness", CHECKOUT / "controller", CHECKOUT / "scripts")
    modules = {
        str(path.relative_to(CHECKOUT))
        for package in packages
        for path in package.rglob("*.py")
        if not path.name.startswith("__")
    }
    named = [entry.path for entry in tree()]
    assert sorted(p for p in named if p.endswith(".py")) == sorted(modules)
    assert len(named) == len(set(named))


def test_links_between_documents_lead_somewhere() -> None:
    """Every relative link is a file."""
    for name in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", text_of(name)):
            if "://" not in target:
                assert (CHECKOUT / name).parent.joinpath(target).exists(), f"{name}: {target}"


def documented(heading: str) -> set[str]:
    """Codes in a table's first column, or in the second where the first is a label."""
    section = text_of("docs/verdicts.md").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    column = 1 if heading == "Decisions of a round" else 0
    return {
        re.sub(r"<\w+>", "*", code)
        for row in rows
        for code in re.findall(r"`([^`]+)`", row[column])
    }


def sources() -> Iterator[ast.Module]:
    """Everything that can speak to a user; the simulation never does."""
    for folder in ("harness", "controller", "kernels"):
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            if path.name != "simulated.py" and "solutions" not in path.parts:
                yield ast.parse(path.read_text())


def literals(node: ast.expr | None) -> set[str]:
    """Strings that an expression can be; what is formatted in is ``*``."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.JoinedStr(values=parts):
            return {"".join(p.value if isinstance(p, ast.Constant) else "*" for p in parts)}
        case ast.IfExp(body=body, orelse=other):
            return literals(body) | literals(other)
        case ast.Dict(values=values):
            return {text for value in values for text in literals(value)}
        case ast.Call(func=ast.Attribute(value=ast.Dict() as table, attr="get"), args=args):
            return literals(table) | literals(args[1] if len(args) > 1 else None)
    return set()


def positions(module: ast.Module, parameter: str) -> dict[str, int]:
    """Place of a parameter in calls of the module's functions that have it."""
    found = {}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
            if parameter in names:
                found[node.name] = names.index(parameter)
    return found


def assigned(node: ast.AST, name: str) -> set[str]:
    """What an assignment gives to a variable."""
    if not isinstance(node, ast.Assign):
        return set()
    found: set[str] = set()
    for target in node.targets:
        if isinstance(target, ast.Name) and target.id == name:
            found |= literals(node.value)
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=True)
            found |= {
                text
                for part, value in pairs
                if isinstance(part, ast.Name) and part.id == name
                for text in literals(value)
            }
    return found


def passed(node: ast.AST, name: str, places: dict[str, int], only: str = "") -> set[str]:
    """What a call gives to a parameter, by keyword or by place."""
    if not isinstance(node, ast.Call):
        return set()
    called = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if only and called != only:
        return set()
    found = {text for k in node.keywords if k.arg == name for text in literals(k.value)}
    place = places.get(called)
    if place is not None and place < len(node.args):
        found |= literals(node.args[place])
    return found


def occurring(parameter: str, *, only: str = "") -> set[str]:
    """Strings that flow into a parameter or variable of a name, of one callee or of any."""
    found: set[str] = set()
    for module in sources():
        places = positions(module, parameter)
        for node in ast.walk(module):
            found |= passed(node, parameter, places, only)
            if not only:
                found |= assigned(node, parameter)
    return found


def limits() -> set[str]:
    """Codes of what a sandbox ends its processes for; they cross a pipe as JSON."""
    return {
        value.value
        for module in sources()
        for node in ast.walk(module)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "limit"
        if isinstance(value, ast.Constant)
    }


def test_every_code_is_documented_and_every_documented_code_occurs() -> None:
    """Reasons, flags, and codes of gates and decisions."""
    headings = ("Reasons", "Flags", "Gate", "Decisions of a round")
    written = {code for heading in headings for code in documented(heading)}
    by_comparison = {"faster", "same", "ambiguous", "slower"}
    assert occurring("code") | limits() | by_comparison == written


def test_every_condition_is_documented() -> None:
    """The evidence of a decision can be looked up."""
    written = documented("Conditions of a promotion")
    found = {name for name in occurring("name", only="Condition") if not name.startswith("gate")}
    assert {name for name in found if not any(fnmatchcase(w, name) for w in written)} == set()
    assert {w for w in written if not any(fnmatchcase(w, name) for name in found)} == set()


def test_every_signal_is_documented() -> None:
    """What the supervisor says can be looked up."""
    assert occurring("kind", only="Signal") == documented("Signals of the supervisor")


def test_verdicts_stand_in_their_order() -> None:
    """The table is the order in which one verdict decides over others."""
    section = text_of("docs/verdicts.md").partition("## Verdicts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == [str(v) for v in Verdict]
