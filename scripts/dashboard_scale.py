"""How the dashboard bears a run of 10,000 evaluations: time to the first paint, and to an update.

Writes a run of that size into a temporary folder: rounds like one on a simulated device, with all
their blocks. Then it runs ``kopt dashboard`` as a program of its own, opens the page in Chromium
and takes the browser's own first paint, the time until everything is drawn, and for records that
are appended to the journal the time until the page has drawn what they say. Needs the extra
``dashboard``, playwright and a Chromium.

    python scripts/dashboard_scale.py [--evaluations 10000] [--updates 40] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from index_scale import EVALUATION, simulate
from kopt_harness.archive import Run
from kopt_harness.journal import JournalRecord, read_journal
from kopt_harness.ledger import dumps
from kopt_harness.root import find_root
from playwright.sync_api import sync_playwright

NOTE_DRAWN = """
window.drawnAt = [];
window.addEventListener("drawn", () => {
  const shown = document.querySelector('[data-figure="Evaluations"]');
  window.drawnAt.push([shown ? shown.firstChild.textContent.replaceAll(",", "") : "", Date.now()]);
});
"""


class Writer:
    """The journal of the run that is looked at."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._seq = 0
        self.evaluations = 0

    def put(self, key: str, value: dict[str, Any]) -> None:
        """One record."""
        head = {"schema": 1, "seq": self._seq, "time": "2026-01-01T00:00:00.000+00:00"}
        self._file.write(dumps(head | {"key": key, "value": value}) + "\n")
        self._seq += 1
        self.evaluations += "/check/" in key

    def flush(self) -> None:
        """As a run does after each record."""
        self._file.flush()


def main() -> None:
    """Writes the run, looks at it, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--browser", default=shutil.which("chromium"))
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    root = find_root().path
    with tempfile.TemporaryDirectory(prefix="kopt-scale-") as made:
        folder = Path(made)
        for name in ("kernels", "configs"):
            (folder / name).symlink_to(root / name)
        example = simulate(folder)
        records = read_journal(example.journal_path)
        writer = Writer(lengthen(example))
        rounds = 0
        while writer.evaluations < arguments.evaluations:
            rounds += 1
            write_round(writer, records, rounds)
        writer.flush()
        found = {
            "evaluations": writer.evaluations,
            "rounds": rounds,
            "journal_bytes": sum(p.stat().st_size for p in folder.rglob("journal.jsonl")),
            "load": os.getloadavg(),
        }
        found |= look(folder, writer, arguments)
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def lengthen(example: Run) -> Path:
    """Another run with the manifest of the example; its journal, still empty."""
    run = example.folder.parent / "20990101-000000-gdn_decode-cpu-0000"
    run.mkdir()
    manifest = example.manifest()
    manifest |= {"run": run.name, "config": manifest["config"] | {"rounds": 1000}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run / "journal.jsonl"


def write_round(writer: Writer, records: tuple[JournalRecord, ...], number: int) -> None:
    """The example's round once more, with other candidates."""
    first = [each["sha256"] for each in _proposed(records)]

    def renamed(text: str) -> str:
        for each in first:
            text = text.replace(each[:12], f"{number:06x}{each[6:12]}")
        return re.sub(r"^r1/", f"r{number}/", text)

    for record in records:
        if record.key.startswith("r1/"):
            value = json.loads(renamed(json.dumps(record.value)))
            if "/check/" in record.key:
                value = EVALUATION | {"uuid": record.key.split("/")[6]}
            if record.key == "r1/result":
                value |= {"round": number}
            writer.put(renamed(record.key), value)


def _proposed(records: tuple[JournalRecord, ...]) -> list[dict[str, Any]]:
    return [
        each
        for record in records
        if record.key.startswith("r1/proposals/")
        for each in record.value["candidates"]
    ]


def look(folder: Path, writer: Writer, arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs the dashboard, and a browser that looks at it."""
    argv = [sys.executable, "-m", "kopt_controller", "--root", str(folder), "dashboard", "--json"]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = json.loads(server.stdout.readline())["url"]
        with sync_playwright() as playwright:
            sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=arguments.browser, args=sandbox)
            first = _open(browser, url, writer.evaluations)
            again = _open(browser, url, writer.evaluations)
            page = again.pop("page")
            updates = [_update(page, writer, n) for n in range(arguments.updates)]
            rows = page.evaluate("document.querySelectorAll('*').length")
            browser.close()
        return {
            "first_page": {k: v for k, v in first.items() if k != "page"},
            "next_page": again,
            "update_ms": {
                "median": statistics.median(updates),
                "max": max(updates),
                "updates": len(updates),
            },
            "elements": rows,
            "server_mb": _resident_mb(server.pid),
        }
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)


def _open(browser: Any, url: str, evaluations: int) -> dict[str, Any]:
    """A page in a browser that has nothing of it yet."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.add_init_script(NOTE_DRAWN)
    start = time.time()
    page.goto(url)
    figure = page.locator('[data-figure="Evaluations"]', has_text=f"{evaluations:,}")
    figure.wait_for(timeout=120_000)
    drawn = page.evaluate("window.drawnAt.at(-1)[1]") / 1e3 - start
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return {"first_paint_ms": round(paint), "all_drawn_ms": round(drawn * 1e3), "page": page}


def _update(page: Any, writer: Writer, number: int) -> float:
    """Milliseconds from a record on disk to the page that shows it."""
    key = f"r1/gate/{number:012x}/simulated/check/{number:012x}/{number:08x}"
    writer.put(key, EVALUATION | {"uuid": f"{number:08x}"})
    writer.flush()
    start = time.time()
    wanted = str(writer.evaluations)
    figure = page.locator('[data-figure="Evaluations"]', has_text=f"{writer.evaluations:,}")
    figure.wait_for(timeout=10_000)
    at = page.evaluate(f"window.drawnAt.find((each) => each[0] === '{wanted}')[1]")
    time.sleep(0.3)
    return round(at - start * 1e3, 1)


def _resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", text)
    assert found is not None
    return round(int(found.group(1)) / 1024, 1)


if __name__ == "__main__":
    main()
