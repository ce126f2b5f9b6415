"""The page of kopt report in a real Chromium, from a file, with nothing to load from anywhere.

Screenshots for the documents come from the same tests, where ``KOPT_SCREENSHOTS`` names a folder:
of evidence of an H200, and of the archive below ``KOPT_SCREENSHOT_ROOT`` on a CPU.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kopt_controller.campaign import start_campaign
from kopt_controller.config import RunConfig
from kopt_controller.indexed import open_index
from kopt_controller.reports import Edition, page
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_controller.views import Chapter, EvaluationTable, Sources, SubjectKey, subject_chapter
from kopt_harness.catalog import Catalog
from kopt_harness.root import Root
from kopt_harness.schema import Solution, Workload

GDN = "gdn_decode_qk4_v8_d128_k_last"
MANY = 1000
"""Rows of a table that is shown page by page."""
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"

OpenPage = Callable[..., Any]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Root:
    """Kernels of the project, evidence that no promotion replaces, and an archive of its own."""
    folder = tmp_path_factory.mktemp("root")
    for name in ("kernels", "configs"):
        (folder / name).symlink_to(checkout / name)
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / "retained").symlink_to(checkout / "tests" / "data" / "retained")
    return Root(folder)


@pytest.fixture(scope="module")
def evidence(root: Root) -> Chapter:
    """Of an H200."""
    return chapter_of(root, "h200")


@pytest.fixture(scope="module")
def campaign(root: Root) -> Chapter:
    """A campaign on a CPU: a real one where a root with one is named, else simulated."""
    if named := os.environ.get("KOPT_SCREENSHOT_ROOT"):
        return chapter_of(Root(Path(named)), "cpu")
    device = SimulatedDevice(latency_us=_latency_us, blocks=5, noise=0.003)
    config = RunConfig.model_validate(
        {"target": "cpu", "promotion": "ask", "rounds": 2, "search_seed": 1}
    )
    start_campaign(
        root,
        "gdn_decode",
        config,
        lambda target, _: SimulatedHarness(target.name, device),
        lambda _: None,
    ).execute()
    return chapter_of(root, "cpu")


def _latency_us(solution: Solution, workload: Workload) -> float:
    """C++ is faster than PyTorch, and its variants differ by their content."""
    base = 50.0 if solution.spec.language == "python" else 10.0 + int(solution.sha256[:2], 16) / 64
    return base * (1 + 0.05 * sum(workload.axes.values()))


def chapter_of(root: Root, target: str) -> Chapter:
    """Everything of gdn_decode on a target."""
    with open_index(root.local) as index:
        return subject_chapter(Sources(root, Catalog(root), index), SubjectKey(GDN, target))


@pytest.fixture
def show(tmp_path: Path, open_page: OpenPage) -> OpenPage:
    """Writes a report of chapters and opens it from the disk."""

    def show_(*chapters: Chapter, interactive: bool = False, **options: Any) -> Any:
        path = tmp_path / "report.html"
        edition = Edition("kopt report", "2026-11-30T08:00:00+00:00", "0.1.0", chapters)
        path.write_text(page(edition, interactive=interactive))
        return open_page(path.as_uri(), **options)

    return show_


def many_rows(chapter: Chapter) -> Chapter:
    """The chapter with so many evaluations that they are shown page by page."""
    rows = tuple((1 + n % 7, n % 40, n % 50, 0, 0, float(n)) for n in range(MANY))
    table = EvaluationTable(
        solutions=tuple(f"{n:012x}" for n in range(40)),
        uuids=tuple(f"uuid-{n}" for n in range(50)),
        verdicts=("pass",),
        phases=("check",),
        rows=rows,
        in_all=MANY,
    )
    return chapter.model_copy(update={"evaluations": table})


def column(table: Any, heading: str) -> list[str]:
    """The texts of a column, as they stand."""
    return list(
        table.evaluate(
            """(table, heading) => {
              const heads = [...table.querySelectorAll("thead th")];
              const at = heads.findIndex((th) => th.innerText.trim().startsWith(heading));
              return [...table.tBodies[0].rows].map((row) => row.cells[at].textContent);
            }""",
            heading,
        )
    )


def test_every_figure_is_drawn(
    show: OpenPage, evidence: Chapter, screenshot: Callable[..., None]
) -> None:
    """Each has a drawing of some size with marks in it that have an extent."""
    view = show(evidence, height=1500)
    figures = view.locator("figure.plot")
    assert figures.count() == 4
    for number in range(figures.count()):
        drawing = figures.nth(number).locator("svg.chart.wide")
        box = drawing.bounding_box()
        assert box is not None
        assert box["width"] > 500
        assert box["height"] > 150
        shapes = drawing.locator("path.points, rect.bar")
        assert shapes.count() > 0
        extent = shapes.first.bounding_box()
        assert extent is not None
        assert extent["height"] > 0
        assert not figures.nth(number).locator("svg.chart.narrow").is_visible()
    screenshot(view, "report-h200")


def test_the_trajectory_of_a_campaign_is_drawn(
    show: OpenPage, campaign: Chapter, screenshot: Callable[..., None]
) -> None:
    """The line of the best, and points of candidates."""
    view = show(campaign, height=1500)
    trajectory = view.locator("#c1-f-trajectory svg.wide")
    assert trajectory.locator("path.line.step").count() >= 1
    assert trajectory.locator("path.points").count() >= 1
    screenshot(view, "report-cpu")
    view.locator("#c1-search").scroll_into_view_if_needed()
    view.evaluate("document.querySelector('#c1-search').scrollIntoView()")
    screenshot(view, "report-cpu-search")


def test_a_click_on_a_heading_sorts_by_number_and_says_so(
    show: OpenPage, evidence: Chapter
) -> None:
    """Ascending, then descending; nine comes before ten."""
    view = show(evidence)
    table = view.locator("#c1-t-workloads table")
    button = table.get_by_role("button", name="candidate")
    head = button.locator("xpath=ancestor::th")
    for way, reverse in (("ascending", False), ("descending", True)):
        button.click()
        assert head.get_attribute("aria-sort") == way
        numbers = [float(text.replace(",", "")) for text in column(table, "candidate")]
        assert numbers == sorted(numbers, reverse=reverse)
        assert len(set(numbers)) > 5
    assert table.locator("th[aria-sort=none]").count() == table.locator("th").count() - 1


def test_a_search_keeps_the_rows_that_have_all_words(show: OpenPage, evidence: Chapter) -> None:
    """The count follows, and an empty search brings all rows back."""
    view = show(evidence)
    block = view.locator("#c1-t-workloads")
    rows = block.locator("tbody tr")
    assert rows.count() == 54
    block.get_by_label("Search").fill("BATCH_SIZE=1 901e")
    assert rows.count() == 1
    assert "901e5104" in rows.first.inner_text()
    assert block.locator("output").inner_text() == "1 of 54 rows"
    block.get_by_label("Search").fill("")
    assert rows.count() == 54


def test_many_rows_are_shown_page_by_page_and_sorted_as_a_whole(
    show: OpenPage, evidence: Chapter
) -> None:
    """A page has a hundred rows; sorting and searching look at all of them."""
    view = show(many_rows(evidence))
    block = view.locator("#c1-t-evaluations")
    rows = block.locator("tbody tr")
    assert rows.count() == 100
    button = block.get_by_role("button", name="median")
    button.click()
    button.click()
    assert column(block.locator("table"), "median")[0] == f"{MANY - 1}.0"
    block.get_by_role("button", name="Later").click()
    assert rows.count() == 100
    assert block.locator(".pages span").inner_text() == "page 2 of 10"
    block.get_by_label("Search").fill("uuid-49")
    assert block.locator("output").inner_text() == "20 of 1,000 rows"
    assert rows.count() == 20


def test_everything_can_be_reached_with_the_keyboard(show: OpenPage, evidence: Chapter) -> None:
    """Headings sort with the space bar, figures read their points with the arrow keys."""
    view = show(evidence)
    table = view.locator("#c1-t-efficiency table")
    button = table.get_by_role("button", name="mean")
    button.focus()
    view.keyboard.press("Space")
    assert button.locator("xpath=ancestor::th").get_attribute("aria-sort") == "ascending"
    view.locator("#c1-f-latency .canvas").focus()
    view.keyboard.press("ArrowRight")
    first = view.locator("#tip").inner_text()
    view.keyboard.press("ArrowRight")
    assert "us" in first
    assert view.locator("#tip").inner_text() != first
    view.keyboard.press("Escape")
    assert not view.locator("#tip").is_visible()
    view.keyboard.press("Home")
    view.locator(".skip").focus()
    assert view.locator(".skip").bounding_box()["x"] >= 0


def test_the_point_under_the_pointer_is_named(show: OpenPage, evidence: Chapter) -> None:
    """Where a bar's end is, its size and value are said."""
    view = show(evidence)
    drawing = view.locator("#c1-f-speedup svg.wide")
    drawing.scroll_into_view_if_needed()
    bar = drawing.locator("rect.bar").first.bounding_box()
    view.mouse.move(bar["x"] + bar["width"] / 2, bar["y"] + 2)
    assert "batch_size=1: 402 times as fast" in view.locator("#tip").inner_text()


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_system_until_it_is_chosen(
    show: OpenPage, evidence: Chapter, dark: bool, screenshot: Callable[..., None]
) -> None:
    """The button turns it round, and a new load keeps the choice."""
    view = show(evidence, dark=dark, height=1500)
    shade = "getComputedStyle(document.body).backgroundColor"
    before = view.evaluate(shade)
    assert (max(_channels(before)) < 60) is dark
    if dark:
        screenshot(view, "report-h200-dark")
    view.locator("#theme").click()
    after = view.evaluate(shade)
    assert (max(_channels(after)) < 60) is not dark
    view.reload()
    assert view.evaluate(shade) == after


def _channels(colour: str) -> list[int]:
    return [int(part) for part in colour.removeprefix("rgb(").rstrip(")").split(",")]


@pytest.mark.parametrize("dark", [False, True])
def test_texts_stand_out_from_their_ground(show: OpenPage, campaign: Chapter, dark: bool) -> None:
    """Contrast of at least 4.5 for every text colour of the page."""
    view = show(campaign, dark=dark)
    worst = view.evaluate(
        """() => {
          const light = (rgb) => {
            const [r, g, b] = rgb.map((v) => v / 255)
              .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const parse = (text) => text.match(/[\\d.]+/g).map(Number);
          const ground = (element) => {
            for (let at = element; at; at = at.parentElement) {
              const found = parse(getComputedStyle(at).backgroundColor);
              if (found.length === 3) return found;
            }
            return [255, 255, 255];
          };
          let least = 21;
          for (const element of document.querySelectorAll("p, td, th button, dt, dd, h1, h2, a")) {
            if (!element.innerText?.trim()) continue;
            const a = light(parse(getComputedStyle(element).color).slice(0, 3));
            const b = light(ground(element));
            least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
          }
          return least;
        }"""
    )
    assert worst >= 4.5


def test_a_narrow_page_needs_no_sideways_scrolling(
    show: OpenPage, campaign: Chapter, screenshot: Callable[..., None]
) -> None:
    """At 400 pixels the page fits; only tables scroll in themselves."""
    view = show(campaign, width=400, height=1400)
    assert view.evaluate("document.documentElement.scrollWidth") <= 400
    assert view.locator("#c1-f-trajectory svg.narrow").is_visible()
    assert not view.locator("#c1-f-trajectory svg.wide").is_visible()
    size = view.locator("#c1-f-latency svg.narrow text.tick").first.evaluate(
        "(text) => text.getBoundingClientRect().height"
    )
    assert size >= 11, "text of a figure is as large as on a wide page"
    screenshot(view, "report-narrow")


def test_on_paper_everything_is_there_and_dark_on_light(show: OpenPage, campaign: Chapter) -> None:
    """Tables are whole and as wide as the sheet, what is folded is open, controls are gone."""
    view = show(campaign, width=718, dark=True)
    view.emulate_media(media="print", color_scheme="dark")
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate("document.documentElement.scrollWidth") <= 718
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert view.locator("details:not([open])").count() == 0
    assert not view.locator("#theme").is_visible()
    assert not view.get_by_label("Search").first.is_visible()
    scroll = view.locator("#c1-t-workloads .scroll")
    assert scroll.evaluate("(box) => box.scrollHeight <= box.clientHeight + 1")
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.locator("details:not([open])").count() > 0


def test_looking_closer_draws_the_same_points_with_plotly(
    show: OpenPage, evidence: Chapter, screenshot: Callable[..., None]
) -> None:
    """The packed script is unpacked in the page, and asks nobody for anything."""
    pytest.importorskip("plotly")
    view = show(evidence, interactive=True)
    figure = view.locator("#c1-f-latency")
    figure.get_by_role("button", name="Explore").click()
    closer = figure.locator(".closer")
    closer.locator(".main-svg").first.wait_for()
    traces = closer.evaluate("(box) => box.data.map((trace) => trace.x.length)")
    assert traces == [len(evidence.workloads)] * 3
    buttons = closer.locator(".modebar-btn")
    titles = buttons.evaluate_all("(all) => all.map((one) => one.dataset.title)")
    assert len(titles) == 6
    assert not [title for title in titles if "hare" in title or "loud" in title]
    figure.scroll_into_view_if_needed()
    screenshot(view, "report-explore")
    figure.get_by_role("button", name="Back").click()
    assert figure.locator("svg.chart.wide").is_visible()


def test_a_candidate_cannot_put_anything_into_the_page(show: OpenPage, campaign: Chapter) -> None:
    """Its name is shown as it is, and nothing in it runs."""
    candidates = tuple(
        each.model_copy(update={"name": HOSTILE, "detail": HOSTILE}) for each in campaign.candidates
    )
    view = show(campaign.model_copy(update={"candidates": candidates}))
    assert view.title() == "kopt report"
    assert view.locator("img").count() == 0
    assert HOSTILE in view.locator("#c1-t-candidates tbody").inner_text()
    canvas = view.locator("#c1-f-trajectory .canvas")
    canvas.focus()
    view.keyboard.press("ArrowRight")
    assert view.locator("img").count() == 0
