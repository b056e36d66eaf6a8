"""The HTTP server: idle connections are closed, and a shutdown lets running requests finish."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import sys
import time
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from neuralsurv.service.middleware import Middleware

log = logging.getLogger("neuralsurv.service")

# Connections that may be open, however many files the system allows.
_MOST = 512
# Files that the process keeps for itself: its own, and connections that are accepted but not yet counted.
_RESERVE = 96
# Seconds that a client may let pass before it sends its request, or takes more of its answer.
_IDLE_LIMIT = 15
# Seconds for running requests to finish at shutdown, and then for refusing those that did not.
GRACE = 10.0
_REFUSAL_GRACE = 1
_QUEUE = 2048
_LOG_EVERY = 60.0


def most_connections() -> int:
    """Return how many connections may be open: fewer than the system allows this process to have files."""
    if sys.platform == "win32":
        return _MOST
    import resource

    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if allowed == resource.RLIM_INFINITY else min(_MOST, max(16, allowed - _RESERVE))


class RateLimitedWarning:
    """Logs a warning at most once a minute, however often it occurs."""

    def __init__(self) -> None:
        self._last = -math.inf

    def warn(self, text: str, *values: Any) -> None:
        """Log it, or leave it."""
        now = time.monotonic()
        if now >= self._last + _LOG_EVERY:
            self._last = now
            log.warning(text, *values)


_TOO_MANY, _NO_FILES = RateLimitedWarning(), RateLimitedWarning()


class Connection(H11Protocol):
    """A connection that is closed when its client is idle too long, or when there are too many.

    uvicorn has a time limit between two requests only: a client that connects and says nothing, sends its request a
    byte at a time or never reads its answer would keep its connection, and its file, forever.
    """

    _clock: asyncio.TimerHandle | None = None
    _turn: tuple[Any, bool] | None = None
    _unsent = math.inf
    # When the client's turn began, by the clock of the loop; None while the service works for it.
    waiting_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection, and close the one that has waited longest if there are too many."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) <= most_connections():
            return
        waiting = [one for one in self.connections if isinstance(one, Connection) and one.waiting_since is not None]
        # This one waits too, so there is always one.
        min(waiting, key=lambda one: one.waiting_since or 0.0)._close()
        _TOO_MANY.warn("%d connections are open, and those that wait longest are closed", len(self.connections))

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        if self._clock is not None:
            self._clock.cancel()

    def _watch(self) -> None:
        """Start the timer when the service waits for the client, and stop it when the client waits for the service."""
        answered = self.cycle is None or self.cycle.response_complete
        turn = (self.conn.their_state, answered)
        if turn == self._turn:
            return
        self._turn = turn
        if self._clock is not None:
            self._clock.cancel()
        self._clock, self.waiting_since, self._unsent = None, None, math.inf
        if answered or self.conn.their_state is h11.SEND_BODY:
            self.waiting_since = self.loop.time()
            self._clock = self.loop.call_later(self.timeout_keep_alive, self._late)

    def _late(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:
            # A slow line: the client reads its answer, and goes on reading.
            self._unsent = unsent
            self._clock = self.loop.call_later(self.timeout_keep_alive, self._late)
        else:
            self._close()

    def _close(self) -> None:
        # Not close(), which waits until the client has read all that was sent.
        self.waiting_since = None
        self.transport.abort()


class Server(uvicorn.Server):
    """Runs the service until the process is asked to stop."""

    def __init__(self, app: Middleware) -> None:
        self._app = app
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_IDLE_LIMIT,
                timeout_graceful_shutdown=_REFUSAL_GRACE,
                # asyncio accepts this many connections at a time, and retries each of them if there are no more files:
                # with more than one the attempts multiply.
                backlog=1,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        for place in sockets or []:
            place.listen(_QUEUE)
        asyncio.get_running_loop().set_exception_handler(_report)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests finish while new ones are refused; then refuse those that did not."""
        self._app.stop()
        await self._finish(GRACE)
        await super().shutdown(sockets)
        await self._finish(_REFUSAL_GRACE)

    async def _finish(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._app.running and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.05)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if "out of system resource" in context["message"]:
        _NO_FILES.warn("no new connection can be taken (%s); trying again every second", context.get("exception"))
    else:
        loop.default_exception_handler(context)
