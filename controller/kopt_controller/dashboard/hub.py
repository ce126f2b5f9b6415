"""The runs that somebody looks at: each is followed once, however many pages show it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from kopt_harness.archive import Archive
from kopt_harness.catalog import Catalog
from kopt_harness.errors import KoptError, NotFoundError

from ..agents import agent_names
from ..directions import load_directions
from ..history import newest_run
from ..indexed import open_index
from ..live import Follower
from ..saying import known_languages, say
from ..views import campaign_rows

__all__ = ["Hub", "Watched"]

MOST_RUNS = 8
"""Followed at a time; the one that was opened first is given up for another one."""
LISTED_RUNS = 40


class Watched:
    """A follower that several threads ask."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._lock = threading.Lock()

    def news(self, generation: int, revision: int) -> dict[str, Any] | None:
        """What a page does not know yet; None where that is nothing.

        Args:
            generation: Of what the page has; -1 where it has nothing.
            revision: The same.
        """
        with self._lock:
            self._follower.advance()
            board = self._follower.board
            is_whole = generation != self._follower.generation or revision > board.revision
            if not is_whole and board.revision == revision:
                return None
            return {
                "generation": self._follower.generation,
                "revision": board.revision,
                "whole": is_whole,
                "board": board.whole() if is_whole else board.since(revision),
            }

    def evaluations(self, **asked: Any) -> dict[str, Any]:
        """Rows of the table of evaluations; see ``EvaluationTable.page``."""
        with self._lock:
            return self._follower.table.page(**asked).document()


class Hub:
    """What the pages of one ``kopt dashboard`` are made of; any thread may ask."""

    def __init__(self, archive: Archive, catalog: Catalog | None, run: str | None) -> None:
        """Nothing is read yet.

        Args:
            archive: Of this machine.
            catalog: Says how many workloads a sweep has.
            run: Id or a part of it; None: the newest campaign that is running, else
                the newest, whichever that is.
        """
        self._archive = archive
        self._catalog = catalog
        self._run = run
        self._watched: dict[str, Watched] = {}
        self._lock = threading.Lock()
        self.closing = threading.Event()
        """Set when the server ends, so that no page waits for more."""

    def watched(self, run: str | None = None) -> Watched | None:
        """A run by its id; without one the run of this dashboard; None where there is none yet.

        Raises:
            NotFoundError: If there is no such campaign.
            InvalidInputError: If it cannot be read.
        """
        name = run or self._run or self._latest()
        if name is None:
            return None
        found = self._archive.run(name)
        with self._lock:
            if found.id not in self._watched:
                if len(self._watched) >= MOST_RUNS:
                    del self._watched[next(iter(self._watched))]
                self._watched[found.id] = Watched(Follower(found, self._catalog))
            return self._watched[found.id]

    def warm(self) -> None:
        """Reads the run of this dashboard, so that the first page does not wait for it."""
        with contextlib.suppress(KoptError):  # the page will be told
            watched = self.watched()
            if watched is not None:
                watched.news(-1, 0)

    def runs(self) -> list[dict[str, Any]]:
        """Campaigns to choose among, the latest first."""
        with open_index(self._archive.folder) as index:
            found = campaign_rows(index, last=LISTED_RUNS)
        return [each.model_dump(mode="json") for each in reversed(found)]

    def choices(self) -> dict[str, Any]:
        """What a steer can name."""
        directions = load_directions()
        return {
            "directions": [{"id": name, "title": each.title} for name, each in directions.items()],
            "agents": list(agent_names()),
            "languages": list(known_languages()),
        }

    def steer(self, run: str, options: Mapping[str, object]) -> dict[str, Any]:
        """Does what ``kopt steer`` does.

        Raises:
            KoptError: As ``say``.
        """
        if not options:
            raise NotFoundError("nothing to say", hint="fill in at least one field")
        said = say(self._archive, run, options)
        return {"run": said.view.run.id, "added": [each.sentence for each in said.added]}

    def _latest(self) -> str | None:
        with open_index(self._archive.folder) as index:
            found = newest_run(index)
        return None if found is None else found.id
