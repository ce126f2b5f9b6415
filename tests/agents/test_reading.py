"""What comes back: JSON that is forgiven, drafts that are taken, secrets that are not."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kopt_controller.agents import Draft, TaskFile
from kopt_controller.agents.writing import (
    Secrets,
    drafts_of,
    gather_drafts,
    pack_draft,
    read_json,
)
from kopt_harness.errors import InvalidInputError, KoptError
from kopt_harness.pack import load

CONFIG = "[solution]\n"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), json_values, min_size=1, max_size=4)


@given(
    objects, st.sampled_from(["", "Here:\n", "```json\n"]), st.sampled_from(["", "\n```", "\n."])
)
def test_what_is_json_is_read_as_json(value: dict[str, Any], before: str, after: str) -> None:
    """Whatever stands around it, and every letter of it."""
    found = read_json(before + json.dumps(value) + after)
    assert found is not None
    assert found.value == value
    assert not found.truncated


@given(objects, st.integers(min_value=1))
def test_what_is_cut_off_is_a_beginning(value: dict[str, Any], at: int) -> None:
    """Never an error, never something that was not there, and said to be cut off."""
    text = json.dumps(value)
    found = read_json(text[: 1 + at % (len(text) - 1)])
    assert found is not None
    assert found.truncated
    assert list(found.value) == list(value)[: len(found.value)]


def test_a_cut_behind_a_sign_is_a_cut() -> None:
    """A number whose digits are missing spoils nothing of what came before it."""
    found = read_json('{"a": 1, "b": -')
    assert found is not None
    assert found.truncated
    assert found.value["a"] == 1


@pytest.mark.parametrize(
    ("text", "value", "forgiven"),
    [
        ('{"a": [1, 2,], }', {"a": [1, 2]}, "comma"),
        ('{"a": "b\nc"}', {"a": "b\nc"}, "line breaks"),
        ('{"a": "x\\d"}', {"a": "x\\d"}, "backslash"),
        ('{"a": True, "b": None}', {"a": True, "b": None}, None),
        ('I use {braces}. {"a": -1.5e3}', {"a": -1500.0}, "around"),
    ],
)
def test_common_mistakes_are_forgiven_and_said(
    text: str, value: dict[str, Any], forgiven: str | None
) -> None:
    """Whoever reads the notes sees what was changed."""
    found = read_json(text)
    assert found is not None
    assert found.value == value
    assert forgiven is None or any(forgiven in repair for repair in found.repairs)


@pytest.mark.parametrize("text", ["", "no", "[1, 2]", "{a: 1}", '{"a" 1}', "{" * 9000])
def test_what_is_no_object_is_none(text: str) -> None:
    """No guess, and no depth without an end."""
    found = read_json(text)
    assert found is None or found.value == {}


def _one(**changes: Any) -> dict[str, Any]:
    files = [
        {"path": "config.toml", "content": CONFIG},
        {"path": "solution/python/kernel.py", "content": "x = 1\n"},
    ]
    return {"name": "a", "rationale": "", "technique": "", "files": files, **changes}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "../up"}, "plain name"),
        ({"name": ""}, "plain name"),
        ({"files": []}, "config.toml"),
        ({"files": [{"path": "../config.toml", "content": ""}]}, "plain path"),
        ({"files": [{"path": "/etc/passwd", "content": ""}]}, "plain path"),
        ({"files": [{"path": "solution/../../x", "content": ""}]}, "plain path"),
        ({"files": [{"path": "notes.txt", "content": ""}]}, "neither"),
        ({"files": [{"path": "config.toml", "content": "x" * 600_000}]}, "bytes"),
        ({"files": [{"path": f"solution/a/{i}", "content": ""} for i in range(40)]}, "files"),
        ({"claimed_speedup": 100}, "claimed_speedup"),
    ],
)
def test_a_draft_keeps_to_its_place_and_size(change: dict[str, Any], why: str) -> None:
    """One that does not is a note; the others are taken."""
    gathered = drafts_of({"drafts": [_one(name="good"), _one(**change)]}, 5)
    assert [draft.name for draft in gathered.drafts] == ["good"]
    (note,) = gathered.notes
    assert why in note


def test_more_drafts_than_asked_for_are_left_out() -> None:
    """In the order that they came."""
    gathered = drafts_of({"drafts": [_one(name=name) for name in "abc"]}, 2)
    assert [draft.name for draft in gathered.drafts] == ["a", "b"]
    assert "'c'" in gathered.notes[0]
    assert drafts_of({"drafts": "many"}, 2).drafts == ()


@pytest.fixture
def worktree(tmp_path: Path) -> Any:
    """A folder with one good draft, and its descriptor."""
    folder = tmp_path / "work"
    source = folder / "drafts/good/solution/python"
    source.mkdir(parents=True)
    (source / "kernel.py").write_text("x = 1\n")
    (folder / "drafts/good/config.toml").write_text(CONFIG)
    (folder / "drafts/good/NOTE.md").write_text("Why.\n")
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    yield folder, fd
    os.close(fd)


def _planted(folder: Path, what: str, secret: Path) -> None:
    draft = folder / "drafts/bad"
    (draft / "solution/python").mkdir(parents=True)
    (draft / "config.toml").write_text(CONFIG)
    place = draft / "solution/python/kernel.py"
    if what == "link":
        place.symlink_to(secret)
    elif what == "folder link":
        (draft / "solution/more").symlink_to(secret.parent)
    elif what == "pipe":
        os.mkfifo(place)
    elif what == "hard link":
        os.link(secret, place)
    elif what == "binary":
        place.write_bytes(b"\0\1\2")
    elif what == "latin":
        place.write_bytes("é".encode("latin-1"))
    elif what == "huge":
        place.write_text("x" * 600_000)
    elif what == "deep":
        deep = draft / "/".join(["solution", *"abcdefghij"])
        deep.mkdir(parents=True)
        (deep / "x.py").write_text("1")


@pytest.mark.parametrize(
    ("what", "note"),
    [
        ("link", "links"),
        ("folder link", "links"),
        ("pipe", "special files"),
        ("hard link", "more than one name"),
        ("binary", "binary"),
        ("latin", "UTF-8"),
        ("huge", "bytes"),
        ("deep", "too deep"),
    ],
)
def test_what_is_no_source_is_not_read(
    worktree: tuple[Path, int], tmp_path: Path, what: str, note: str
) -> None:
    """Nothing outside comes in, nothing blocks, and the good draft is taken."""
    secret = tmp_path / "outside" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text("the archive")
    folder, fd = worktree
    _planted(folder, what, secret)
    gathered = gather_drafts(fd, 5)
    good = next(draft for draft in gathered.drafts if draft.name == "good")
    assert good.rationale == "Why."
    assert [file.path for file in good.files] == ["config.toml", "solution/python/kernel.py"]
    assert any(note in each for each in gathered.notes)
    assert "the archive" not in repr(gathered)


def test_what_is_no_draft_takes_nobodys_place(worktree: tuple[Path, int]) -> None:
    """Drafts behind many that are refused are taken, and those beyond the most are counted."""
    folder, fd = worktree
    for n in range(30):
        (folder / f"drafts/a-{n:02}").mkdir()
    gathered = gather_drafts(fd, 5)
    assert [draft.name for draft in gathered.drafts] == ["good"]
    assert sum("'a-" in note for note in gathered.notes) == len(gathered.refused) - 1
    assert gathered.refused[-1] == "22 further drafts not taken either"
    for n in range(18):
        (folder / f"drafts/b-{n:02}").mkdir()
        (folder / f"drafts/b-{n:02}/config.toml").write_text(CONFIG)
    gathered = gather_drafts(fd, 16)
    assert len(gathered.drafts) == 16
    note = "3 further drafts not looked at: there are 49, and 16 are taken at most"
    assert note in gathered.notes


def test_drafts_of_an_answer_beyond_the_most_are_counted() -> None:
    """The refused ones take no place, and no name of theirs fills a note."""
    files = [{"path": "config.toml", "content": CONFIG}]
    bad: list[Any] = [{"name": "x" * 10_000}, 5, *[{"name": f"bad-{n}"} for n in range(30)]]
    good = [{"name": f"d{n}", "files": files} for n in range(17)]
    gathered = drafts_of({"drafts": [*bad, *good]}, 99)
    assert [draft.name for draft in gathered.drafts] == [f"d{n}" for n in range(16)]
    assert "1 further draft not looked at: there are 49, and 16 are taken at most" in gathered.notes
    assert max(map(len, gathered.notes)) < 400


def test_a_folder_that_was_put_elsewhere_is_not_followed(
    worktree: tuple[Path, int], tmp_path: Path
) -> None:
    """Neither the drafts folder as a link, nor a working folder with another name."""
    folder, fd = worktree
    (folder / "drafts").rename(tmp_path / "moved")
    (folder / "drafts").symlink_to(tmp_path / "moved")
    assert gather_drafts(fd, 5).drafts == ()
    (folder / "drafts").unlink()
    (tmp_path / "moved").rename(folder / "drafts")
    folder.rename(tmp_path / "renamed")
    assert len(gather_drafts(fd, 5).drafts) == 1


def test_files_beside_a_draft_are_counted(worktree: tuple[Path, int]) -> None:
    """Results that it claims, programs that it leaves: nobody reads them."""
    folder, fd = worktree
    for name in ("results.json", "bench.py", "a.out"):
        (folder / "drafts/good" / name).write_text('{"speedup": 100}')
    gathered = gather_drafts(fd, 5)
    assert len(gathered.drafts[0].files) == 2
    assert any("3 files outside" in note for note in gathered.notes)


def test_a_draft_is_packed_under_its_own_name(
    tmp_path: Path, toy_draft: Callable[..., Any]
) -> None:
    """The author is who wrote it, and an error names the draft and no folder of ours."""
    files = tuple(TaskFile(path=path, content=text) for path, text in toy_draft().items())
    solution = pack_draft(Draft(name="mine", files=files), load, "codex")
    assert (solution.name, solution.author) == ("mine", "codex")
    with pytest.raises(KoptError) as caught:
        pack_draft(Draft(name="mine", files=files[:1]), load, "codex")
    assert "mine" in caught.value.message
    assert "kopt-draft-" not in caught.value.message
    with pytest.raises(InvalidInputError):
        pack_draft(Draft(name="mine", files=files[1:]), load, "codex")


def test_secrets_are_known_by_name_and_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short values are flags; a longer secret that contains another is taken out whole."""
    monkeypatch.setenv("SOME_API_KEY", "abcdefgh")
    monkeypatch.setenv("LONGER_TOKEN", "abcdefgh-and-more")
    monkeypatch.setenv("USE_TOKENS", "1")
    monkeypatch.setenv("PLAIN", "nobody hides this")
    secrets = Secrets()
    text = "1 abcdefgh-and-more abcdefgh nobody hides this"
    assert secrets.redact(text) == "1 [LONGER_TOKEN] [SOME_API_KEY] nobody hides this"
    assert secrets.redact_all({"a": ["x abcdefgh"]}) == {"a": ["x [SOME_API_KEY]"]}
    assert Secrets(["PLAIN"]).found_in(text) == ("LONGER_TOKEN", "PLAIN", "SOME_API_KEY")
