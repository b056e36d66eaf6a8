"""The routes of the service, and the ASGI application that holds them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from fastapi import FastAPI, Request
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.responses import Response

from neuralsurv import __version__
from neuralsurv.errors import ColumnError, InputError, OutOfTimeError
from neuralsurv.service.answers import Question, answer
from neuralsurv.service.batching import BatchingThread
from neuralsurv.service.deadline import Deadline
from neuralsurv.service.middleware import FAULT, Access, Middleware
from neuralsurv.service.model_watch import ModelWatch, ReadyModel
from neuralsurv.service.openapi import REQUEST_BODY, openapi_document
from neuralsurv.service.prometheus_metrics import CONTENT_TYPE, PrometheusMetrics, SharedMetrics
from neuralsurv.service.request_parsing import Limits, check_time_range, read_request
from neuralsurv.service.schemas import Health, ModelDescription, PredictResponse, problem, problem_responses, try_later

log = logging.getLogger("neuralsurv.service")

# Requests of up to this many bytes are answered together, at most this many, each of at most this many numbers.
_FEW_BYTES, _MOST_TOGETHER, _FEW_NUMBERS = 2**14, 32, 2**22
# Seconds between two files of metrics for other workers.
_SHARE_EVERY = 1.0
_PATHS = ("/predict", "/model", "/health", "/metrics", "/openapi.json", "/")


@dataclass
class Job:
    """A request that is to be answered, for the event loop that waits for it."""

    ready: ReadyModel
    body: bytes
    state: State
    done: asyncio.Future[bytes]
    question: Question | None = None
    result: bytes | Exception = b""

    @property
    def deadline(self) -> Deadline:
        """The time limit of the request."""
        found: Deadline = self.state.deadline
        return found

    def deliver(self) -> None:
        """Set the result of the future, unless nobody waits for it any more."""
        if self.done.done():
            return
        if isinstance(self.result, Exception):
            self.done.set_exception(self.result)
        else:
            self.done.set_result(self.result)


class Service:
    """What the routes share; `threads` predictions for many people run at the same time.

    Requests for a few people are answered together, by a thread of their own.
    """

    def __init__(
        self, watch: ModelWatch, limits: Limits, threads: int, shared_metrics: SharedMetrics | None = None
    ) -> None:
        self.watch = watch
        self.limits = limits
        self.metrics = PrometheusMetrics(shared_metrics)
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="predict")
        self._batches = BatchingThread(self._answer_few, _MOST_TOGETHER)
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
        """Answer a request in another thread, or say that there is no time.

        The request is parsed there too: the event loop must not wait for one request, and no more requests are
        unpacked at a time than there are threads.
        """
        if self._working >= self.limits.waiting:
            return try_later("too many predictions are waiting; try again later.")
        self._working += 1
        job = Job(self.watch.current, body, state, asyncio.get_running_loop().create_future())
        try:
            if len(body) <= _FEW_BYTES and job.ready.quick:
                self._batches.add(job)
            else:
                self._workers.submit(self._answer_one, job)
            content = await asyncio.wait_for(job.done, job.deadline.left + 1.0)
        except OutOfTimeError as error:
            return try_later(str(error))
        except TimeoutError:
            return try_later("there was no time to answer; try again later.")
        finally:
            self._working -= 1
        self.metrics.people.inc(state.people)
        return Response(content, media_type="application/json")

    def _answer_one(self, job: Job) -> None:
        """Answer a request on its own."""
        if job.question is None and not self._read(job):
            _deliver([job])
            return
        self._answer([job])

    def _answer_few(self, jobs: list[Job]) -> None:
        """Answer requests that have come in together; those that ask the same of other people in one prediction."""
        kinds: dict[Any, list[Job]] = {}
        refused = [job for job in jobs if not self._read(job)]
        _deliver(refused)
        for job in jobs:
            if job.question is not None:
                if job.question.size > _FEW_NUMBERS:
                    self._workers.submit(self._answer_one, job)
                else:
                    kinds.setdefault(job.question.kind, []).append(job)
        for together in kinds.values():
            self._answer(together)

    def _read(self, job: Job) -> bool:
        """Parse and check a request; return whether it can be answered, else the result is the reason."""
        try:
            job.deadline.check()
            asked = read_request(job.body, self.limits, job.ready.covariates)
            job.state.people = len(asked.people)
            check_time_range(asked, job.ready.predictor.time_scale)
            job.question = Question.of(job.ready, asked, job.deadline)
        except Exception as error:
            job.result = error
        return job.question is not None

    def _answer(self, jobs: list[Job]) -> None:
        """Answer requests that have been read, in one prediction."""
        try:
            found = answer([job.question for job in jobs if job.question is not None])
        except Exception as error:
            if len(jobs) > 1:
                # One bad request must not fail the others.
                for job in jobs:
                    self._answer([job])
                return
            jobs[0].result = error
        else:
            for job, content in zip(jobs, found, strict=True):
                job.result = self._encoded(job, content)
        _deliver(jobs)

    @staticmethod
    def _encoded(job: Job, content: dict[str, Any]) -> bytes | Exception:
        try:
            job.deadline.check()
            # Not finite numbers become null.
            return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        except Exception as error:
            return error

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
        """Stop the threads, and drop the jobs that are waiting."""
        self._batches.close()
        self._workers.shutdown(wait=False, cancel_futures=True)


def _deliver(jobs: list[Job]) -> None:
    """Pass results to the event loop that waits for them, waking it up once."""

    def hand_over() -> None:
        for job in jobs:
            job.deliver()

    if jobs:
        # The loop may have ended while this was computed.
        with contextlib.suppress(RuntimeError):
            jobs[0].done.get_loop().call_soon_threadsafe(hand_over)


def create_app(
    watch: ModelWatch,
    *,
    access: Access | None = None,
    limits: Limits | None = None,
    threads: int = 1,
    look_every: float = 1.0,
    page: Callable[[FastAPI], tuple[str, ...]] | None = None,
    shared_metrics: SharedMetrics | None = None,
) -> Middleware:
    """Return the service as an ASGI application.

    `look_every` is the time between two looks at the model file, in seconds; `page` adds a page to the service and
    returns the paths that need no token; `shared_metrics` is for one of several workers.
    """
    limits, access = limits or Limits(), access or Access()
    service = Service(watch, limits, threads, shared_metrics)

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(watch.watch(look_every, service.model_changed))]
        if shared_metrics is not None:
            tasks.append(asyncio.create_task(_share(service.metrics)))
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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


async def _share(metrics: PrometheusMetrics) -> None:
    """Share the metrics of this worker with the others at regular intervals."""
    while True:
        await asyncio.to_thread(metrics.share)
        await asyncio.sleep(_SHARE_EVERY)


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
