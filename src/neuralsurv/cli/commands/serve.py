"""``neuralsurv serve`` and ``neuralsurv explore``."""

from __future__ import annotations

import html
import ipaddress
import os
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from neuralsurv.cli.messages import Messages
from neuralsurv.cli.options import ServeOptions
from neuralsurv.errors import InputError
from neuralsurv.files.format import read_header
from neuralsurv.names import counted

if TYPE_CHECKING:
    from neuralsurv.service.request_parsing import Limits

TOKEN_VARIABLE = "NEURALSURV_TOKEN"
_SHORTEST_TOKEN = 16
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
# How long a browser may take to start and read a file.
_SECONDS_TO_OPEN = 60.0
_SECONDS_TO_STOP = 5.0


def run(path: Path, options: ServeOptions, *, browser: bool = False, messages: Messages) -> None:
    """Serve a model until the process is stopped; `browser` opens the page of the explorer."""
    for needed in ("fastapi", "orjson", "prometheus_client", "uvicorn"):
        if find_spec(needed) is None:
            raise InputError(f"this needs {needed}: pip install 'neuralsurv[serve]'.")
    token = read_token(options.token_file)
    loopback = is_loopback(options.host)
    if not loopback and token is None and not options.no_token:
        raise InputError(
            f"--host {options.host} can be reached from other machines; set a token ({TOKEN_VARIABLE} or --token-file),"
            " or say --no-token."
        )
    if not options.timeout > 0:
        raise InputError(f"--timeout {options.timeout:g} must be above 0.")
    read_header(path)
    with _listening(options.host, options.port) as place:
        # Imported late: these take seconds that a mistake should not cost.
        from neuralsurv.explorer.routes import add_page
        from neuralsurv.service.middleware import Access
        from neuralsurv.service.request_parsing import Limits
        from neuralsurv.service.server import most_connections
        from neuralsurv.service.workers import ServiceSettings, Workers, serve

        limits = Limits(
            body_bytes=options.max_bytes, people=options.max_people, times=options.max_times, seconds=options.timeout
        )
        # The others are for clients that are asked to come back later, and for /health.
        limits = replace(limits, waiting=min(limits.waiting, most_connections() // 2))
        names = options.name or (_LOOPBACK_NAMES if loopback else None)
        hosts = None if names is None else tuple(name.lower() for name in names)
        threads = options.threads or max(1, min(4, (os.cpu_count() or 1) // options.workers))
        page = add_page if options.explorer else None
        settings = ServiceSettings(path, Access(token, hosts), limits, threads, page, messages.quiet)
        address = url(options.host, place.getsockname()[1])
        ended = threading.Event()
        opening = threading.Thread(target=_open_page, args=(address, token, ended), daemon=True)

        def ready(warnings: tuple[str, ...]) -> None:
            messages.warn(*warnings)
            _announce(address, path, options, token, limits, messages)
            if browser:
                # The socket listens already, so the page waits for the server and not the other way round.
                opening.start()

        try:
            if options.workers == 1:
                serve(settings, place, ready)
            else:
                with tempfile.TemporaryDirectory(prefix="neuralsurv-") as folder:
                    received = Workers(settings, options.workers, place, Path(folder)).run(ready)
                signal.raise_signal(received)
        except KeyboardInterrupt:
            # An interrupt is how a service is meant to end.
            messages.say("stopped")
        finally:
            ended.set()
            if opening.is_alive():
                opening.join(_SECONDS_TO_STOP)


def _announce(
    address: str, path: Path, options: ServeOptions, token: str | None, limits: Limits, messages: Messages
) -> None:
    where = f"exploring {path.name} at {_page_address(address, token)}"
    messages.say(where if options.explorer else f"serving {path.name} at {address}")
    guard = "with a token" if token is not None else "without a token"
    most = f"{counted(limits.people, 'person', 'people')} and {counted(limits.times, 'time')}"
    messages.say(f"{guard}, up to {most} a request; stop with Ctrl-C")
    messages.result(url=address, model=str(path), token=token is not None, explorer=options.explorer)
    sys.stdout.flush()


def _page_address(address: str, token: str | None) -> str:
    # What follows the # never leaves the browser, so the token is in no log.
    return f"{address}/" if token is None else f"{address}/#token={token}"


def _open_page(address: str, token: str | None, ended: threading.Event) -> None:
    """Open the page in a browser.

    Other users of a machine see the options of a process, also those of a browser that is started, so a token goes
    there through a file that only this user can read. It is gone a minute later, or when the service ends.
    """
    if token is None:
        webbrowser.open(_page_address(address, token))
        return
    with tempfile.TemporaryDirectory(prefix="neuralsurv-") as folder:
        page = Path(folder) / "explorer.html"
        there = html.escape(_page_address(address, token))
        with open(os.open(page, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(
                f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={there}">'
                f'<title>neuralsurv</title><p><a href="{there}">Open the explorer</a></p>\n'
            )
        webbrowser.open(page.as_uri())
        ended.wait(_SECONDS_TO_OPEN)


def read_token(file: Path | None) -> str | None:
    """Return the token of a file or of the environment, or None where there is none.

    It is never an option itself, because other users of a machine see the options of a process.
    """
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token file {str(file)!r} cannot be read: {error}.") from error
        source = f"the token in {str(file)!r}"
    elif os.environ.get(TOKEN_VARIABLE):
        token, source = os.environ[TOKEN_VARIABLE].strip(), f"the token in {TOKEN_VARIABLE}"
    else:
        return None
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            f"{source} has {counted(len(token), 'character')}; use at least {_SHORTEST_TOKEN} letters, digits and "
            'signs without spaces, for example from python -c "import secrets; print(secrets.token_urlsafe())".'
        )
    return token


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url(host: str, port: int) -> str:
    """Return where a browser finds a service that listens on `host`."""
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else "::1" if host == "::" else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; an address or a port that cannot be used is refused before any other work."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # asyncio sends small answers at once only if the socket says that it speaks TCP.
        place = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"--host {host} is not an address of this machine: {error.strerror}.") from error
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
        place.listen(2048)
    except OSError as error:
        place.close()
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another with --port; 0 takes a free one."
        ) from error
    return place
