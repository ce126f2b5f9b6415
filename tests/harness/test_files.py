"""Files that a user names: every failure is one clear sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from kopt_harness.errors import InvalidInputError
from kopt_harness.files import read_json, read_toml


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "number that is too long"),
        (b'{"name": "\\ud800"}', "surrogate"),
    ],
)
def test_json_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    """Bytes, depth, long numbers and halves of characters are refused with the file's name."""
    path = tmp_path / "given.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_json(path)
    assert "given.json" in caught.value.message


@pytest.mark.parametrize("content", ["x = " + "9" * 5000, "x = " + "[" * 5000, "x", "x = 1\nx = 1"])
def test_toml_that_cannot_be_used(tmp_path: Path, content: str) -> None:
    """Long numbers and deep nesting are refused like a mistake in the syntax."""
    path = tmp_path / "given.toml"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"given\.toml"):
        read_toml(path)
