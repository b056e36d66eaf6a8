"""A small model with text and gaps, and its report."""

from functools import cache

import numpy as np
import pandas as pd

from neuralsurv import NeuralSurv
from neuralsurv.data.outcome import Outcome
from neuralsurv.report.build import Report, build
from small_cohort import quick_model, small_cohort

EVIL = "<script>alert('x')</script>"


@cache
def cohort(n: int = 60) -> tuple[pd.DataFrame, Outcome]:
    people = small_cohort(n)
    frame = people.x.assign(stage=np.where(np.arange(n) % 3 == 0, "II", "III"))
    frame.loc[[1, 5], "dose"] = np.nan
    frame[EVIL] = np.where(np.arange(n) % 4 == 0, "a & b", "</script>")
    return frame, Outcome.from_arrays(people.time, people.event)


@cache
def model() -> NeuralSurv:
    frame, outcome = cohort()
    return quick_model(hidden=(2,), mode_tolerance=1e-8).fit(frame, outcome)


@cache
def default_model() -> NeuralSurv:
    frame, outcome = cohort()
    return NeuralSurv(draws=40, verbose=False, random_state=0).fit(frame, outcome)


def make(**choices) -> Report:
    frame, outcome = cohort()
    labels = [f"row {k}" for k in range(len(frame))]
    return build(model(), frame, outcome, labels, lambda done, words: None, **choices)


@cache
def report() -> Report:
    return make()
