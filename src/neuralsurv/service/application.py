"""The routes of the service, and the ASGI application that holds them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.responses import Response

from neuralsurv import __version__
from neuralsurv.errors import ColumnError, InputError, OutOfTimeError
from neuralsurv.service.answers import Deadline, answer
from neuralsurv.service.middleware import FAULT, Access, Middleware
from neuralsurv.service.model_watch import ModelWatch, ReadyModel
from neuralsurv.service.openapi import REQUEST_BODY, openapi_document
from neuralsurv.service.prometheus_metrics import CONTENT_TYPE, PrometheusMetrics
from neuralsurv.service.request_parsing import Limits, check_time_range, read_request
from neuralsurv.service.schemas import Health, ModelDescription, PredictResponse, problem, problem_responses, try_later

log = logging.getLogger("neuralsurv.service")

_PATHS = ("/predict", "/model", "/health", "/metrics", "/openapi.json", "/")


class Service:
    """What the routes share; `threads` predictions run at the same time."""

    def __init__(self, watch: ModelWatch, limits: Limits, threads: int) -> None:
        self.watch = watch
        self.limits = limits
        self.metrics = PrometheusMetrics()
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="predict")
        self._working = 0
        gauge = self.metrics.gauge
        gauge("predictions_in_progress", "Predictions that wait or run.", lambda: self._working)
        gauge("model_loads", "How often a model file was opened.", lambda: watch.loads)
        gauge("model_load_failures", "How often a new model file could not be used.", lambda: watch.failures)
        gauge("model_stale", "1 while the model file cannot be used.", lambda: watch.problem is not None)
        gauge("model_loaded_timestamp_seconds", "When the model was opened.", lambda: watch.current.since.timestamp())

    def model_changed(self) -> None:
        """Log that a new file was loaded, or could not be."""
        if self.watch.problem is None:
            log.info("model file opened again, fingerprint %s", self.watch.current.fingerprint[:12])
        else:
            log.warning("the new model file is not used, the old model stays: %s", self.watch.problem)

    async def predict(self, body: bytes, state: State) -> Response:
        """Answer a request in a worker, or say that there is no time.

        The request is parsed there too: the event loop must not wait for one request, and no more requests are
        unpacked at a time than there are workers.
        """
        deadline: Deadline = state.deadline
        if self._working >= self.limits.waiting:
            return try_later("too many predictions are waiting; try again later.")
        self._working += 1
        ready = self.watch.current
        try:
            work = asyncio.get_running_loop().run_in_executor(self._workers, self._work, ready, body, state)
            content = await asyncio.wait_for(work, deadline.left + 1.0)
        except OutOfTimeError as error:
            return try_later(str(error))
        except TimeoutError:
            return try_later("there was no time to answer; try again later.")
        finally:
            self._working -= 1
        self.metrics.people.inc(state.people)
        return Response(content, media_type="application/json")

    def _work(self, ready: ReadyModel, body: bytes, state: State) -> bytes:
        deadline: Deadline = state.deadline
        deadline.check()
        asked = read_request(body, self.limits, ready.covariates)
        state.people = len(asked.people)
        check_time_range(asked, ready.predictor.time_scale)
        content = answer(ready, asked, deadline)
        deadline.check()
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")

    def description(self) -> dict[str, Any]:
        """Return what ``/model`` says."""
        ready = self.watch.current
        model = ready.model
        summary = model.summary()
        return {
            "file": self.watch.path.name,
            "fingerprint": ready.fingerprint,
            "loaded": ready.since.isoformat(timespec="seconds"),
            "version": __version__,
            "features": [covariate.described() for covariate in ready.covariates],
            "last_training_time": model.time_scale_,
            "hazard_at_zero": model.posterior_.rho == 1,
            "roles": model.columns_,
            "training": model.training_,
            "summary": [{"section": part, "name": name, "value": value} for part, name, value in summary.rows],
            "warnings": list(summary.warnings),
            "limits": asdict(self.limits),
        }

    def health(self) -> dict[str, Any]:
        """Return what ``/health`` says."""
        ready, found = self.watch.current, self.watch.problem
        return {
            "status": "ok" if found is None else "stale",
            "model": ready.fingerprint,
            "loaded": ready.since.isoformat(timespec="seconds"),
            "problem": found,
        }

    def close(self) -> None:
        """Stop the workers, and drop what waits."""
        self._workers.shutdown(wait=False, cancel_futures=True)


def create_app(
    watch: ModelWatch,
    *,
    access: Access | None = None,
    limits: Limits | None = None,
    threads: int = 1,
    look_every: float = 1.0,
    page: Callable[[FastAPI], tuple[str, ...]] | None = None,
) -> Middleware:
    """Return the service as an ASGI application.

    `look_every` is the time between two looks at the model file, in seconds; `page` adds a page to the service and
    returns the paths that need no token.
    """
    limits, access = limits or Limits(), access or Access()
    service = Service(watch, limits, threads)

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        looking = asyncio.create_task(watch.watch(look_every, service.model_changed))
        yield
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        service.close()

    # The usual documentation pages fetch scripts from the network, which this service never does.
    app = FastAPI(
        title="neuralsurv", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=life
    )
    _add_routes(app, service, token=access.token is not None)
    _add_errors(app)
    if page is not None:
        access = Access(access.token, access.hosts, (*access.open_paths, *page(app)))
    return Middleware(app, access, limits, service.metrics, _PATHS)


def _add_routes(app: FastAPI, service: Service, *, token: bool) -> None:
    errors = (400, 401, 408, 413) if token else (400, 408, 413)

    @app.post(
        "/predict",
        response_model=PredictResponse,
        responses=problem_responses(*errors, 415, 422, 503),
        openapi_extra={"requestBody": REQUEST_BODY},
    )
    async def predict(request: Request) -> Response:
        """Predict for a batch of people, with intervals."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not re.fullmatch(r"application/(\S+\+)?json", kind):
            raise HTTPException(415, "the body must be JSON: send the header 'Content-Type: application/json'.")
        return await service.predict(await request.body(), request.state)

    @app.get("/model", response_model=ModelDescription, responses=problem_responses(*errors))
    async def model() -> Response:
        """Describe the model: its covariates, its fit and its training data."""
        return _json(service.description())

    @app.get("/health", response_model=Health, responses=problem_responses(400, 408, 413))
    async def health() -> Response:
        """Say whether the service works; needs no token."""
        return _json(service.health())

    figures: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text format"}
    }

    @app.get("/metrics", response_class=Response, responses={**figures, **problem_responses(*errors)})
    async def metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return _json(openapi_document(app, service.watch.current, service.limits, token=token))


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(InputError)
    async def refused(_: Request, error: InputError) -> Response:
        return problem(422, str(error), column=error.column if isinstance(error, ColumnError) else None)

    @app.exception_handler(HTTPException)
    async def by_status(_: Request, error: HTTPException) -> Response:
        words = {404: "there is nothing at this path.", 405: "this path does not take this method."}
        return problem(error.status_code, words.get(error.status_code, error.detail), headers=error.headers)

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        # The error goes on to the middleware, which logs it without the values that it may hold.
        return problem(500, FAULT)


def _json(content: Any) -> Response:
    return Response(json.dumps(content, allow_nan=False), media_type="application/json")
