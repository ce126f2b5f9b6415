from pathlib import Path

import pytest
from kopt_harness.errors import NotFoundError
from kopt_harness.root import find_root

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that is a root."""
    (tmp_path / "kopt" / "kernels").mkdir(parents=True)
    return tmp_path / "kopt"


def test_explicit_folder_wins_over_everything(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--root beats the working directory and $KOPT_ROOT."""
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setenv("KOPT_ROOT", str(CHECKOUT))
    assert find_root(root).path == root
    assert find_root(root).found_by == "--root"


def test_nearest_parent_wins_over_the_variable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a checkout that checkout is meant, whatever $KOPT_ROOT says."""
    inner = root / "kernels" / "some" / "solutions"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.setenv("KOPT_ROOT", str(CHECKOUT))
    assert find_root().path == root


def test_variable_serves_a_foreign_repository(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no parent has kernels/, $KOPT_ROOT names the root."""
    foreign = tmp_path / "contest"
    foreign.mkdir()
    monkeypatch.chdir(foreign)
    monkeypatch.setenv("KOPT_ROOT", str(root))
    assert find_root().path == root
    assert find_root().found_by == "$KOPT_ROOT"


def test_falls_back_to_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing set, the checkout that kopt is installed from is the root."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KOPT_ROOT", raising=False)
    assert find_root().path == CHECKOUT


@pytest.mark.parametrize("name", ["absent", "a_file", "no_kernels"])
def test_a_named_folder_must_be_a_root(tmp_path: Path, name: str) -> None:
    """A wrong --root is an error that names it, not a fall-through to another root."""
    (tmp_path / "a_file").write_text("")
    (tmp_path / "no_kernels").mkdir()
    with pytest.raises(NotFoundError) as caught:
        find_root(tmp_path / name)
    assert name in caught.value.message
    assert "kernels/" in caught.value.hint


def test_a_wrong_variable_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$KOPT_ROOT that is no root is an error, though the checkout would do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOPT_ROOT", str(tmp_path))
    with pytest.raises(NotFoundError, match="KOPT_ROOT"):
        find_root()


def test_relative_root_becomes_absolute(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of a root stay right when the working directory changes."""
    monkeypatch.chdir(root.parent)
    assert find_root(Path("kopt")).kernels == root / "kernels"
