"""The dashboard in a real browser: drawn, sorted, searched, followed, steered."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_controller.campaign import Campaign, start_campaign
from kopt_controller.config import RunConfig
from kopt_controller.simulated import SimulatedDevice, SimulatedHarness
from kopt_controller.steering import STEER_FILE
from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.journal import read_journal
from kopt_harness.root import Root
from kopt_harness.schema import Verdict

serving = pytest.importorskip(
    "kopt_controller.dashboard.serve", reason="the extra dashboard is not installed"
)
hubs = pytest.importorskip("kopt_controller.dashboard.hub")

CHECKOUT = Path(__file__).parents[2]
WRONG = "cpp-recurrent-THREADS2"
"""A candidate that the simulation finds wrong."""
HOSTILE = '<img src=x onerror="document.title=1">'
"""What an agent might call a candidate."""

NOTHING = "\N{EN DASH}"
"""What a cell says that has no value."""

BEFORE_THE_BRAKE = 20
"""Samples of candidates: two in each block."""

Open = Callable[..., Any]
Shot = Callable[..., None]


def latency_us(solution: Any, workload: Any) -> float:
    """The incumbent is slow; candidates differ by their bytes."""
    base = 50.0 if solution.name == "torch-vectorized" else 12.0
    return base * (1 + int(solution.sha256[:2], 16) / 1000) * (1 + workload.index / 100)


class Brake:
    """A device that stands still in the middle of the first comparison, until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self._calls = 0

    def latency_us(self, solution: Any, workload: Any) -> float:
        """The model, sooner or later."""
        self._calls += solution.name != "torch-vectorized"
        if self._calls > BEFORE_THE_BRAKE:
            assert self.let_go.wait(60), "the test lets it go"
        return latency_us(solution, workload)


class Site(NamedTuple):
    """A root with one campaign, and the dashboard of it."""

    campaign: Campaign
    url: str
    brake: Brake | None = None

    @property
    def steers(self) -> list[dict[str, Any]]:
        """What was said to it, as it is on disk."""
        path = self.campaign.run.folder / STEER_FILE
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def campaign_in(folder: Path, model: Callable[[Any, Any], float] = latency_us) -> Campaign:
    """Two rounds of the knobs agent on a device that is simulated; nothing is run yet."""
    for name in ("kernels", "configs"):
        (folder / name).symlink_to(CHECKOUT / name)
    device = SimulatedDevice(
        latency_us=model,
        launches=lambda solution: 9 if solution.name == "torch-vectorized" else 1,
        verdicts={WRONG: Verdict.FAIL},
        noise=0.01,
    )
    config = RunConfig.model_validate(
        {
            "target": "cpu",
            "promotion": "ask",
            "rounds": 2,
            "search_seed": 1,
            "sweep_workloads": ["0", "20", "40"],
            "refuse_duplicates": False,
        }
    )
    return start_campaign(
        Root(folder),
        "gdn_decode",
        config,
        lambda target, _: SimulatedHarness(target.name, device),
        lambda _: None,
    )


@contextmanager
def served(local: Path, catalog: Catalog | None = None) -> Iterator[str]:
    """The dashboard of an archive, answering; its address."""
    hub = hubs.Hub(Archive(local), catalog, None)
    listener = serving.Listener(hub, token="a-token-for-this-test", port=0)
    thread = threading.Thread(target=listener.serve)
    thread.start()
    try:
        yield listener.url
    finally:
        listener.stop()
        thread.join(10)
    assert not thread.is_alive(), "the server ends when it is told to"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A run that is finished, one of its candidates with a hostile name."""
    folder = tmp_path_factory.mktemp("finished")
    campaign = campaign_in(folder)
    campaign.execute()
    journal = campaign.run.journal_path
    text = journal.read_text()
    assert '"name":"cpp-recurrent"' in text
    renamed = text.replace('"name":"cpp-recurrent"', f'"name":{json.dumps(HOSTILE)}')
    journal.write_text(renamed)
    with served(Root(folder).local, campaign.catalog) as url:
        yield Site(campaign, url)


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Site]:
    """A run that has begun, and stands still until it is let go."""
    brake = Brake()
    campaign = campaign_in(tmp_path, brake.latency_us)
    thread = threading.Thread(target=campaign.execute)
    with served(Root(tmp_path).local, campaign.catalog) as url:
        thread.start()
        yield Site(campaign, url, brake)
        brake.let_go.set()
        thread.join(60)
    assert not thread.is_alive()


def texts(page: Any, selector: str) -> list[str]:
    """What elements say."""
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def test_a_finished_run_is_drawn(site: Site, open_page: Open) -> None:
    """Both charts have marks, and every section says something."""
    page = open_page(site.url)
    page.locator("#trajectory svg .passed").first.wait_for()
    candidates = {r.key for r in read_journal(site.campaign.run.journal_path) if "outcome" in r.key}
    gated = sum("/gate/" in key for key in candidates)
    assert page.locator("#trajectory svg > g > g").count() == gated
    assert page.locator("#trajectory svg .wrong").count() >= 1
    assert page.locator("#interval svg .whisker").count() == 1
    assert page.locator("#candidates tbody tr").count() == gated
    assert page.locator("#state").inner_text() == "✓ finished"
    assert texts(page, "#rounds .label") == ["Round 2", "Round 1"]
    assert "share of the first incumbent's" in page.locator("main").inner_text()


def test_names_are_text_whatever_they_say(site: Site, open_page: Open) -> None:
    """A candidate's name cannot become part of the page."""
    page = open_page(site.url)
    page.locator("#candidates td", has_text=HOSTILE).first.wait_for()
    assert page.locator("img").count() == 0
    assert page.title() != "1"


def test_candidates_are_sorted_and_filtered(site: Site, open_page: Open) -> None:
    """By a heading, either way, and by words."""
    page = open_page(site.url)
    heading = page.locator("#candidates th", has_text="Time / incumbent")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    rows = page.locator("#candidates tbody tr td:nth-child(6)")
    rising = [text.split()[0] for text in rows.all_inner_texts()]
    timed = [float(text) for text in rising if text != NOTHING]
    assert len(timed) >= 3
    assert timed == sorted(timed)
    assert rising[len(timed) :] == [NOTHING] * (len(rising) - len(timed)), "those without come last"
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    falling = [t.split()[0] for t in rows.all_inner_texts() if not t.startswith(NOTHING)]
    assert [float(text) for text in falling] == timed[::-1]
    page.fill("#candidates-search", "fail")
    page.locator("#candidates-more", has_text="fit the filter").wait_for()
    assert {"✕ fail" in text for text in texts(page, "#candidates tbody tr")} == {True}


def test_evaluations_are_sorted_filtered_and_paged(site: Site, open_page: Open) -> None:
    """The server does it; the page shows a few."""
    page = open_page(site.url)
    foot = page.locator("#evaluations-more")
    page.locator("#evaluations tbody tr").first.wait_for()
    total = int(foot.inner_text().split(" of ")[1].split()[0])
    assert page.locator("#evaluations tbody tr").count() == min(25, total)
    page.locator("#evaluations th", has_text="Round").locator("button").click()
    page.locator("#evaluations tbody tr td:nth-child(3)", has_text="2").first.wait_for()
    page.fill("#evaluations-search", "fail")
    page.locator("#evaluations-more", has_text="that fit").wait_for()
    verdicts = texts(page, "#evaluations tbody td:nth-child(7)")
    assert verdicts
    assert all(text.startswith("✕ fail") for text in verdicts)
    page.fill("#evaluations-search", "no such thing")
    page.locator("#evaluations-more", has_text="Nothing fits").wait_for()


def test_a_page_follows_a_run_and_steers_it(going: Site, open_page: Open) -> None:
    """What is measured appears without a reload; what is said is in the next round's record."""
    page = open_page(going.url)
    page.locator("#state", has_text="running").wait_for()
    page.locator("#steps [aria-current=step]", has_text="Gate").wait_for()
    page.locator("#interval-reading", has_text="Interim").wait_for()
    assert page.locator("#candidates td small", has_text="interim").count() == 1
    shown = page.locator('[data-figure="Evaluations"]')
    before = int(shown.inner_text().split()[0])
    page.fill("textarea[name=note]", "the state fits in shared memory")
    page.select_option("select[name=block]", "hardware")
    page.get_by_role("button", name="Steer").click()
    page.locator("#steer-answer", has_text="Said: ").wait_for()
    said = {(each["kind"], each["value"]) for each in going.steers}
    assert said == {("note", "the state fits in shared memory"), ("block", "hardware")}
    page.locator("#said li", has_text="waits for the next round").first.wait_for()
    going.brake.let_go.set()
    page.locator("#state", has_text="finished").wait_for(timeout=60_000)
    records = {r.key: r.value for r in read_journal(going.campaign.run.journal_path)}
    taken = {(each["kind"], each["value"]) for each in records["r2/steer"]["steers"]}
    assert taken == said
    page.locator("#said li", has_text="taken by a round").first.wait_for()
    assert page.get_by_role("button", name="Steer").is_disabled(), "it is finished"
    checked = sum("/check/" in key for key in records)
    assert int(shown.inner_text().split()[0]) == checked > before


def test_a_steer_that_cannot_be_followed_is_refused_on_the_page(
    site: Site, open_page: Open
) -> None:
    """The page says what kopt steer would say."""
    page = open_page(site.url)
    page.locator("#state", has_text="finished").wait_for()
    answer = page.evaluate(
        """async () => {
            const run = document.getElementById("run-id").textContent;
            const sent = {method: "POST", headers: {"content-type": "application/json"},
                          body: JSON.stringify({run, options: {note: "too late"}})};
            const response = await fetch("steer", sent);
            return [response.status, (await response.json()).error];
        }"""
    )
    assert answer[0] == 400
    assert "is finished" in answer[1]
    assert site.steers == []
    # The browser tells the console of every answer of this kind.
    page.complaints.clear()


def test_a_page_notices_that_the_archive_is_gone(
    tmp_path: Path, site: Site, open_page: Open
) -> None:
    """It says so, and goes on standing."""
    run = site.campaign.run
    copied = tmp_path / "runs" / run.id
    shutil.copytree(run.folder, copied)
    with served(tmp_path) as url:
        page = open_page(url)
        page.locator("#state", has_text="finished").wait_for()
        shutil.rmtree(tmp_path / "runs")
        page.locator("#state", has_text="its folder is gone").wait_for()
        assert page.locator("#candidates tbody tr").count() > 0
        page.close()


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_narrow_and_wide_in_light_and_dark(
    site: Site, open_page: Open, width: int, dark: bool
) -> None:
    """Nothing hangs over the side, and text stands out from its ground."""
    page = open_page(site.url, width=width, dark=dark)
    page.locator("#trajectory svg .passed").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    colours = page.evaluate(
        """() => [...document.querySelectorAll("h1, .soft, .lead, td, th, .verdict, .pill, dt")]
            .map((each) => getComputedStyle(each).color)"""
    )
    ground = page.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor")
    assert min(contrast(colour, ground) for colour in set(colours)) >= 4.5


def contrast(one: str, other: str) -> float:
    """Ratio of the relative luminances of two ``rgb(...)`` colours."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.strip("rgb()").split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_keyboard_reaches_what_can_be_used(site: Site, open_page: Open) -> None:
    """The skip link comes first, and a heading sorts with the space bar."""
    page = open_page(site.url)
    page.locator("#candidates tbody tr").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    heading = page.locator("#candidates th", has_text="Verdict")
    heading.locator("button").focus()
    page.keyboard.press("Space")
    assert heading.get_attribute("aria-sort") == "ascending"
    names = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button")]
            .filter((each) => !(each.labels?.length || each.textContent.trim())).length"""
    )
    assert names == 0, "each has a name"


@pytest.mark.skipif("KOPT_SCREENSHOTS" not in os.environ, reason="nobody asked for pictures")
def test_pictures_for_the_documents(open_page: Open, screenshot: Shot) -> None:
    """Of a real campaign: ``KOPT_SCREENSHOT_ROOT`` is the root of an archive that has one."""
    root = Root(Path(os.environ["KOPT_SCREENSHOT_ROOT"]))
    with served(root.local, Catalog(root)) as url:
        for name, width, height, dark in (
            ("dashboard-light", 1280, 1180, False),
            ("dashboard-dark", 1280, 1180, True),
            ("dashboard-narrow", 400, 1500, False),
        ):
            page = open_page(url, width=width, height=height, dark=dark)
            page.locator("#trajectory svg .passed").first.wait_for()
            time.sleep(1)
            screenshot(page, name)
            page.close()
