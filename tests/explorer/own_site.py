"""The explorer on a port of its own."""

import asyncio
import itertools
import threading
import time

import uvicorn

from neuralsurv.explorer.routes import add_page
from neuralsurv.service.application import create_app
from neuralsurv.service.middleware import Access
from neuralsurv.service.model_watch import ModelWatch

# The page has drawn what was asked for.
READY = "document.querySelector('#numbers tbody') && !document.body.classList.contains('busy')"


class Delayed:
    """Holds answers to predictions back, each by the next of some seconds, so that a later one may come first."""

    def __init__(self, app, delays):
        self._app, self._delays = app, itertools.cycle(delays)

    async def __call__(self, scope, receive, send):
        pause = next(self._delays) if scope.get("path") == "/predict" else 0.0

        async def late(message):
            if message["type"] == "http.response.start":
                await asyncio.sleep(pause)
            await send(message)

        await self._app(scope, receive, late)


class Site:
    """A service with its page, on a port of its own, in a thread of this process."""

    def __init__(self, path, token=None, delays=()):
        app = create_app(ModelWatch(path), access=Access(token), page=add_page, look_every=0.1)
        app = Delayed(app, delays) if delays else app
        self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()))

    def __enter__(self):
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join(30)
