"""Listens on the loopback interface until it is interrupted."""

from __future__ import annotations

import socket
import threading
from types import FrameType

import uvicorn
from kopt_harness.errors import UsageError

from .app import make_app
from .hub import Hub

__all__ = ["Listener"]

HOST = "127.0.0.1"
"""And nothing else: who looks from another machine goes through ssh."""
GRACE_S = 2
"""For answers that are under way when the server ends."""


class Listener:
    """An open port, and the server behind it."""

    def __init__(self, hub: Hub, *, token: str, port: int) -> None:
        """Takes the port; nothing is answered before ``serve``.

        Args:
            hub: Where the answers come from.
            token: That every path begins with.
            port: 0: any that is free.

        Raises:
            UsageError: If the port cannot be taken.
        """
        self._hub = hub
        self._socket = _listen(port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}/{token}/"
        """Whole address of the page."""
        config = uvicorn.Config(
            make_app(hub, token=token, port=self.port),
            access_log=False,  # the token is part of every path
            log_level="warning",
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _Server(config, hub)

    def serve(self) -> None:
        """Answers until a signal comes, or ``stop``."""
        threading.Thread(target=self._hub.warm, daemon=True).start()
        try:
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:
            # The signal is raised once more when the server has ended, as it was told to.
            return
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Ends ``serve`` in another thread."""
        self._server.handle_exit(0, None)


class _Server(uvicorn.Server):
    """Tells the streams that it ends: they would keep it waiting."""

    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._hub.closing.set()
        if sig:
            super().handle_exit(sig, frame)
        else:
            self.should_exit = True


def _listen(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        made.listen()
    except (OSError, OverflowError) as error:
        made.close()
        raise UsageError(
            f"the port {port!r} cannot be used: {error}",
            hint="leave --port out, and a free one is taken",
        ) from error
    return made
