"""The server of the dashboard: who may ask, what is answered, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kopt_controller.cli import main
from kopt_controller.steering import STEER_FILE, read_steers
from kopt_harness.archive import Archive, Run
from kopt_harness.errors import UsageError

from .conftest import Toy, make_toy

serving = pytest.importorskip(
    "kopt_controller.dashboard.serve", reason="the extra dashboard is not installed"
)
hubs = pytest.importorskip("kopt_controller.dashboard.hub")
guards = pytest.importorskip("kopt_controller.dashboard.guard")

TOKEN = "a-token-of-the-tests"
STEER = {"content-type": "application/json", "sec-fetch-site": "same-origin"}


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Site(NamedTuple):
    """A dashboard that answers."""

    run: Run
    port: int

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: str | None = None,
        token: str = TOKEN,
        **headers: str,
    ) -> Answer:
        """One request, with the headers of a page of its own unless others are given."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, f"/{token}/{path}", body=body, headers=given)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, headers, response.read())
        connection.close()
        return answer

    def steer(self, options: object, **headers: str) -> Answer:
        """Says something, as the page does."""
        own = {"origin": f"http://127.0.0.1:{self.port}", "content_type": "application/json"}
        body = json.dumps({"run": self.run.id, "options": options})
        return self.ask("steer", method="POST", body=body, **(own | headers))

    @contextmanager
    def events(self) -> Iterator[Iterator[tuple[str, Any]]]:
        """Kind and document of each event of the stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", f"/{TOKEN}/events")
        response = connection.getresponse()
        assert response.getheader("content-type", "").startswith("text/event-stream")

        def read() -> Iterator[tuple[str, Any]]:
            kind = ""
            while line := response.readline().decode().rstrip("\n"):
                pass  # the retry line and the blank after it
            while True:
                line = response.readline().decode().rstrip("\n")
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                if line.startswith("data: "):
                    yield kind, json.loads(line.removeprefix("data: "))

        try:
            yield read()
        finally:
            connection.close()


@contextmanager
def served(archive: Archive, run: Run) -> Iterator[Site]:
    """A server in a thread; it ends when it is told to."""
    listener = serving.Listener(hubs.Hub(archive, None, None), token=TOKEN, port=0)
    thread = threading.Thread(target=listener.serve)
    thread.start()
    try:
        yield Site(run, listener.port)
    finally:
        listener.stop()
        thread.join(10)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two rounds; tests work on copies of it."""
    campaign = make_toy(tmp_path_factory.mktemp("finished")).campaign(rounds=2)
    campaign.execute()
    return campaign.run


@pytest.fixture
def archive(finished: Run, tmp_path: Path) -> Archive:
    """With one run, that has not come to its end."""
    copied = tmp_path / "runs" / finished.id
    shutil.copytree(finished.folder, copied)
    lines = (copied / "journal.jsonl").read_text().splitlines(keepends=True)
    assert '"key":"finished"' in lines[-1]
    (copied / "journal.jsonl").write_text("".join(lines[:-1]))
    return Archive(tmp_path)


@pytest.fixture
def site(archive: Archive) -> Iterator[Site]:
    """A dashboard of that run."""
    with served(archive, archive.runs()[0]) as found:
        yield found


def test_every_answer_is_guarded(site: Site) -> None:
    """Nothing is kept, nothing comes from elsewhere, nobody frames it; also where it refuses."""
    answers = [site.ask(""), site.ask("dashboard.js"), site.ask("runs"), site.ask("", token="no")]
    for answer in answers:
        assert {name: answer.headers[name] for name in guards.HEADERS} == guards.HEADERS
        assert "server" not in answer.headers
    policy = answers[0].headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


@pytest.mark.parametrize("token", ["", "no", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "%C3%A4"])
def test_without_the_token_there_is_nothing(site: Site, token: str) -> None:
    """Whatever is asked for, the answer is the same."""
    for path in ("", "events", "steer", "nothing"):
        assert site.ask(path, token=token).status == 404
    body = json.dumps({"run": site.run.id, "options": {"note": "x"}})
    assert site.ask("steer", method="POST", body=body, token=token, **STEER).status == 404
    assert not (site.run.folder / STEER_FILE).exists()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1.evil.example", ""])
def test_another_host_name_is_refused(site: Site, host: str) -> None:
    """A name from elsewhere that points here does not reach it."""
    assert site.ask("", host=host).status == 421
    assert site.ask("", host=f"localhost:{site.port}").status == 200


def test_a_steer_is_on_disk_when_it_is_answered(site: Site) -> None:
    """With who said it, as kopt steer writes it."""
    answer = site.steer({"note": "mind the tail", "block": ["hardware"]})
    assert answer.status == 201
    found = read_steers(site.run.folder / STEER_FILE)
    assert [(each.kind, each.value) for each in found] == [
        ("note", "mind the tail"),
        ("block", "hardware"),
    ]
    assert answer.document["added"] == [each.sentence for each in found]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_another_page_cannot_steer(site: Site, headers: dict[str, str], status: int) -> None:
    """Not even one that knows the address."""
    assert site.steer({"stop": "a person"}, **headers).status == status
    assert not (site.run.folder / STEER_FILE).exists()


@pytest.mark.parametrize(
    "options",
    [
        {},
        [],
        {"note": ""},
        {"note": 7},
        {"promote": "now"},
        {"block": "no-such-direction"},
        {"agent": "nobody"},
        {"language": "klingon"},
        {"budget": "soon"},
        {"budget": "nan"},
        {"budget": "-1"},
    ],
)
def test_what_no_round_could_follow_is_refused(site: Site, options: object) -> None:
    """With the reason, and nothing is written."""
    answer = site.steer(options)
    assert answer.status == 400
    assert answer.document["error"]
    assert answer.document["hint"]
    assert not (site.run.folder / STEER_FILE).exists()


def test_too_much_is_not_read(site: Site) -> None:
    """A body has a limit."""
    assert site.steer({"note": "x" * guards.MOST_BODY_BYTES}).status == 413


@pytest.mark.parametrize("path", ["index.html", "../app.py", "%2e%2e/app.py", "app.py", "a/b"])
def test_only_the_files_of_the_page_are_served(site: Site, path: str) -> None:
    """Nothing beside them can be named."""
    assert site.ask(path).status == 404


def test_the_stream_begins_with_all_and_goes_on_with_what_changes(site: Site) -> None:
    """A steer is on it within moments."""
    with site.events() as events:
        kind, first = next(events)
        assert kind == "board"
        assert first["whole"]
        assert first["board"]["run"]["run"] == site.run.id
        site.steer({"note": "live"})
        _, second = next(events)
        assert not second["whole"]
        assert second["board"]["steer/0"]["value"] == "live"
        assert "run" not in second["board"], "only what changed"


def test_a_page_that_was_cut_off_goes_on_where_it_was(site: Site) -> None:
    """It names the last event that it got."""
    with site.events() as events:
        _, first = next(events)
    site.steer({"note": "meanwhile"})
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=10)
    last = f"{first['generation']}:{first['revision']}"
    connection.request("GET", f"/{TOKEN}/events", headers={"last-event-id": last})
    response = connection.getresponse()
    lines = [response.readline().decode() for _ in range(5)]
    data = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
    assert list(data["board"]) == ["steer/0"]
    connection.close()


def test_evaluations_are_asked_for_by_the_page(site: Site) -> None:
    """Sorted, searched and cut by the server; an order that is not known finds nothing."""
    with site.events() as events:
        next(events)
    found = site.ask("evaluations?sort=round&descending=1&limit=2&search=sweep").document
    assert len(found["rows"]) == 2
    assert {row[found["columns"].index("stage")] for row in found["rows"]} == {"sweep"}
    assert site.ask("evaluations?limit=99999999999&offset=-1").status == 200
    assert site.ask("evaluations?sort=__class__").document["rows"] == []


def test_two_dashboards_stand_side_by_side(site: Site, archive: Archive) -> None:
    """Each with a port and a token of its own, on one archive."""
    with served(archive, site.run) as other:
        assert other.port != site.port
        with site.events() as here, other.events() as there:
            assert next(here)[1]["board"]["run"] == next(there)[1]["board"]["run"]


def test_a_port_that_is_taken_is_named(site: Site, archive: Archive) -> None:
    """The user is told what to do."""
    hub = hubs.Hub(archive, None, None)
    with pytest.raises(UsageError, match=str(site.port)):
        serving.Listener(hub, token=TOKEN, port=site.port)


def test_an_archive_without_a_run_is_waited_for(toy: Toy) -> None:
    """The page says so, and shows the first run when it begins."""
    archive = Archive(toy.root.local)
    hub = hubs.Hub(archive, None, None)
    assert hub.watched() is None
    assert hub.runs() == []
    campaign = toy.campaign(rounds=1)
    assert hub.watched() is not None
    assert [each["run"] for each in hub.runs()] == [campaign.run.id]


def test_control_c_ends_it_and_nothing_else(toy: Toy) -> None:
    """With a page open: exit code 0, a word to the user, no traceback, and the token in no log."""
    toy.campaign(rounds=1)
    argv = [sys.executable, "-m", "kopt_controller", "--root", str(toy.root.path)]
    process = subprocess.Popen(
        [*argv, "dashboard", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        host, token = url.removeprefix("http://").split("/")[:2]
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request("GET", f"/{token}/events")
        response = connection.getresponse()
        assert response.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        response.close()
        connection.close()
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert said == "the dashboard has ended; the run goes on\n"


def test_without_the_extra_the_user_is_told_what_to_install(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And how to look without it."""
    monkeypatch.setitem(sys.modules, "kopt_controller.dashboard.serve", None)
    assert main(["--root", str(toy.root.path), "dashboard"]) == UsageError.exit_code
    said = capsys.readouterr().err
    assert "'.[dashboard]'" in said
    assert "kopt status --watch" in said
