"""The explorer on a port of its own."""

import asyncio
import threading
import time

import uvicorn

from neuralsurv.explorer.page import add_page
from neuralsurv.service.application import create_app
from neuralsurv.service.gate import Access
from neuralsurv.service.model_watch import ModelWatch

# The page has drawn what was asked for.
READY = "document.querySelector('#numbers tbody') && !document.body.classList.contains('busy')"


class Site:
    """A service with its page, on a port of its own, in a thread of this process."""

    def __init__(self, path, token=None):
        app = create_app(ModelWatch(path), access=Access(token), page=add_page, look_every=0.1)
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
