"""Skills: what they say exists, and installing them is whole or not at all."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from kopt_controller.cli import build_app, hoist_globals, main
from kopt_controller.skills import (
    MANIFEST,
    PLACES,
    Skill,
    find_skills,
    install_skills,
    parse_front_matter,
    read_skills,
)
from kopt_harness.catalog import Catalog
from kopt_harness.errors import InvalidInputError, UsageError

GROUP: Any = typer.main.get_command(build_app())
ParserError: type[Exception] = typer.BadParameter.__mro__[2]
SKILLS = read_skills(find_skills())
DOCUMENTS = [
    (skill, path) for skill in SKILLS for path in sorted(skill.folder.rglob("*")) if path.is_file()
]
EXPECTED = {
    "kopt-cuda",
    "kopt-cute-dsl",
    "kopt-flashinfer-contest",
    "kopt-kernel-optimizer",
    "kopt-profile",
    "kopt-round",
    "kopt-submission-tagger",
    "kopt-triton",
}
MAX_LINES = 120
"""Of a SKILL.md: an agent reads all of it; the rest is in references."""


def name_of(document: tuple[Skill, Path]) -> str:
    """For the ids of tests."""
    skill, path = document
    return f"{skill.name}/{path.relative_to(skill.folder)}"


class Shown(NamedTuple):
    """A command line in a skill."""

    where: str
    line: str
    is_prose: bool


def command_lines() -> list[Shown]:
    """Every line of a shell block and every inline span that begins with ``kopt`` and a word."""
    found: dict[Shown, None] = {}
    for document in DOCUMENTS:
        text = document[1].read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        lines = [(line, False) for block in blocks for line in block.splitlines()]
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        spans = re.findall(r"`([^`]+)`", prose)
        for line, is_prose in [*lines, *((span.replace("\n", " "), True) for span in spans)]:
            if re.match(r"kopt [a-z]", line):
                found[Shown(name_of(document), line, is_prose)] = None
    return list(found)


def test_all_skills_are_there_with_references() -> None:
    """Each is named like its folder, says when to use it, and has documents beside it."""
    assert {skill.name for skill in SKILLS} == EXPECTED
    for skill in SKILLS:
        assert "Use " in skill.description, skill.name
        assert list((skill.folder / "references").glob("*.md")), skill.name
        assert len((skill.folder / "SKILL.md").read_text().splitlines()) <= MAX_LINES, skill.name


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_of_a_skill_stay_in_it(document: tuple[Skill, Path]) -> None:
    """An installed skill stands alone; each reference is linked from its SKILL.md."""
    skill, path = document
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        assert "://" not in target, target
        found = (path.parent / target).resolve()
        assert found.is_file(), target
        assert found.is_relative_to(skill.folder.resolve()), target
    if path.parent.name == "references":
        own = path.relative_to(skill.folder).as_posix()
        assert own in (skill.folder / "SKILL.md").read_text()


@pytest.mark.parametrize("shown", command_lines(), ids=lambda shown: f"{shown.where}:{shown.line}")
def test_commands_of_skills_parse(shown: Shown) -> None:
    """An agent can run what a skill shows: the command, its arguments and options exist."""
    words = hoist_globals(shlex.split(shown.line, comments=True)[1:])
    group = GROUP
    with group.make_context("kopt", list(words), resilient_parsing=False) as ctx:
        arguments = [*ctx._protected_args, *ctx.args]
    while hasattr(group, "commands"):
        name, *arguments = arguments
        assert name in group.commands, f"{shown.where}: no command {name!r}"
        group = group.commands[name]
    if shown.is_prose and not arguments:
        return  # a command that is spoken of
    try:
        group.make_context(name, list(arguments))
    except ParserError as error:
        pytest.fail(f"{shown.where}: {shown.line!r}: {error}")


def test_targets_definitions_and_codes_exist(catalog: Catalog) -> None:
    """Names that skills rely on are those of this version."""
    aliases = {definition.kopt.alias for definition in catalog.definitions()}
    contest = (find_skills() / "kopt-flashinfer-contest" / "SKILL.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", contest, re.MULTILINE)) == aliases
    known = (find_skills().parent / "docs" / "verdicts.md").read_text()
    codes = (find_skills() / "kopt-round/references/json-and-exit-codes.md").read_text()
    table = codes[codes.index("## Reasons") :]
    for cell in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE):
        for code in re.findall(r"`([a-z-]+)`", cell):
            assert f"`{code}`" in known, code


@pytest.mark.parametrize(
    "text",
    [
        "no front matter\n",
        "---\nname: a\n---\n",
        "---\nname: A\ndescription: b c\n---\n",
        "---\nname: a\ndescription: first: second\n---\n",
        '---\nname: a\ndescription: "quoted"\n---\n',
        "---\nname: a\nname: a\ndescription: b\n---\n",
        f"---\nname: a\ndescription: {'b' * 1025}\n---\n",
        "---\nname: a\ndescription: b\nmodel: c\n---\n",
    ],
)
def test_front_matter_that_readers_disagree_on_is_refused(text: str) -> None:
    """Only plain values, the two keys, and their limits."""
    with pytest.raises(InvalidInputError):
        parse_front_matter(text, "SKILL.md")


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("program", sorted(PLACES))
def test_installation_for_a_program(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The user's own folder by default; a second time nothing changes."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--json", "skills", "install", "--for", program]) == 0
    document = json.loads(capsys.readouterr().out)
    folder = tmp_path / {"claude": ".claude", "codex": ".agents"}[program] / "skills"
    assert document["folder"] == str(folder)
    assert {row["action"] for row in document["skills"]} == {"installed"}
    assert {path.name for path in folder.iterdir()} == EXPECTED
    for skill in SKILLS:
        installed = contents(folder / skill.name)
        del installed[MANIFEST]
        assert installed == skill.files()
    assert main(["--json", "skills", "install", "--for", program]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["action"] for row in document["skills"]} == {"unchanged"}


def test_one_skill_goes_where_it_is_told(tmp_path: Path, capsys: Any) -> None:
    """By name, into a project; unknown names and programs are errors that list the known."""
    place = tmp_path / "project" / ".claude" / "skills"
    words = ["--json", "skills", "install", "kopt-round", "--dir", str(place)]
    assert main([*words, "--for", "claude"]) == 0
    assert [path.name for path in place.iterdir()] == ["kopt-round"]
    capsys.readouterr()
    assert main([*words, "--for", "emacs"]) == 2
    assert "claude" in json.loads(capsys.readouterr().out)["hint"]
    assert main(["--json", "skills", "install", "kopt-rust", "--for", "codex"]) == 2
    assert "kopt-cuda" in json.loads(capsys.readouterr().out)["hint"]


def test_what_somebody_changed_is_kept(tmp_path: Path) -> None:
    """Refused as a whole, with the file's name, before anything is written; --force replaces."""
    first, second = SKILLS[0], SKILLS[1]
    install_skills([second], tmp_path)
    changed = tmp_path / second.name / "SKILL.md"
    changed.write_text(changed.read_text() + "mine\n")
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=r"was changed: SKILL\.md"):
        install_skills([first, second], tmp_path)
    assert contents(tmp_path) == before
    (one,) = install_skills([second], tmp_path, force=True)
    assert one.action == "updated"
    assert changed.read_bytes() == second.files()["SKILL.md"]
    (tmp_path / first.name).mkdir()
    (tmp_path / first.name / "SKILL.md").write_text("somebody else's\n")
    with pytest.raises(UsageError, match="was not installed by kopt"):
        install_skills([first], tmp_path)


def test_an_older_version_is_replaced_and_leaves_nothing(tmp_path: Path) -> None:
    """What kopt installed and nobody touched is updated without being asked."""
    older = tmp_path / "older" / "kopt-round"
    older.mkdir(parents=True)
    (older / "SKILL.md").write_text("---\nname: kopt-round\ndescription: Old. Use it.\n---\n")
    (older / "gone.md").write_text("of an older version\n")
    place = tmp_path / "place"
    install_skills(read_skills(older.parent), place)
    newer = next(skill for skill in SKILLS if skill.name == "kopt-round")
    (one,) = install_skills([newer], place)
    assert one.action == "updated"
    assert not (place / "kopt-round" / "gone.md").exists()
    assert [path.name for path in place.iterdir()] == ["kopt-round"]


def test_an_installation_that_fails_changes_nothing(tmp_path: Path) -> None:
    """A skill appears by one rename, so a failure on the way leaves the old one."""
    place = tmp_path / "place"
    skill = SKILLS[0]
    install_skills([skill], place)
    before = contents(place)
    longer = tmp_path / "source" / skill.name
    longer.mkdir(parents=True)
    (longer / "SKILL.md").write_text("new\n")
    broken = _Broken(skill.name, skill.description, longer)
    with pytest.raises(OSError, match="name too long"):
        install_skills([broken], place)
    assert contents(place) == before
    assert [path.name for path in place.iterdir()] == [skill.name]


class _Broken(Skill):
    """Has a file that no file system takes."""

    def files(self) -> dict[str, bytes]:
        """The second one cannot be written."""
        return {"SKILL.md": b"new\n", "x" * 300: b""}
