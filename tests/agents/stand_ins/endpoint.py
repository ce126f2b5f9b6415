"""Stands in for an endpoint with chat completions: streams what a script says, keeps what it got.

Each request takes the next answer of the script, the last one for all that follow. An answer is
a dict: ``status`` and ``headers`` and ``error`` for a failure; else ``text`` (streamed in parts),
``finish``, ``usage``, ``refusal``, ``raw`` for lines that are sent as they are, and ``cut`` for a
connection that ends before its end.

    python tests/agents/stand_ins/endpoint.py --port 8399 --text '{"drafts": []}'

answers everybody alike until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = "stand-in-2"


class Endpoint:
    """The server, and all that it was asked."""

    def __init__(self, answers: Sequence[dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.url = ""

    def next(self, request: dict[str, Any], key: str) -> dict[str, Any]:
        """Notes a request; its answer."""
        self.requests.append(request)
        self.keys.append(key)
        self.times.append(time.monotonic())
        return self.answers[min(len(self.requests), len(self.answers)) - 1]


@contextmanager
def serve(answers: Sequence[dict[str, Any]], port: int = 0) -> Iterator[Endpoint]:
    """Serves on a port of this machine, 0 is a free one, while the body runs."""
    endpoint = Endpoint(answers)

    class Handler(_Handler):
        pass

    Handler.endpoint = endpoint
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    endpoint: Endpoint

    def do_POST(self) -> None:
        """One chat completion."""
        size = int(self.headers["Content-Length"])
        request = json.loads(self.rfile.read(size))
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        answer = self.endpoint.next(request, key)
        time.sleep(answer.get("sleep_s", 0.0))
        if "status" in answer:
            self._fail(answer)
        else:
            self._stream(answer)

    def _fail(self, answer: dict[str, Any]) -> None:
        body = json.dumps({"error": answer.get("error", {"message": "no", "code": None})}).encode()
        self.send_response(answer["status"])
        for name, value in answer.get("headers", {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        text, size = answer.get("text", ""), answer.get("part", 200)
        try:
            for at in range(0, len(text), size):
                self._chunk({"content": text[at : at + size]})
                time.sleep(answer.get("pause_s", 0.0))
            for line in answer.get("raw", ()):
                self.wfile.write(f"data: {line}\n\n".encode())
            if answer.get("refusal"):
                self._chunk({"refusal": answer["refusal"]})
            if not answer.get("cut"):
                self._chunk({}, finish=answer.get("finish", "stop"))
                if "usage" in answer:
                    self._chunk(None, usage=answer["usage"])
                self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            return  # whoever asked has heard enough

    def _chunk(
        self, delta: dict[str, Any] | None, finish: str | None = None, usage: Any = None
    ) -> None:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        event = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": MODEL,
            "choices": choices,
            "usage": usage,
        }
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base's name
        """Nothing is printed."""


def main(argv: Sequence[str] | None = None) -> None:
    """Answers everybody with one text until Ctrl-C."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    answer = parser.add_mutually_exclusive_group(required=True)
    answer.add_argument("--text", help="of every answer")
    answer.add_argument("--file", type=Path, help="with the text of every answer")
    given = parser.parse_args(argv)
    text = given.text if given.file is None else given.file.read_text()
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    with (
        serve([{"text": text, "usage": usage}], given.port) as endpoint,
        suppress(KeyboardInterrupt),
    ):
        sys.stdout.write(f"{endpoint.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
