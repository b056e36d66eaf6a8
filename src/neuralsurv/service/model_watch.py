"""The model file of a service: loaded once, and again whenever it is replaced on disk."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from neuralsurv.data.cause_values import require_one_cause
from neuralsurv.errors import NeuralSurvError, StorageError
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.estimator.model_file import load
from neuralsurv.service.covariates import Covariate, Value, covariates_of, people_columns
from neuralsurv.service.warm_predictor import WarmPredictor

_ATTEMPTS = 5
_PAUSE = 0.05

# What tells one content of a file from another without reading it.
Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class ReadyModel:
    """A model that is ready to answer; it never changes."""

    model: SurvivalEstimator
    predictor: WarmPredictor
    covariates: tuple[Covariate, ...]
    fingerprint: str  # SHA-256 of the file
    since: datetime  # when it was opened

    @property
    def quick(self) -> bool:
        """Whether a prediction for a few people takes some milliseconds."""
        return self.predictor.keeps_times

    def typical_person(self) -> dict[str, Value]:
        """Return a person in the middle of the training data, as a client would send it."""
        return {covariate.column.name: covariate.sent for covariate in self.covariates}


class ModelWatch:
    """Keeps the model of a file in memory and notices when the file is replaced.

    A new file that cannot be used leaves the old model in place; :attr:`problem` then says why.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self.loads, self.failures = 0, 0
        self._seen = _stamp(path)
        self.current, self._seen = self._open()

    def refresh(self) -> bool:
        """Look at the file and open it if it has changed; return whether another model is in place now."""
        stamp = _stamp(self.path)
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            found, self._seen = self._open()
        except NeuralSurvError as error:
            return self._failed(str(error))
        except Exception as error:
            # Whatever is wrong with the new file, the old model stays in use.
            return self._failed(f"{self.path.name} cannot be used: unexpected {type(error).__name__}.")
        self.problem = None
        changed = found.fingerprint != self.current.fingerprint
        self.current = found
        return changed

    def _failed(self, text: str) -> bool:
        # Clients see this sentence; where the file lies is not for them.
        self.problem = text.replace(str(self.path), self.path.name)
        self.failures += 1
        return False

    async def watch(self, seconds: float, changed: Callable[[], None] = lambda: None) -> None:
        """Refresh at an interval in seconds, in a thread so that requests go on; runs until it is cancelled."""
        while True:
            await asyncio.sleep(seconds)
            before = (self.loads, self.failures)
            await asyncio.to_thread(self.refresh)
            if before != (self.loads, self.failures):
                changed()

    def _open(self) -> tuple[ReadyModel, Stamp | None]:
        for _ in range(_ATTEMPTS):
            before = _stamp(self.path)
            model = load(self.path)
            digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
            if before == _stamp(self.path):
                break
            time.sleep(_PAUSE)
        else:
            raise StorageError(f"{self.path.name} changes while it is read; replace it in one step.")
        ready = _ready(model, digest)
        self.loads += 1
        return ready, before


def _ready(model: SurvivalEstimator, fingerprint: str) -> ReadyModel:
    require_one_cause(model.causes_, "the service")
    model.set_params(verbose=False)
    predictor = WarmPredictor.of(model._predictor())
    ready = ReadyModel(model, predictor, covariates_of(model.encoding_), fingerprint, datetime.now(UTC))
    # Checks that the model can predict, and spares the first request the cost of warming up.
    typical = predictor.encoding.of_columns(people_columns([ready.typical_person()], ready.covariates))
    predictor.survival(typical, [model.time_scale_]).arrays()
    return ready


def _stamp(path: Path) -> Stamp | None:
    """Return inode, time of change and size of a file, or None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
