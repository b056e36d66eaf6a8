"""Routes for the page and its assets, which come from the package; nothing is fetched from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI
from starlette.responses import Response

from neuralsurv.service.problems import problem

_TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
# The report and the explorer share their colours, their text and how charts are read.
_ASSETS = {
    "neuralsurv.report": ("report.css", "chart.js"),
    "neuralsurv.explorer": (
        "explorer.css", "explorer.js", "live_chart.js", "form.js", "results.js", "service.js", "words.js"
    ),
}  # fmt: skip
_HEADERS = {"Cache-Control": "no-cache"}


def asset(package: str, name: str) -> bytes:
    """Return a file of a package."""
    return (files(package) / "assets" / name).read_bytes()


def add_page(app: FastAPI) -> tuple[str, ...]:
    """Add the page to a service, and return the path that needs no token: the page itself, which holds no data."""
    page = asset("neuralsurv.explorer", "index.html")
    assets = {name: asset(package, name) for package, names in _ASSETS.items() for name in names}

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return Response(page, headers=_HEADERS, media_type=_TYPES["html"])

    @app.get("/assets/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in assets:
            return problem(404, "there is nothing at this path.")
        return Response(assets[name], headers=_HEADERS, media_type=_TYPES[name.rpartition(".")[2]])

    return ("/",)
