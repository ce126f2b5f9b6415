"""The loop that every worker runs: one request, one answer, until the channel closes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from kopt_harness.errors import InfraError, KoptError

from .wire import Channel, ChannelClosedError

__all__ = ["Handler", "serve"]

Handler = Callable[[dict[str, Any]], dict[str, Any]]

_MAX_ERROR_CHARS = 2000


def serve(channel: Channel, handlers: Mapping[str, Handler]) -> None:
    """Answers each request with ``done`` and its fields, or with ``error``.

    This is the worker border: whatever candidate or definition code raises becomes an
    ``error`` frame, and its traceback goes to the worker's log.
    """
    while True:
        try:
            request = channel.receive()
        except ChannelClosedError:
            return
        try:
            answer = handlers[request["type"]](request)
        except KoptError as error:
            kind = "infra" if isinstance(error, InfraError) else "unavailable"
            channel.send("error", kind=kind, message=error.message[:_MAX_ERROR_CHARS])
        except ChannelClosedError:
            return
        except BaseException as error:  # noqa: BLE001  the one broad except: the worker border
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
            text = f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]
            channel.send("error", kind=type(error).__name__, message=text)
            if isinstance(error, SystemExit):
                os._exit(1)
        else:
            channel.send("done", **answer)
