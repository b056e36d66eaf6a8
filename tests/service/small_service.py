"""A small model with every kind of covariate, and a client of a service that holds it."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from starlette.testclient import TestClient

from neuralsurv import NeuralSurv
from neuralsurv.service.application import create_app
from neuralsurv.service.middleware import Access
from neuralsurv.service.model_watch import ModelWatch
from small_cohort import quick_model, small_cohort

PERSON: dict[str, Any] = {"age": 55.5, "dose": 0.05, "visits": 3, "stage": "III", "smoker": True}


def cohort(n: int = 60, seed: int = 3) -> tuple[pd.DataFrame, np.ndarray]:
    people = small_cohort(n, seed)
    frame = people.x.assign(
        visits=np.arange(n) % 7,
        stage=np.where(np.arange(n) % 3 == 0, "II", "III"),
        smoker=np.arange(n) % 2 == 0,
    )
    frame.loc[[1, 5], "dose"] = np.nan
    frame["stage"] = frame["stage"].where(np.arange(n) != 7, None)
    return frame, people.y


@cache
def model(seed: int = 3) -> NeuralSurv:
    return quick_model(hidden=(2,), mode_tolerance=1e-8).fit(*cohort(seed=seed))


def write(folder: Path, seed: int = 3) -> Path:
    path = folder / "small.neuralsurv"
    model(seed).save(path)
    return path


def table(*people: dict[str, Any]) -> pd.DataFrame:
    """The people as a user of the library would write them."""
    return pd.DataFrame([{**PERSON, **person} for person in people])


def client(path: Path, **settings: Any) -> TestClient:
    settings.setdefault("access", Access())
    return TestClient(create_app(ModelWatch(path), **settings))


def ask(client: TestClient, *people: dict[str, Any], **question: Any) -> Any:
    """Return the answer about people who differ from PERSON in what is given."""
    body = {"people": [{**PERSON, **person} for person in people or ({},)], "times": [0.5, 1.0], **question}
    return client.post("/predict", json=body)


def refused(answer: Any, status: int) -> str:
    """Check that an answer is a problem document, and return its sentence."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    content = answer.json()
    assert content["status"] == status
    assert set(content) <= {"type", "title", "status", "detail", "column"}
    return content["detail"]
