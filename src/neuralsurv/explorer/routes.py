"""Routes for the page and its assets, which come from the package; nothing is fetched from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response

_TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_HEADERS = {"Cache-Control": "no-cache"}
# The report and the explorer share their colours, their text and how charts are read.
_PACKAGES = ("neuralsurv.report", "neuralsurv.explorer")


def add_page(app: FastAPI) -> tuple[str, ...]:
    """Add the page to a service, and return the path that needs no token: the page itself, which holds no data."""
    assets = {file.name: file.read_bytes() for package in _PACKAGES for file in (files(package) / "assets").iterdir()}
    page = assets.pop("index.html")

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return Response(page, headers=_HEADERS, media_type=_TYPES["html"])

    @app.get("/assets/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in assets:
            raise HTTPException(404)
        return Response(assets[name], headers=_HEADERS, media_type=_TYPES[name.rpartition(".")[2]])

    return ("/",)
