"""Command blocks of the documents: each line is run, or there is a reason why not and it is parsed.

A block of shell commands is run from its first line to its last, in a root of its own for each
document. ``<!-- not run: REASON -->`` before a block keeps it from that; the commands of
``NOT_RUN`` are run only where it is marked ``<!-- run -->``. Every ``kopt`` line, run or not, goes
through the real parser. What stands after ``<!-- file: PATH -->`` is written to that file first, so
that a guide is followed.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kopt_controller.campaign import start_campaign
from kopt_controller.cli import hoist_globals, main
from kopt_controller.config import RunConfig
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_harness.catalog import Catalog
from kopt_harness.root import Root

from .test_docs import CHECKOUT, DOCUMENTS, GROUP

NOT_RUN = {
    "ablate": "measures for an hour",
    "audit": "reads results of other programs, which are not here",
    "bench": "measures",
    "build": "compiles for a minute",
    "calibrate": "measures for minutes",
    "check": "compiles and measures",
    "compare": "measures for minutes",
    "dashboard": "listens until it is stopped",
    "diagnose": "reads reports of profilers, which are not here",
    "export": "names results of a run on a GPU",
    "gate": "compiles and measures",
    "import": "reads results of other programs, which are not here",
    "mcp": "listens until its client goes",
    "official": "needs the contest's evaluator",
    "profile": "compiles and measures",
    "prompt": "profiles the incumbent first",
    "promote": "measures for minutes",
    "promote-dispatch": "needs a measured table of settings",
    "replay": "measures for minutes",
    "report": "has tests of its own",
    "rerun": "measures for minutes",
    "resume": "measures for minutes",
    "round": "measures for minutes",
    "score": "reads results of a sweep, which are not here",
    "skills": "writes into the home of whoever runs it",
    "sweep": "measures for minutes",
    "unpack": "reads a file that is not here",
}
"""Commands of kopt that no document's block runs in this test, and why."""

ELSEWHERE = {
    ("README.md", "kopt check ."): "stands in a contest repository, which is not here",
}
"""Blocks that are followed in another place than a checkout: document and first line, and why."""

NOT_FOLLOWED = ("docs/commands.md",)
"""Examples of each command by itself, which do not follow from each other."""

OTHERS = {
    ".": "changes the shell",
    "make": "installs, and runs everything",
    "pip": "installs",
    "pytest": "runs tests: it is looked whether they are there",
    "python": "a script: it is looked whether it is there",
    "ray": "starts a cluster",
    "ssh": "needs a second machine",
}
"""Other programs in the blocks, and why they are not run."""

PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|<\w+>|\.\.\.")
_BLOCK = re.compile(r"((?:<!--[^\n]*-->\n)*)```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block."""

    document: str
    language: str
    text: str
    marks: str
    """Comments that stand right before it."""

    @property
    def commands(self) -> list[str]:
        """Lines that are typed: all of a shell block, those after a prompt elsewhere."""
        text = re.sub(r"\\\n\s*", " ", self.text)
        lines = [line.strip() for line in text.splitlines()]
        if self.language in ("sh", "bash") or (not self.language and lines[0][:5] == "kopt "):
            return [line.removeprefix("$ ") for line in lines if line and line[0] != "#"]
        return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]

    @property
    def reason(self) -> str:
        """Why it is not run; empty where it is."""
        if (elsewhere := ELSEWHERE.get((self.document, self.commands[0]))) is not None:
            return elsewhere
        found = re.search(r"<!-- not run: (.+?) -->", self.marks)
        return found.group(1) if found else ""

    @property
    def file(self) -> str:
        """What it is the content of; empty where it is none."""
        found = re.search(r"<!-- file: (\S+) -->", self.marks)
        return found.group(1) if found else ""


def blocks(document: str) -> Iterator[Block]:
    """All blocks of a document."""
    for marks, language, text in _BLOCK.findall((CHECKOUT / document).read_text()):
        yield Block(document, language, text, marks)


def words_of(line: str) -> list[str]:
    """What a shell would make of a line, up to a pipe."""
    words = shlex.split(line, comments=True)
    ends = [words.index(each) for each in ("|", ">", "&&") if each in words]
    return words[: min(ends)] if ends else words


LINES = [(block, line) for name in DOCUMENTS for block in blocks(name) for line in block.commands]


def test_there_are_blocks_to_look_at() -> None:
    """The pattern finds them."""
    assert len(LINES) > 60
    assert {block.document for block, _ in LINES} >= {"README.md", "docs/tutorial.md"}


@pytest.mark.parametrize(
    ("block", "line"), LINES, ids=[f"{block.document}: {line[:60]}" for block, line in LINES]
)
def test_every_line_is_known(block: Block, line: str) -> None:
    """A command of kopt is parsed as it would be when typed; anything else has a reason."""
    words = words_of(line)
    while words and re.fullmatch(r"\w+=\S*", words[0]):  # variables of the environment
        words = words[1:]
    program = Path(words[0]).name
    if program != "kopt":
        assert program in OTHERS, f"{block.document}: {line}: why is it not run?"
        for name in [word for word in words[1:] if word.startswith(("scripts/", "tests/"))]:
            assert (CHECKOUT / name).exists(), f"{block.document}: {name} does not exist"
        return
    if "<" in line or "..." in line or words[1:2] == ["COMMAND"]:
        return  # a form, not a command
    parse(words[1:])


def parse(words: list[str]) -> None:
    """Fails where the parser would refuse them."""
    parent = GROUP.make_context("kopt", hoist_globals(words))
    rest = [*getattr(parent, "_protected_args", ()), *parent.args]
    command = GROUP
    while rest and hasattr(command, "commands"):
        name, *rest = rest
        assert name in command.commands, f"no command {name!r}"
        command = command.commands[name]
        parent = command.make_context(name, list(rest), parent=parent)
        rest = [*getattr(parent, "_protected_args", ()), *parent.args]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the project's definitions, and a run that goes on."""
    folder = tmp_path_factory.mktemp("example")
    for name in ("kernels", "configs"):
        shutil.copytree(CHECKOUT / name, folder / name)
    device = SimulatedDevice(latency_us=lambda *_: 10.0, noise=0.01)
    config = RunConfig.model_validate(
        {"target": "cpu", "promotion": "ask", "sweep_workloads": ["0", "20"]}
    )
    campaign = start_campaign(
        Root(folder),
        "gdn_decode",
        config,
        lambda target, _: SimulatedHarness(target.name, device),
        lambda _: None,
    )
    campaign.execute()
    lines = campaign.run.journal_path.read_text().splitlines(keepends=True)
    campaign.run.journal_path.write_text("".join(lines[:-1]))
    return folder


def followed(document: str) -> list[tuple[Block, list[str]]]:
    """What this test runs of a document."""
    found = []
    for block in blocks(document):
        for line in block.commands if block.commands and not block.reason else ():
            words = words_of(line)
            plain = shlex.split(re.sub(r"--(root|config) \S+", "", line), comments=True)[1:]
            command = next((word for word in plain if word[0] != "-"), "")
            is_whole = not PLACEHOLDER.search(line)
            is_cheap = command not in NOT_RUN or "<!-- run -->" in block.marks
            if words[0] == "kopt" and is_cheap and is_whole:
                found.append((block, words[1:]))
    return found


FOLLOWED = [name for name in DOCUMENTS if name not in NOT_FOLLOWED and followed(name)]


@pytest.mark.parametrize("document", FOLLOWED)
def test_a_document_can_be_followed(
    document: str,
    example: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its files are written and its commands run, one after the other, in a root of its own."""
    root = tmp_path / "root"
    shutil.copytree(example, root)
    monkeypatch.chdir(root)
    monkeypatch.delenv("KOPT_ROOT", raising=False)
    for block in blocks(document):
        if block.file:
            path = root / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
    for block, words in followed(document):
        code = main(["--root", str(root), *words])
        captured = capsys.readouterr()
        assert code == 0, f"{block.document}: kopt {' '.join(words)}: {captured.err}"
    for definition in Catalog(Root(root)).definitions():
        assert definition.name


def test_every_reason_is_needed() -> None:
    """A command that no document shows needs none."""
    shown = {word for _, line in LINES for word in words_of(line)[:4]}
    assert set(OTHERS) <= {Path(word).name for word in shown} | {"."}
    assert set(NOT_RUN) <= shown


@pytest.mark.parametrize("document", DOCUMENTS)
def test_blocks_of_a_language_are_of_that_language(document: str) -> None:
    """Python, TOML and JSON can be read as what they say they are."""
    for block in blocks(document):
        if block.language == "python":
            ast.parse(block.text)
        if block.language == "toml":
            tomllib.loads(block.text)
        if block.language == "json":
            is_lines = block.text.startswith("{") and "}\n{" in block.text
            for text in block.text.splitlines() if is_lines else [block.text]:
                json.loads(text)
