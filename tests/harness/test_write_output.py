"""Where a user lets kopt write: files are replaced whole, and what is no file stays what it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kopt_harness.errors import InvalidInputError
from kopt_harness.files import write_output


def test_a_file_is_replaced_and_a_new_one_made(tmp_path: Path) -> None:
    """Nothing else is left in the folder."""
    path = tmp_path / "report.md"
    for text in ("first\r\n", "ö\n"):
        write_output(path, text)
        assert path.read_bytes() == text.encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """What it names gets the text, whether it was there or not."""
    target, link = tmp_path / "there" / "report.md", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    for text in ("first", "second"):
        write_output(link, text)
        assert link.is_symlink()
        assert target.read_text() == text


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """Its reader gets the text, and it is still a pipe."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(path.read_text()))
    reader.start()
    write_output(path, "through")
    reader.join(10)
    assert found == ["through"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_is_written_to(tmp_path: Path) -> None:
    """One without room says so and stays a device, which another file must not replace."""
    node = tmp_path / "full"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        node.open("wb").close()
    except OSError:
        pytest.skip("devices cannot be made here")
    with pytest.raises(InvalidInputError, match="No space left"):
        write_output(node, "text")
    assert stat.S_ISCHR(node.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_has_a_name(tmp_path: Path, name: str) -> None:
    """A file that it was redirected to keeps what was written before."""
    code = (
        "import sys; from pathlib import Path; from kopt_harness.files import write_output\n"
        f"write_output(Path({name!r}), 'text')\n"
    )
    out = tmp_path / "out"
    out.write_text("before ")
    with out.open("ab") as stream:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=stream, stderr=subprocess.PIPE, check=False
        )
        assert done.returncode == 0, done.stderr
    assert out.read_text() == "before text"
    assert Path(name).is_symlink()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(InvalidInputError, match="is a folder"):
        write_output(tmp_path, "text")
