"""A conversation with an endpoint: streamed, retried by what went wrong, and counted.

Only this module knows the ``openai`` package, which is loaded when it is needed.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NamedTuple

from kopt_harness.environ import variable
from kopt_harness.errors import UnavailableError
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_any,
)
from tenacity.stop import stop_base

from ...agent_settings import AgentSettings
from ...costs import Allowance, Usage
from ..protocol import Ending
from .calls import CallLedger
from .charging import Account, left_of, priced
from .claims import Numbers, fields, listed, text, unpaired
from .prompt import render_question

__all__ = ["KEY_ENV", "PACKAGE_HINT", "ChatError", "Line", "Piece", "Talk", "open_line"]

KEY_ENV = "OPENAI_API_KEY"
"""Of the key, where the settings name none."""
PACKAGE_HINT = "pip install -e '.[llm]'"
_MOST_PIECES = 3
"""Of one answer: an endpoint that always stops early would be asked for ever."""
_LETTERS_PER_TOKEN = 4
"""Where an endpoint does not say what was used; text in code has fewer."""
_MOST_LETTERS_PER_TOKEN = 12
"""An answer with more letters than that for each token it may have is cut off here."""
_MOST_WAIT_S = 600.0
_TRANSPORTS = ("httpx", "httpx2")
_OPTIONAL = ("response_format", "stream_options", "max_completion_tokens")
"""Parameters that some endpoints do not know; they are asked again without."""


class ChatError(Exception):
    """The conversation is over, and why."""

    ending: Ending


class _PassingError(ChatError):
    """Something that may be over after a while."""

    def __init__(self, ending: Ending, text: str, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.ending = ending
        self.wait_s = wait_s


class _FinalError(ChatError):
    """Something that will be the same next time."""

    def __init__(self, ending: Ending, text: str) -> None:
        super().__init__(text)
        self.ending = ending


class Piece(NamedTuple):
    """One answer of the endpoint, maybe the beginning of one."""

    text: str
    finish: str


class Line(NamedTuple):
    """To one model."""

    client: Any
    settings: AgentSettings
    model: str


class Talk:
    """One conversation; every answer that was complete is kept, so that a killed one goes on."""

    def __init__(
        self, line: Line, call: CallLedger, account: Account, allowance: Allowance
    ) -> None:
        self._line = line
        self._call = call
        self._account = account
        self._allowance = allowance
        timeout_s = line.settings.timeout_s
        wall_s = allowance.wall_s
        self._deadline = time.monotonic() + (
            timeout_s if wall_s is None else min(timeout_s, wall_s)
        )
        self._messages: list[dict[str, str]] = []
        self._left_out: set[str] = set()
        self._pieces = 0
        self.uses: list[Usage] = []
        self.notes: list[str] = []

    def say(self, text: str, shape: dict[str, Any] | None) -> Piece:
        """The whole answer, in as many pieces as it takes; what was cut off is asked for."""
        self._messages.append({"role": "user", "content": text})
        whole = ""
        for _ in range(_MOST_PIECES):
            piece = self._piece(shape)
            whole += piece.text
            self._messages.append({"role": "assistant", "content": piece.text})
            if piece.finish != "length" or not piece.text:
                break
            self.notes.append("openai: an answer was cut off and asked for further")
            self._messages.append({"role": "user", "content": render_question("go_on").text})
            shape = None  # the rest of an object is no object
        return Piece(whole, piece.finish)

    def _piece(self, shape: dict[str, Any] | None) -> Piece:
        number = self._pieces
        self._pieces += 1
        kept = self._call.once(
            f"piece/{number}", lambda: self._retried(partial(self._request, shape))._asdict()
        )
        return Piece(kept["text"], kept["finish"])

    def _retried(self, request: Callable[[], Piece]) -> Piece:
        settings = self._line.settings

        def wait(state: RetryCallState) -> float:
            error = None if state.outcome is None else state.outcome.exception()
            named = error.wait_s if isinstance(error, _PassingError) else None
            pause = settings.wait_s * 2 ** (state.attempt_number - 1) if named is None else named
            return min(pause, _MOST_WAIT_S)

        class TooLate(stop_base):
            def __call__(_, state: RetryCallState) -> bool:  # noqa: N805  self is the talk
                return time.monotonic() + wait(state) >= self._deadline

        for attempt in Retrying(
            retry=retry_if_exception_type(_PassingError),
            stop=stop_any(stop_after_attempt(settings.attempts), TooLate()),
            wait=wait,
            reraise=True,
        ):
            with attempt:
                return request()
        raise AssertionError("the last attempt returns or raises")

    def _request(self, shape: dict[str, Any] | None) -> Piece:
        """One request; its costs are kept however it ends."""
        settings = self._line.settings
        left = left_of(self._allowance, self.uses)
        most = settings.max_output_tokens
        most = most if left.tokens is None else min(most, left.tokens)
        self._require_left(left, most)
        number = self._call.start()
        start = time.monotonic()
        stream = _Stream()
        try:
            with _faults(), _closing(self._open(shape, most)) as chunks:
                stream.read(chunks, most * _MOST_LETTERS_PER_TOKEN, self._deadline)
        finally:
            usage = self._usage(stream, time.monotonic() - start)
            self._call.note_usage(number, [usage])
            self.uses.append(usage)
        if stream.refusal:
            raise _FinalError("refusal", f"the model refused: {stream.refusal[:200]}")
        if stream.finish == "content_filter":
            raise _FinalError("refusal", "the answer was filtered")
        if not stream.finish:
            raise _PassingError("server-error", "the answer ended before its end")
        return Piece(unpaired(stream.text), stream.finish)

    def _require_left(self, left: Allowance, most: int) -> None:
        settings = self._line.settings
        letters = sum(len(message["content"]) for message in self._messages)
        least = Usage(agent="openai", tokens_in=letters // _LETTERS_PER_TOKEN)
        dollars = priced(least, settings).dollars
        if most <= 0 or left.dollars == 0:
            raise _FinalError("budget", "nothing is left of what it may spend")
        if left.dollars is not None and dollars is not None and dollars > left.dollars:
            raise _FinalError("budget", f"the prompt alone costs more than {left.dollars:.4f}")

    def _open(self, shape: dict[str, Any] | None, most: int) -> Any:
        """The stream; parameters that the endpoint does not know are left out from then on."""
        line = self._line
        while True:
            options: dict[str, Any] = {
                "stream_options": {"include_usage": True},
                "max_completion_tokens": most,
            }
            if shape is not None:
                schema = {"name": "answer", "strict": True, "schema": shape}
                options["response_format"] = {"type": "json_schema", "json_schema": schema}
            options = {k: v for k, v in options.items() if k not in self._left_out}
            if "max_completion_tokens" in self._left_out:
                options["max_tokens"] = most
            try:
                return line.client.chat.completions.create(
                    model=line.model, messages=self._messages, stream=True, **options
                )
            except _openai().BadRequestError as error:
                unknown = next((n for n in _OPTIONAL if n in options and n in str(error)), None)
                if unknown is None:
                    raise
                self._left_out.add(unknown)
                self.notes.append(f"openai: the endpoint does not know {unknown}")

    def _usage(self, stream: _Stream, wall_s: float) -> Usage:
        said = Numbers(stream.usage)
        details = Numbers(fields(stream.usage.get("prompt_tokens_details")))
        cached = details.tokens("cached_tokens")
        tokens_in = max(0, said.tokens("prompt_tokens") - cached)
        tokens_out = said.tokens("completion_tokens")
        dropped = [*said.dropped, *details.dropped]
        if not stream.usage and stream.text:
            self.notes.append("openai: the endpoint does not say what was used; letters count")
            sent = sum(len(message["content"]) for message in self._messages)
            tokens_in = sent // _LETTERS_PER_TOKEN
            tokens_out = len(stream.text) // _LETTERS_PER_TOKEN
        if dropped:
            names = ", ".join(dropped)
            self.notes.append(f"openai: numbers that cannot be were not counted: {names}")
        usage = Usage(
            agent=self._account.agent,
            model=stream.model or self._line.model,
            role=self._account.role,
            sub_agent=self._account.sub_agent,
            tokens_in=tokens_in,
            tokens_cached=cached,
            tokens_out=tokens_out,
            wall_s=round(wall_s, 3),
            is_partial=bool(dropped),
        )
        return priced(usage, self._line.settings)


class _Stream:
    """What has come of an answer so far."""

    def __init__(self) -> None:
        self.text = ""
        self.refusal = ""
        self.finish = ""
        self.model = ""
        self.usage: Mapping[str, Any] = {}

    def read(self, chunks: Any, most_letters: int, deadline: float) -> None:
        """Reads it to its end, or to that of its room or its time."""
        for chunk in chunks:
            # The package checks nothing of what it hands on.
            said = fields(chunk)
            self.model = text(said.get("model")) or self.model
            self.usage = fields(said.get("usage")) or self.usage
            for each in listed(said.get("choices"))[:1]:
                choice = fields(each)
                delta = fields(choice.get("delta"))
                self.text += _words(delta.get("content"))
                self.refusal += text(delta.get("refusal"))
                self.finish = text(choice.get("finish_reason")) or self.finish
            if len(self.text) > most_letters:
                raise _FinalError("budget", f"it was ended after {len(self.text)} letters")
            if time.monotonic() > deadline:
                raise _FinalError("timeout", "its time was over")


def _words(value: Any) -> str:
    """Of an answer, as they are: sources may be among them."""
    return value if isinstance(value, str) else ""


class _closing:  # noqa: N801  a context manager that reads as a word
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __enter__(self) -> Iterator[Any]:
        chunks: Iterator[Any] = iter(self._stream)
        return chunks

    def __exit__(self, *_: object) -> None:
        self._stream.close()


class _faults:  # noqa: N801  the same
    """Turns what the package and its transport raise into what is tried again and what is not."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        module = _openai()
        # What the package sends with; its errors come through while an answer is streamed.
        known = [sys.modules[name] for name in _TRANSPORTS if name in sys.modules]
        lost = (module.OpenAIError, *(transport.HTTPError for transport in known))
        if isinstance(error, module.RateLimitError):
            if error.code == "insufficient_quota":
                raise _FinalError("failed", f"nothing is left of the account: {error}") from error
            raise _PassingError("rate-limit", str(error), _retry_after_s(error)) from error
        if isinstance(error, module.APITimeoutError):
            raise _PassingError("timeout", str(error)) from error
        if isinstance(error, module.InternalServerError):
            raise _PassingError("server-error", str(error), _retry_after_s(error)) from error
        if isinstance(error, module.APIStatusError):
            raise _FinalError("failed", str(error)) from error
        if isinstance(error, lost):
            raise _PassingError("server-error", str(error) or "the connection was lost") from error
        if isinstance(error, ValueError | RecursionError):
            # The package reads events of the stream as JSON, and lets through what that raises.
            raise _PassingError("server-error", f"an event cannot be read: {error}") from error


def _retry_after_s(error: Any) -> float | None:
    """Seconds, or a date, as the other side has named it."""
    value = error.response.headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (OverflowError, ValueError):
        return None


def _openai() -> Any:
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise UnavailableError(
            "the agent 'openai' needs the package openai", hint=PACKAGE_HINT
        ) from error


def open_line(settings: AgentSettings, model: str) -> Line:
    """A client of the package for one model.

    Args:
        settings: Where the endpoint is, and which variable has the key.
        model: Its name there.

    Raises:
        UnavailableError: If the package or the key is missing.
    """
    client = _openai().OpenAI(
        api_key=_key(settings),
        base_url=settings.base_url,
        max_retries=0,  # the package would try a refusal and a limit in the same way
        timeout=settings.timeout_s,
    )
    return Line(client, settings, model)


def _key(settings: AgentSettings) -> str:
    """The key; an endpoint of one's own may need none."""
    name = settings.key_env or KEY_ENV
    key = variable(name)
    if key is not None:
        return key
    if settings.base_url is not None and settings.key_env is None:
        return "none"
    raise UnavailableError(
        f"the agent 'openai' finds no key in ${name}",
        hint="set the variable, or name another with key_env in [agents.openai]",
    )
