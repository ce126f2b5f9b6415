"""kopt report: the page, Markdown, CSV and figures say what the views say, and nothing else."""

import base64
import csv
import hashlib
import html
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.cli import main
from kopt_controller.indexed import open_index
from kopt_controller.reports import Edition, csv_files, markdown, page, write_figures
from kopt_controller.reports.chart import Axis, limits, ticks
from kopt_controller.reports.contents import tables_of
from kopt_controller.reports.figures import figures_of
from kopt_controller.reports.page import MOST_ROWS
from kopt_controller.reports.svg import draw
from kopt_controller.views import Chapter, EvaluationTable, Sources, SubjectKey, subject_chapter
from kopt_harness.catalog import Catalog
from kopt_harness.errors import UnavailableError
from kopt_harness.root import Root

HOSTILE = "</script><img src=x onerror=alert(1)>|`*\n=1+1"
GDN = "gdn_decode_qk4_v8_d128_k_last"
CHECKOUT = Path(__file__).parents[2]
EVIDENCE = sorted((CHECKOUT / "artifacts" / "retained").glob("*/*/summary.json"))


def edition_of(*chapters: Chapter) -> Edition:
    """A report of chapters, written at a fixed time."""
    return Edition("report", "2026-11-30T08:00:00+00:00", "0.1.0", chapters)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """A root with the committed evidence and nothing else."""
    folder = tmp_path_factory.mktemp("retained")
    (folder / "artifacts").mkdir()
    (folder / "kernels").symlink_to(CHECKOUT / "kernels")
    (folder / "artifacts" / "retained").symlink_to(CHECKOUT / "artifacts" / "retained")
    return Root(folder)


@pytest.fixture(scope="module")
def retained(tmp_path_factory: pytest.TempPathFactory) -> Chapter:
    """Evidence of an H200 that no promotion replaces."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "artifacts").mkdir()
    (folder / "kernels").symlink_to(CHECKOUT / "kernels")
    (folder / "artifacts" / "retained").symlink_to(CHECKOUT / "tests" / "data" / "retained")
    return _chapter(Root(folder), GDN, "h200")


@pytest.fixture(scope="module")
def searched(searched_toy: Any) -> Chapter:
    """Three rounds on the simulated device."""
    return _chapter(searched_toy.toy.root, "toy_op_n", "cpu")


def _chapter(root: Root, definition: str, target: str) -> Chapter:
    with open_index(root.local) as index:
        return subject_chapter(Sources(root, Catalog(root), index), SubjectKey(definition, target))


def hostile(chapter: Chapter) -> Chapter:
    """The chapter with texts that a candidate or a person could have written."""
    candidates = tuple(
        each.model_copy(update={"name": HOSTILE, "detail": HOSTILE}) for each in chapter.candidates
    )
    decisions = tuple(
        each.model_copy(update={"reason": HOSTILE, "by": HOSTILE}) for each in chapter.decisions
    )
    return chapter.model_copy(
        update={"candidates": candidates, "decisions": decisions, "problems": (HOSTILE,)}
    )


@pytest.mark.parametrize("file", EVIDENCE, ids=lambda file: file.parts[-3])
def test_all_committed_evidence_is_reported(committed: Root, file: Path) -> None:
    """Also where a peer failed, and has no time on some workloads or on none."""
    chapter = _chapter(committed, *file.parts[-3:-1])
    summary = json.loads(file.read_text())
    text = markdown(edition_of(chapter))
    assert len(chapter.workloads) == len(summary["workloads"])
    assert f"{summary['solution']['name']} takes" in text
    rows = {row.name: row for row in chapter.efficiency}
    for name, peer in summary.get("baselines", {}).items():
        assert name in text
        assert peer["mean_us"] is None or rows[name].mean_us == pytest.approx(peer["mean_us"], 0.01)


def test_the_page_loads_nothing_and_runs_nothing_but_its_own_script(retained: Chapter) -> None:
    """The policy names the hash of the one script that is there."""
    text = page(edition_of(retained), interactive=False)
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:,)""", text)
    assert "url(" not in text
    assert "@import" not in text
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'; base-uri 'none'" in html.unescape(text)


def test_texts_of_candidates_stay_text_in_the_page(searched: Chapter) -> None:
    """A name that would be an element is not one, in tables, figures and data alike."""
    text = page(edition_of(hostile(searched)), interactive=False)
    assert "<img" not in text
    assert "onerror=alert(1)&gt;" in text
    assert text.count("</script>") == len(re.findall(r"<script[ >]", text))


def test_every_table_of_the_page_has_headings_with_a_scope_and_a_caption(
    searched: Chapter,
) -> None:
    """A screen reader can say of each cell what it is."""
    text = page(edition_of(searched), interactive=False)
    tables = re.findall(r'<table class="data".*?</table>', text, re.S)
    assert len(tables) > 5
    for table in tables:
        heads = re.findall(r"<th\b[^>]*>", table)
        assert heads
        assert all('scope="col"' in head and 'aria-sort="none"' in head for head in heads)
    for drawing in re.findall(r'<svg class="chart (?:wide|narrow)".*?</svg>', text, re.S):
        assert 'role="img"' in drawing
        assert "<title" in drawing
        assert "<desc" in drawing


def test_ids_of_the_page_are_unique(retained: Chapter, searched: Chapter) -> None:
    """Two chapters do not share an anchor."""
    text = page(edition_of(retained, searched), interactive=False)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    targets = re.findall(r'href="#([^"]+)"', text)
    assert set(targets) <= set(ids)


def test_a_table_of_very_many_rows_has_the_latest_and_says_so(searched: Chapter) -> None:
    """A page stays one that a browser opens; CSV has every row."""
    count = MOST_ROWS + 5
    rows = tuple((1, 0, 0, 0, 0, float(number)) for number in range(count))
    told = EvaluationTable(
        solutions=("abc",), uuids=("u",), verdicts=("pass",), phases=("check",), rows=rows
    )
    chapter = searched.model_copy(update={"evaluations": told})
    text = page(edition_of(chapter), interactive=False)
    assert f"The latest {MOST_ROWS:,} of {count:,}" in text
    (data,) = re.findall(r'id="c1-d-evaluations">(.*?)</script>', text, re.S)
    packed = json.loads(data)
    assert packed["rows"] == MOST_ROWS
    medians = packed["columns"][-1]
    assert len(medians) == MOST_ROWS
    files = {file.name: file.text for file in csv_files(edition_of(chapter))}
    assert len(files["toy-cpu-evaluations.csv"].splitlines()) == count + 1


def test_the_headline_is_said_in_the_page_and_in_markdown(retained: Chapter) -> None:
    """Ratio, interval and both means stand there."""
    for text in (page(edition_of(retained), interactive=False), markdown(edition_of(retained))):
        assert "97.2\u00d7" in text
        assert "0.0103 [0.0102, 0.0104]" in text
        assert "8.094 us" in text
        assert "786.2 us" in text
        assert "Provisional" in text


def test_what_cannot_be_told_apart_has_no_factor(retained: Chapter) -> None:
    """An undecided comparison is called so first, and its labels stay apart."""
    assert retained.headline is not None
    changes = {"ratio": 1.07, "ci": (0.78, 1.47), "workloads": 1}
    headline = retained.headline.model_copy(update=changes)
    open_ = edition_of(retained.model_copy(update={"headline": headline}))
    for text in (page(open_, interactive=False), markdown(open_)):
        assert "as fast" not in text.partition("Distance to")[0].replace("equally fast", "")
        assert "over 1 workload" in text
        assert "1 workloads" not in text
    text = page(open_, interactive=False)
    assert '<p class="big">undecided<span></span></p>' in text
    (strip,) = re.findall(r'<svg class="chart strip".*?</svg>', text, re.DOTALL)
    heights = re.findall(r'<text class="note" x="[^"]+" y="([^"]+)"', strip)
    assert len(set(heights)) == 2
    assert "**Undecided.**" in markdown(open_)


def test_rows_of_markdown_tables_have_as_many_cells_as_headings(searched: Chapter) -> None:
    """Also where a text has bars and line breaks in it."""
    text = markdown(edition_of(hostile(searched)))
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.M)
    assert len(blocks) > 5
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1
    assert "<img" not in re.sub(r"\\<img", "", text)


def test_csv_has_every_digit(retained: Chapter) -> None:
    """Times and intervals read back are the numbers themselves."""
    files = {file.name: file.text for file in csv_files(edition_of(retained))}
    rows = list(csv.DictReader(io.StringIO(files["gdn_decode-h200-workloads.csv"])))
    assert [float(row["candidate_us"]) for row in rows] == [
        row.candidate_us for row in retained.workloads
    ]
    intervals = [
        (float(row["time_over_incumbent_low"]), float(row["time_over_incumbent_high"]))
        for row in rows
    ]
    assert intervals == [row.ci for row in retained.workloads]


def test_csv_texts_are_no_formulas(searched: Chapter) -> None:
    """What a spreadsheet would calculate is quoted."""
    candidate = searched.candidates[0].model_copy(update={"name": "=HYPERLINK(1)"})
    chapter = searched.model_copy(update={"candidates": (candidate,)})
    files = {file.name: file.text for file in csv_files(edition_of(chapter))}
    assert "'=HYPERLINK(1)" in files["toy-cpu-candidates.csv"]


def test_the_same_report_gives_the_same_figures(searched: Chapter, tmp_path: Path) -> None:
    """Figures for a paper can be committed: no date and no random id is in them."""
    pytest.importorskip("matplotlib")
    chapter = searched.model_copy(update={"headline": None})
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        files = list(write_figures(edition_of(chapter), folder))
        found.append([(path.name, path.read_bytes()) for path in files])
    assert found[0] == found[1]
    assert [name for name, _ in found[0]] == ["toy-cpu-trajectory.pdf", "toy-cpu-trajectory.svg"]
    assert found[0][0][1].startswith(b"%PDF")
    assert b"Trajectory" in found[0][1][1], "text stays text"


def test_every_kind_of_figure_can_be_drawn_for_a_paper(retained: Chapter, tmp_path: Path) -> None:
    """Bars with ranges, lines, a roof, rows of samples."""
    pytest.importorskip("matplotlib")
    names = {path.name for path in write_figures(edition_of(retained), tmp_path)}
    expected = {f"gdn_decode-h200-{chart.id}.svg" for chart in figures_of(retained)}
    assert expected <= names
    assert all((tmp_path / name).stat().st_size > 2000 for name in names)


def test_figures_show_every_candidate_and_workload(retained: Chapter, searched: Chapter) -> None:
    """No point is dropped on the way into a figure."""
    charts = {chart.id: chart for chart in figures_of(searched)}
    shown = [
        point
        for series in charts["trajectory"].series
        if series.line == "none"
        for point in series.points
    ]
    assert len(shown) == len(searched.candidates)
    charts = {chart.id: chart for chart in figures_of(retained)}
    latency = {series.role: series for series in charts["latency"].series}
    assert len(latency["candidate"].points) == len(retained.workloads)
    assert len(latency["floor"].points) == len(retained.workloads)
    assert {"speedup", "latency", "roofline", "samples"} <= set(charts)


def test_baselines_stand_beside_the_incumbent(tmp_path: Path) -> None:
    """With their own ratio, which is theirs over the candidate's, in tables and figures."""
    checkout = Path(__file__).parents[2]
    (tmp_path / "kernels").symlink_to(checkout / "kernels")
    source = checkout / "artifacts" / "retained" / GDN / "h200"
    folder = tmp_path / "artifacts" / "retained" / GDN / "h200"
    folder.mkdir(parents=True)
    (folder / "decision.json").write_bytes((source / "decision.json").read_bytes())
    summary = json.loads((source / "summary.json").read_text())
    for row in summary["workloads"]:
        row["baselines"] = {"peer": 2 * row["median_us"]}
    summary["baselines"] = {
        "peer": {"mean_us": 2 * summary["mean_us"], "ratio": 1.98, "ci": [1.97, 1.99]}
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    chapter = _chapter(Root(tmp_path), GDN, "h200")
    (peer,) = [row for row in chapter.efficiency if row.role == "baseline"]
    assert (peer.name, peer.speedup, peer.ci) == ("peer", 1.98, (1.97, 1.99))
    assert peer.mean_us == pytest.approx(2 * summary["mean_us"])
    text = markdown(edition_of(chapter))
    assert "| baseline | peer |" in text
    assert "1.980 \\[1.970, 1.990\\]" in text
    charts = {chart.id: chart for chart in figures_of(chapter)}
    latency = {series.role: series for series in charts["latency"].series}
    assert [point.y for point in latency["baseline"].points] == [
        2 * point.y for point in latency["candidate"].points
    ]
    assert "samples" not in charts, "this evidence has none"


def test_a_floor_is_drawn_only_where_it_is_known(searched: Chapter) -> None:
    """On a target without a known bandwidth there is no roofline, and it is said."""
    charts = {chart.id: chart for chart in figures_of(searched)}
    assert "roofline" not in charts
    assert "No floor" in charts["latency"].caption


def test_drawings_keep_their_points_inside(retained: Chapter) -> None:
    """Every place of a marker is within the drawing."""
    for chart in figures_of(retained):
        for drawing in draw(chart).split("</svg>")[:-1]:
            width, height = map(float, re.findall(r'viewBox="0 0 (\S+) (\S+)"', drawing)[0])
            for path in re.findall(r'class="points[^"]*" d="([^"]*)"', drawing):
                places = re.findall(r"M(-?[\d.]+) (-?[\d.]+)", path)
                assert places
                assert all(0 <= float(x) <= width for x, _ in places)
                assert all(0 <= float(y) <= height for _, y in places)


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        (Axis("x"), (0.0, 1.0)),
        (Axis("x"), (-3e-7, 2e9)),
        (Axis("x", "log"), (0.97, 1.02)),
        (Axis("x", "log"), (1e-9, 1e9)),
        (Axis("x", is_whole=True), (0.5, 2.5)),
        (Axis("x"), (5.0, 5.0)),
    ],
)
def test_ticks_lie_on_their_axis_and_are_few(axis: Axis, values: tuple[float, float]) -> None:
    """At least one, at most a handful, in order."""
    low, high = limits(axis, values)
    places = [place for place, _ in ticks(axis, low, high)]
    assert 1 <= len(places) <= 12
    assert places == sorted(places)
    assert all(low - 1e-9 * abs(low) <= place <= high + 1e-9 * abs(high) for place in places)
    assert not axis.is_whole or all(place == int(place) for place in places)


def test_the_command_writes_what_it_is_asked_for(
    toy: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All files are there, and named in the document."""
    toy.campaign(rounds=1).execute()
    out = tmp_path / "out"
    argv = ["--root", str(toy.root.path), "--json", "report", "--csv", str(out / "tables")]
    argv += ["--html", str(out / "r.html"), "--markdown", str(out / "r.md")]
    out.mkdir()
    assert main(argv) == 0
    document = json.loads(capsys.readouterr().out)
    assert all(Path(file).is_file() for file in document["files"])
    assert {Path(file).name for file in document["files"]} >= {"r.html", "r.md"}
    (chapter,) = document["chapters"]
    assert (chapter["definition"], chapter["rounds"]) == ("toy_op_n", 1)


@pytest.mark.parametrize("option", ["--html", "--markdown", "--csv", "--figures"])
def test_a_misspelt_folder_is_not_made(
    toy: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """It is refused with what to do, and nothing is written."""
    out = tmp_path / "nowhere" / "x"
    assert main(["--root", str(toy.root.path), "report", option, str(out)]) == 2
    assert "mkdir -p" in capsys.readouterr().err
    assert not out.parent.exists()


def test_an_empty_archive_is_an_error_with_a_hint(
    toy: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written about nothing."""
    assert main(["--root", str(toy.root.path), "report"]) == 2
    assert "hint:" in capsys.readouterr().err


def test_a_run_of_another_definition_is_refused(
    toy: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options that exclude each other do not give an empty report."""
    run = toy.campaign(rounds=1).execute().run
    argv = ["--root", str(toy.root.path), "report", "--run", run, "--target", "h200"]
    assert main(argv) == 2
    assert "toy_op_n on cpu" in capsys.readouterr().err


def test_without_jinja2_the_page_says_what_to_install(
    searched: Chapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markdown and CSV need nothing."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UnavailableError, match="jinja2"):
        page(edition_of(searched))
    assert markdown(edition_of(searched))


def test_without_plotly_the_page_has_its_figures_all_the_same(
    searched: Chapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking closer is an addition."""
    monkeypatch.setitem(sys.modules, "plotly", None)
    text = page(edition_of(searched))
    assert 'id="plotly"' not in text
    assert 'class="chart wide"' in text


def test_tables_have_a_cell_for_every_heading(retained: Chapter, searched: Chapter) -> None:
    """Rows and columns of every table fit together."""
    for chapter in (retained, searched):
        for table in tables_of(chapter).values():
            assert all(len(row) == len(table.columns) for row in table.rows), table.id
