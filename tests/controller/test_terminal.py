"""What commands print fits a terminal of 80 columns and loses nothing there, nor in a pipe."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from kopt_controller.cli import _common, main
from kopt_controller.rows import PROMOTION_COLUMNS, ROUND_COLUMNS, promotion_row, round_row
from rich.console import Console

from .conftest import make_toy

COLUMNS = 80
CUT = "\N{HORIZONTAL ELLIPSIS}"


def printed(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    numeric: Sequence[str] = (),
    width: int = COLUMNS,
) -> str:
    """A table on a terminal."""
    text = StringIO()
    console = Console(file=text, width=width, markup=False, highlight=False)
    _common.print_table(console, columns, rows, numeric=numeric)
    return text.getvalue()


def letters(text: str) -> str:
    """What is left without layout."""
    return re.sub(r"[\s\u2500]", "", text)


def test_words_are_folded_and_numbers_stay_whole() -> None:
    """A long name takes several lines; the number beside it one."""
    name = "ABCDEFGHIJKLMNOPQRST" * 5
    text = printed(("name", "us"), [(name, "123456.789")], ["us"])
    assert max(map(len, text.splitlines())) <= COLUMNS
    assert "123456.789" in text
    assert "".join(re.findall("[A-Z]+", text)) == name
    assert CUT not in text


def test_a_table_that_does_not_fit_is_shown_row_by_row() -> None:
    """Headings stand beside the cells, and an empty line between two rows."""
    columns = [f"column {number}" for number in range(12)]
    rows = [[f"{row}/{number}/value" for number in range(12)] for row in range(2)]
    text = printed(columns, rows)
    assert max(map(len, text.splitlines())) <= COLUMNS
    first, second = text.split("\n\n")
    assert [line.split()[2] for line in first.splitlines()] == rows[0]
    assert [line.split()[2] for line in second.splitlines()] == rows[1]
    assert printed(columns, rows, width=400).splitlines()[0].split() == " ".join(columns).split()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_width_takes_a_cell_away(width: int) -> None:
    """Whatever the layout, the same letters are printed."""
    columns = ("run", "candidate", "time / incumbent", "what")
    rows = [("20261130-020929-gdn", "x" * 60, "0.401 [0.358, 0.450]", None)]
    text = printed(columns, rows, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert sorted(letters(text)) == sorted(
        letters("".join(map(str, (*columns, *rows[0][:3]))) + "-")
    )


def test_ratios_stand_with_their_intervals() -> None:
    """In the lists of rounds and of promotions."""
    candidate = {"name": "b", "sha256": "0" * 64}
    round_ = {
        "round": 1,
        "bottleneck": "launch",
        "direction": "fusion",
        "passed": 1,
        "candidates": 2,
        "best": candidate,
        "ratio": 0.5,
        "ci": [0.4, 0.6],
        "decision": "promote",
        "promoted_by": None,
        "applied": True,
    }
    row = dict(zip(ROUND_COLUMNS, round_row("run", round_), strict=True))
    assert row["time / incumbent"] == "0.500 [0.400, 0.600]"
    promotion = {
        "run": "run",
        "created": "now",
        "by": None,
        "candidate": candidate,
        "incumbent": None,
        "conditions": None,
        "ratio": 0.5,
        "ci": None,
        "applied": False,
        "detail": None,
        "state": "running",
    }
    shown = dict(zip(PROMOTION_COLUMNS, promotion_row(promotion), strict=True))
    assert shown["time / incumbent"] == "0.500"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one run of one round."""
    toy = make_toy(tmp_path_factory.mktemp("root"))
    toy.campaign(rounds=1).execute()
    return toy.root.path


@pytest.mark.parametrize(
    "command",
    [
        "definitions",
        "workloads toy",
        "workloads toy --regimes",
        "history",
        "status",
        "explain",
        "evidence",
        "steer",
        "doctor",
    ],
)
def test_commands_fit_80_columns(
    root: Path,
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tables are no wider, nothing is cut, and there is no colour that could carry a meaning."""
    words = ["--root", str(root), *command.split()]
    assert main(words) == 0
    wide = capsys.readouterr().out
    monkeypatch.setattr(_common, "_PIPE_WIDTH", COLUMNS)
    assert main(words) == 0
    narrow = capsys.readouterr().out
    for text in (wide, narrow):
        assert CUT not in text
        assert "\x1b" not in text
    # What is no table is left to the terminal, which breaks lines without losing them.
    ruled = [line for line in narrow.splitlines() if re.search(r"\S   +\S|\u2500", line)]
    assert max(map(len, ruled), default=0) <= COLUMNS
    # Row by row a heading is there more than once; what is free now may not be free then.
    lost = Counter(letters(wide)) - Counter(letters(narrow))
    assert not {letter for letter in lost if not letter.isdigit()}
