"""What the server answers: the page, a stream of what changes, the table, and a steer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

from kopt_harness.errors import InvalidInputError, KoptError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ..live.evaluations import COLUMNS
from ..steering import SteerKind
from .guard import Guard, hosts_of
from .hub import Hub, Watched

__all__ = ["make_app"]

PAGE = Path(__file__).parent / "page"
FILES = ("chart.js", "dashboard.css", "dashboard.js", "format.js", "icon.svg", "table.js")
"""What the page loads; nothing else of the folder is served."""

POLL_S = 0.1
"""Time between two looks at the files of a run: each costs a few calls of the system."""
EMPTY_S = 1.0
"""The same where there is no run yet."""
BEAT_S = 15.0
"""After so long a silence a line is sent that says nothing, so that a lost page is noticed."""
MOST_ROWS = 500


def make_app(hub: Hub, *, token: str, port: int) -> Starlette:
    """The application.

    Args:
        hub: Where the answers come from.
        token: That every path begins with.
        port: That it is asked at.
    """
    answers = _Answers(hub)
    routes = [
        Route("/", answers.page),
        Route("/events", answers.events),
        Route("/runs", answers.runs),
        Route("/choices", answers.choices),
        Route("/evaluations", answers.evaluations),
        Route("/steer", answers.steer, methods=["POST"]),
        Route("/{name}", answers.file),
    ]
    guard = Middleware(Guard, token=token, hosts=hosts_of(port))
    return Starlette(routes=routes, middleware=[guard], exception_handlers={KoptError: _refused})


class _Answers:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def page(self, _: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            return Response(status_code=404)
        return FileResponse(PAGE / name)

    async def runs(self, _: Request) -> Response:
        return JSONResponse({"runs": await run_in_threadpool(self._hub.runs)})

    async def choices(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._hub.choices))

    async def evaluations(self, request: Request) -> Response:
        asked = request.query_params
        watched = await run_in_threadpool(self._hub.watched, asked.get("run"))
        sort = asked.get("sort", "number")
        if watched is None or sort not in COLUMNS:
            return JSONResponse({"columns": COLUMNS, "rows": [], "found": 0, "total": 0})
        page = await run_in_threadpool(
            watched.evaluations,
            search=asked.get("search", ""),
            sort=sort,
            descending=asked.get("descending") == "1",
            offset=_count(asked.get("offset"), 0),
            limit=min(_count(asked.get("limit"), 100), MOST_ROWS),
        )
        return JSONResponse(page)

    async def steer(self, request: Request) -> Response:
        run, options = _steer(await request.body())
        said = await run_in_threadpool(self._hub.steer, run, options)
        return JSONResponse(said, status_code=201)

    async def events(self, request: Request) -> Response:
        run = request.query_params.get("run")
        seen = request.headers.get("last-event-id", "")
        stream = self._stream(run, *_position(seen))
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _stream(self, run: str | None, generation: int, revision: int) -> AsyncIterator[str]:
        """Server-sent events, until the page or the server goes away."""
        yield "retry: 1000\n\n"
        watched: Watched | None = None
        silent_s = 0.0
        while not self._hub.closing.is_set():
            try:
                watched = watched or await run_in_threadpool(self._hub.watched, run)
                if watched is None:
                    yield _event("empty", {})
                    await asyncio.sleep(EMPTY_S)
                    continue
                news = await run_in_threadpool(watched.news, generation, revision)
            except KoptError as error:
                yield _event("problem", {"error": error.message, "hint": error.hint})
                return
            if news is not None:
                generation, revision = news["generation"], news["revision"]
                yield _event("board", news, f"{generation}:{revision}")
            elif silent_s >= BEAT_S:
                yield ": still here\n\n"
            silent_s = 0.0 if news is not None or silent_s >= BEAT_S else silent_s + POLL_S
            await asyncio.sleep(POLL_S)


def _event(kind: str, document: dict[str, Any], position: str | None = None) -> str:
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    number = "" if position is None else f"id: {position}\n"
    return f"{number}event: {kind}\ndata: {text}\n\n"


def _position(seen: str) -> tuple[int, int]:
    """Where a page that was cut off goes on."""
    generation, _, revision = seen.partition(":")
    if generation.isdecimal() and revision.isdecimal():
        return int(generation), int(revision)
    return -1, 0


def _count(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else default


def _steer(body: bytes) -> tuple[str, dict[str, object]]:
    """Run and options of a steer; only values that the form can send.

    Raises:
        InvalidInputError: If it is something else.
    """
    refused = InvalidInputError("this is no steer", hint="use the form of the dashboard")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise refused from error
    if not isinstance(document, dict) or not isinstance(document.get("run"), str):
        raise refused
    options = document.get("options")
    if not isinstance(options, dict):
        raise refused
    for kind, value in options.items():
        texts = value if isinstance(value, list) else [value]
        if kind not in get_args(SteerKind) or not all(map(_says_something, texts)):
            raise refused
    return document["run"], options


def _says_something(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip())


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, KoptError), "the handler of this error alone"
    return JSONResponse({"error": error.message, "hint": error.hint}, status_code=400)
