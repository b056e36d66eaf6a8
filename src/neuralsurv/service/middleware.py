"""The outermost layer of the service: host, token, size and time of a request; status, log and metrics of its answer.

It is plain ASGI around the application, so that no error from inside reaches a client or the log with the values that
were sent.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
import traceback
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from neuralsurv.names import counted
from neuralsurv.service.deadline import Deadline
from neuralsurv.service.prometheus_metrics import PrometheusMetrics
from neuralsurv.service.request_parsing import Limits
from neuralsurv.service.schemas import problem, try_later

log = logging.getLogger("neuralsurv.service")

# Time for the work inside to notice by itself that its time is over, and to say so.
_GRACE = 2.0
_CLIENT_LEFT = 499
STOPPING = "the service is stopping; try again later."
FAULT = "the service failed on this request; this is an error of the service, and its log says where."
_HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(:[0-9]{0,5})?")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    ),
)


@dataclass(frozen=True)
class Access:
    """Who may use the service."""

    token: str | None = None  # what a client must show, as ``Authorization: Bearer …``; anyone has access if None
    # Names under which the service may be called, without port; any if None. A page from elsewhere whose name was made
    # to point at this machine sends its own name, and is refused.
    hosts: tuple[str, ...] | None = None
    open_paths: tuple[str, ...] = ("/health",)  # paths that need no token

    def check(self, path: str, headers: dict[bytes, bytes]) -> None:
        """Refuse a client without access."""
        host = _name_of_host(headers.get(b"host", b"").decode("latin-1"))
        if self.hosts is not None and host not in self.hosts:
            raise HTTPException(
                400, "the service does not answer to this host name; call it by the one it was started for."
            )
        if self.token is None or path in self.open_paths or path.startswith("/assets/"):
            return
        scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
        # Compared in constant time: how long it takes must not tell how much of a guess is right.
        right = hmac.compare_digest(shown.strip(), self.token.encode("utf-8"))
        if scheme.lower() != b"bearer" or not right:
            words = "a token is needed: send the header 'Authorization: Bearer TOKEN' with the right one."
            raise HTTPException(401, words, {"WWW-Authenticate": "Bearer"})


def _name_of_host(value: str) -> str:
    """Return a Host header without its port; empty if it is more than a name and a port."""
    found = _HOST.fullmatch(value)
    return (found["address"] or found["name"]).lower() if found else ""


class Middleware:
    """The outermost layer of the service; answers of `paths` are counted by name, others together."""

    def __init__(
        self, app: ASGIApp, access: Access, limits: Limits, metrics: PrometheusMetrics, paths: tuple[str, ...]
    ) -> None:
        self._app = app
        self._access = access
        self._limits = limits
        self._metrics = metrics
        self._paths = paths
        self._stopping = False
        self.running = 0

    def stop(self) -> None:
        """Refuse new requests; those that have begun are finished."""
        self._stopping = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection of ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        started = time.perf_counter()
        state = scope.setdefault("state", {})
        deadline = state["deadline"] = Deadline.after(self._limits.seconds)
        self.running += 1
        try:
            await self._answer(scope, receive, exchange, deadline)
        except asyncio.CancelledError:
            # The server stops and waits no longer. It must not see the error: it would log it and answer by itself.
            await exchange.reply(_stopping())
        except Exception as error:
            # The message of an error may hold a value that was sent; where it happened may be logged.
            frames = traceback.extract_tb(error.__traceback__)
            where = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames[-8:]))
            log.error("unexpected %s, request %s, at %s", type(error).__name__, exchange.name, where)
            await exchange.reply(problem(500, FAULT))
        finally:
            self.running -= 1
            seconds = time.perf_counter() - started
            path = scope["path"] if scope["path"] in self._paths else "other"
            status = exchange.status or _CLIENT_LEFT
            self._metrics.answered(path, scope["method"], status, seconds)
            people = f" people={state['people']}" if "people" in state else ""
            # No address, no query, no header, no body: nothing here is about a person.
            method = scope["method"] if path != "other" else "?"
            log.info("%s %s %d %.0f ms%s request=%s", method, path, status, 1e3 * seconds, people, exchange.name)

    async def _answer(self, scope: Scope, receive: Receive, exchange: _Exchange, deadline: Deadline) -> None:
        if self._stopping:
            await exchange.reply(_stopping())
            return
        headers = dict(scope["headers"])
        try:
            self._access.check(scope["path"], headers)
            body = await self._body(receive, headers)
        except HTTPException as error:
            await exchange.reply(problem(error.status_code, error.detail, headers=error.headers))
            return
        if body is None:
            return
        work = asyncio.ensure_future(self._app(scope, _replay(body), exchange.send))
        left = asyncio.ensure_future(_departure(receive))
        try:
            await asyncio.wait({work, left}, timeout=self._limits.seconds + _GRACE, return_when=asyncio.FIRST_COMPLETED)
            late = not work.done() and not left.done()
            if exchange.complete:
                # Servers say that the client has gone also when it has all of its answer.
                await asyncio.wait({work}, timeout=_GRACE)
            if work.done():
                await work
        finally:
            # What still works for this request stops at its next look at the clock.
            deadline.give_up()
            work.cancel()
            left.cancel()
            await asyncio.gather(work, left, return_exceptions=True)
        if late:
            limit = counted(self._limits.seconds, "second", form="g")
            await exchange.reply(try_later(f"there was no answer within {limit}; ask for less, or later."))

    async def _body(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes | None:
        seconds = self._limits.body_seconds
        try:
            async with asyncio.timeout(seconds):
                return await _read(receive, headers, self._limits.body_bytes)
        except TimeoutError:
            limit = counted(seconds, "second", form="g")
            raise HTTPException(408, f"the request did not arrive within {limit}; send it again.") from None


class _Exchange:
    """The answer to one request: records its status and adds headers."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self.name = secrets.token_hex(8)
        self.status: int | None = None
        self.complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            named = (b"x-request-id", self.name.encode("ascii"))
            headers = [*message.get("headers", []), *_HEADERS, named]
            if not any(key.lower() == b"cache-control" for key, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await self._send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)

    async def reply(self, response: Response) -> None:
        """Send an answer, unless another one has begun."""
        if self.status is None:
            await response(self._scope, self._receive, self.send)


def _stopping() -> Response:
    return try_later(STOPPING, Connection="close")


async def _departure(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        await asyncio.sleep(0)


async def _read(receive: Receive, headers: dict[bytes, bytes], most: int) -> bytes | None:
    """Return the whole body, or None if the client has gone; refuse one that is too large."""
    too_large = HTTPException(413, f"the request is larger than {most} bytes; send fewer people at a time.")
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced[:20]) > most:
        raise too_large
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise too_large
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes) -> Receive:
    """Return a `receive` that gives the body again and then waits: a client that leaves is noticed outside."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            await asyncio.Event().wait()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
