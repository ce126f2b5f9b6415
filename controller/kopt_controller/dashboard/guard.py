"""Who may ask: only this machine, only with the token, only under the server's own name.

The token is part of every path. It is compared in constant time, and no address without it is
told from one that does not exist. The ``Host`` header must be the server's own, so that a page
from elsewhere cannot reach it under a name that it points here. What changes something must come
from a page of this server and be JSON, which no form of another page can send.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "Guard", "hosts_of"]

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Of every answer: nothing is kept, nothing is loaded from elsewhere, nobody frames it."""

MOST_BODY_BYTES = 64 * 1024
_READING = ("GET", "HEAD")


class Refusal(NamedTuple):
    """Why a request gets no answer."""

    status: int
    text: str


def hosts_of(port: int) -> frozenset[str]:
    """Names under which the server is asked on this machine."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))


class Guard:
    """ASGI middleware; what it lets through has a path without the token."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: frozenset[str]) -> None:
        """Stands before an application.

        Args:
            app: What answers.
            token: That every path begins with.
            hosts: Values of ``Host`` that are its own.
        """
        self._app = app
        self._token = token.encode()
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers, or refuses."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        _, _, rest = scope["path"].partition("/")
        token, slash, path = rest.partition("/")
        refusal = self._refusal(scope, token)
        if refusal is not None:
            answer = PlainTextResponse(refusal.text, refusal.status)
            await answer(scope, receive, send_guarded)
            return
        inner = dict(scope) | {"path": f"/{path}" if slash else "", "root_path": ""}
        await self._app(inner, receive, send_guarded)

    def _refusal(self, scope: Scope, token: str) -> Refusal | None:
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        given = [value for name, value in scope["headers"] if name == b"host"]
        host = headers.get("host", b"").decode("latin-1")
        if len(given) != 1 or host not in self._hosts:
            return Refusal(421, "This is not the server that you asked for.\n")
        if not hmac.compare_digest(token.encode(), self._token):
            return Refusal(404, "There is nothing here. Use the whole address that kopt printed.\n")
        if scope["method"] in _READING:
            return None
        return _refusal_of_change(headers, host)


def _refusal_of_change(headers: Mapping[str, bytes], host: str) -> Refusal | None:
    """For requests that change something."""
    origin = headers.get("origin", b"").decode("latin-1")
    if origin != f"http://{host}" or headers.get("sec-fetch-site", b"same-origin") != (
        b"same-origin"
    ):
        return Refusal(403, "Only a page of this server may do that.\n")
    if headers.get("content-type", b"").split(b";")[0].strip() != b"application/json":
        return Refusal(415, "Send JSON.\n")
    length = headers.get("content-length", b"")
    if not length.isdigit() or int(length) > MOST_BODY_BYTES:
        return Refusal(413, "That is too long.\n")
    return None
